/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/facts.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/bar_cache.h"
#include "backend/pool.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"
#include "fs/share/lease_list.h"
#include "fs/tree/inode_table.h"
#include "fs/volume/volume.h"

struct mount_numbers {
	struct stats_totals totals;
	uint64_t started, inodes, metadata_bytes;
};

static bool mount_read(const struct fact_subject *subject, void *pointer)
{
	struct mount_numbers *numbers = pointer;
	struct fs *fs = subject->fs;

	stats_sum(&fs->stats, &numbers->totals);
	numbers->started = (uint64_t)fs->started.tv_sec;
	numbers->inodes = inode_table_count(fs->inodes);
	numbers->metadata_bytes = (uint64_t)atomic_load(&ledger_of(fs)->metadata_bytes);
	return true;
}

#define MOUNT(member, json, metric, help) FACT(struct mount_numbers, member, json, metric, help)

static const struct fact mount_rows[] = {
    MOUNT(started, "started", "start_time_seconds",
	  "When the daemon started, in seconds since the epoch."),
    MOUNT(inodes, "inodes", "inodes", "Files, directories and other inodes."),
    MOUNT(metadata_bytes, NULL, "metadata_bytes",
	  "The daemon's own memory for names and attributes."),
    MOUNT(totals.read_bytes, "read_bytes", NULL, NULL),
    MOUNT(totals.write_bytes, "write_bytes", NULL, NULL),
    MOUNT(totals.copy_bytes, "copy_bytes", NULL, NULL),
};

struct volume_numbers {
	uint64_t files;
	struct volume_usage usage;
	struct stats_volume_totals requested;
	struct lease_sums leases;
};

static bool volume_read(const struct fact_subject *subject, void *pointer)
{
	struct volume_numbers *numbers = pointer;
	struct volume *volume = subject->volume;

	numbers->files = (uint64_t)atomic_load(&volume->files);
	volume_usage(volume, &numbers->usage);
	numbers->requested = stats_sum_volume(&subject->fs->stats, volume->index);
	numbers->leases = lease_list_sums(lease_list_of(subject->fs), volume->index);
	return true;
}

#define VOLUME(member, json, metric, help) FACT(struct volume_numbers, member, json, metric, help)

static const struct fact volume_rows[] = {
    VOLUME(files, "files", NULL, NULL),
    VOLUME(usage.total, "total_bytes", "memory_total_bytes",
	   "Memory of the device, or the size limit where lower, and the spill."),
    VOLUME(usage.free, "free_bytes", "memory_free_bytes",
	   "Free memory of the device, for all programs."),
    VOLUME(usage.available, "available_bytes", "memory_available_bytes",
	   "Memory that files of this mount could still take."),
    VOLUME(usage.held, "held_bytes", "memory_held_bytes", "Memory held by this mount."),
    VOLUME(requested.requests, "requests", "volume_requests_total",
	   "Requests on files and directories of a volume."),
    VOLUME(requested.read_bytes, "read_bytes", "read_bytes_total", "Bytes read from files."),
    VOLUME(requested.write_bytes, "write_bytes", "written_bytes_total", "Bytes written to files."),
    VOLUME(requested.copy_bytes, "copy_bytes", "copied_bytes_total",
	   "Bytes copied to files by the daemon."),
    VOLUME(leases.leases, "leases", "leases", "Leases that processes have of files' memory."),
    VOLUME(leases.bytes, "leased_bytes", "leased_bytes",
	   "Sizes of the leased files as their sharers know them, once for each lease."),
};

struct gpu_numbers {
	uint64_t index, healthy, resets, lost_bytes, ahead_bytes;
	struct pool_usage pool;
};

static bool gpu_read(const struct fact_subject *subject, void *pointer)
{
	struct gpu_numbers *numbers = pointer;
	struct volume *volume = subject->volume;
	struct volume_usage usage;

	numbers->index = volume->device->index;
	/* A query of its memory may fail before a fault of the device is reported. */
	numbers->healthy = !volume_usage(volume, &usage) && !volume->device->failed;
	numbers->resets = atomic_load(&volume->device->health.resets);
	numbers->lost_bytes = health_lost(volume->device);
	numbers->ahead_bytes = stats_sum_volume(&subject->fs->stats, volume->index).ahead_bytes;
	numbers->pool = pool_usage(volume->pool);
	return true;
}

#define GPU(member, json, metric, help) FACT(struct gpu_numbers, member, json, metric, help)

static const struct fact gpu_rows[] = {
    GPU(index, "index", NULL, NULL),
    GPU(ahead_bytes, "read_ahead_bytes", "read_ahead_bytes_total",
	"Bytes read from files that the GPU had copied ahead of the program."),
    GPU(pool.span_bytes, "file_bytes", NULL, NULL),
    GPU(pool.chunks, "chunks", "memory_chunks", "Allocations of the driver that are held."),
    GPU(pool.shared_chunks, "shared_chunks", "memory_shared_chunks",
	"Allocations of the driver that small files share."),
    GPU(pool.shared_bytes, "shared_bytes", "memory_shared_bytes",
	"Memory held in chunks that small files share."),
    GPU(pool.block_bytes, "block_bytes", "memory_blocks_bytes",
	"The part of these chunks that files have."),
    GPU(healthy, NULL, "healthy", "0 while the device is failed."),
    GPU(resets, "resets", "resets_total", "How often the device was reset after a fault."),
    GPU(lost_bytes, "lost_bytes", "lost_bytes",
	"Memory of files that lost their bytes in a fault."),
};

static bool bar_read(const struct fact_subject *subject, void *numbers)
{
	*(struct bar_usage *)numbers = bar_usage(subject->volume->device);
	return true;
}

static const struct fact bar_rows[] = {
    FACT(struct bar_usage, mapped, "mapped_bytes", "bar_mapped_bytes",
	 "Memory mapped through the BAR."),
    FACT(struct bar_usage, budget, "budget_bytes", "bar_budget_bytes",
	 "Most memory to map through the BAR at once."),
    FACT(struct bar_usage, maps, "maps", "bar_maps_total", "Mappings made through the BAR."),
    FACT(struct bar_usage, evictions, "evictions", "bar_evictions_total",
	 "Mappings through the BAR given up for others."),
};

struct place_numbers {
	struct pool_usage pool;
	uint64_t moved_bytes;
};

static bool place_read(const struct fact_subject *subject, void *pointer)
{
	struct place_numbers *numbers = pointer;

	numbers->pool = pool_usage(volume_pool(subject->volume, subject->place));
	numbers->moved_bytes = atomic_load(&subject->volume->moved[subject->place]);
	return true;
}

#define PLACE(member, json, metric, help) FACT(struct place_numbers, member, json, metric, help)

static const struct fact place_rows[] = {
    PLACE(pool.size, "size_bytes", NULL, NULL),
    PLACE(pool.chunk_bytes, "held_bytes", NULL, NULL),
    PLACE(pool.span_bytes, "file_bytes", "memory_files_bytes",
	  "The part of the held memory that files have, by place."),
    PLACE(pool.held_bytes, "given_up_bytes", "memory_given_up_bytes",
	  "The part that files gave up and processes may still have, by place."),
    PLACE(moved_bytes, "moved_bytes", "spill_moved_bytes_total",
	  "Bytes of files that moved to each place."),
};

const struct fact_group mount_facts[] = {
    FACT_GROUP(FACT_MOUNT, NULL, mount_rows, struct mount_numbers, mount_read),
    {0},
};

const struct fact_group volume_facts[] = {
    FACT_GROUP(FACT_VOLUME, NULL, volume_rows, struct volume_numbers, volume_read),
    FACT_GROUP(FACT_GPU, NULL, gpu_rows, struct gpu_numbers, gpu_read),
    FACT_GROUP(FACT_GPU, "bar", bar_rows, struct bar_usage, bar_read),
    FACT_GROUP(FACT_GPU_PLACE, "places", place_rows, struct place_numbers, place_read),
    {0},
};

static unsigned place_subjects(struct fs *fs, struct fact_subject *subjects)
{
	unsigned count = 0;

	for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
		subjects[count++] = (struct fact_subject){.fs = fs, .place = place};
	return count;
}

static unsigned volume_subjects(struct fs *fs, enum fact_scope scope, struct volume *volume,
				struct fact_subject *subjects)
{
	enum memory_place end = scope == FACT_GPU_PLACE ? PLACES : PLACE_GPU + 1;
	unsigned count = 0;

	if (scope != FACT_VOLUME && !volume->device)
		return 0;
	for (enum memory_place place = PLACE_GPU; place < end;
	     place = volume_place_below(volume, place))
		subjects[count++] =
		    (struct fact_subject){.fs = fs, .volume = volume, .place = place};
	return count;
}

static unsigned fact_subjects(struct fs *fs, enum fact_scope scope, struct fact_subject *subjects)
{
	unsigned count = 0;

	if (scope == FACT_MOUNT)
		subjects[count++] = (struct fact_subject){.fs = fs};
	else if (scope == FACT_SPILL)
		count = place_subjects(fs, subjects);
	else
		for (unsigned i = 0; i < fs->n_volumes; i++)
			count += volume_subjects(fs, scope, &fs->volumes[i], &subjects[count]);
	return count;
}

int facts_read(struct fs *fs, const struct fact_group *group, struct fact_readings *readings)
{
	readings->count = fact_subjects(fs, group->scope, readings->subjects);
	readings->numbers = calloc(readings->count ? readings->count : 1, group->bytes);
	if (!readings->numbers)
		return -ENOMEM;
	for (unsigned i = 0; i < readings->count; i++)
		readings->was_read[i] =
		    group->read(&readings->subjects[i], readings->numbers + i * group->bytes);
	return 0;
}

int facts_each(struct fs *fs, fact_visit visit, void *context)
{
	int error = 0;

	for (const struct fs_part *part = fs->parts; part->name; part++)
		for (const struct fact_group *group = part->facts; group && group->facts && !error;
		     group++)
			error = visit(fs, group, context);
	return error;
}
