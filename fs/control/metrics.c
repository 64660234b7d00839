/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/metrics: the counters in Prometheus' text format. gpumem(7) documents the names, as
 * users' dashboards and alerts depend on them. */
#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <limits.h>

#include "backend/bar_cache.h"
#include "backend/pool.h"
#include "common/utf8.h"
#include "fs/control/texts.h"
#include "fs/core/fs.h"
#include "fs/core/version.h"
#include "fs/share/lease_list.h"
#include "fs/spool/spool.h"
#include "fs/tier/tier.h"
#include "fs/tree/inode_table.h"
#include "fs/volume/volume.h"

#define PREFIX "gpumemfs_"

#define NS 1e9

/* The counters of a volume, read once for all lines. */
struct sample {
	struct stats_volume_totals did;
	struct volume_usage usage;
	struct pool_usage pool;
	struct bar_usage bar;
	uint64_t leases, leased_bytes, resets, lost;
	bool healthy;
};

/* Every line has the mount as a label, because a machine may have several mounts. */
struct page {
	FILE *out;
	char mount[UTF8_ESCAPED_BYTES(PATH_MAX)];
};

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

/* Escapes the value, which may hold any characters. */
static void write_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			fputc(*value, out);
	}
	fputc('"', out);
}

/* Writes a line up to its first label; further labels begin with a comma. */
static void write_line_begin(const struct page *page, const char *name)
{
	fprintf(page->out, PREFIX "%s{", name);
	write_label(page->out, "mount", page->mount);
}

static void write_line_end(const struct page *page, uint64_t value)
{
	fprintf(page->out, "} %" PRIu64 "\n", value);
}

static void write_number(const struct page *page, const char *name, const char *type,
			 const char *help, uint64_t value)
{
	write_head(page->out, name, type, help);
	write_line_begin(page, name);
	write_line_end(page, value);
}

static void write_build_info(struct fs *fs, const struct page *page)
{
	FILE *out = page->out;

	write_head(out, "build_info", "gauge", "Always 1; the labels name the running version.");
	write_line_begin(page, "build_info");
	fputc(',', out);
	write_label(out, "version", GPUMEMFS_VERSION);
	fputc(',', out);
	write_label(out, "backend", fs->backend->name);
	fputc(',', out);
	write_label(out, "driver", fs->backend->version);
	fputc(',', out);
	write_label(out, "libfuse", fuse_pkgversion());
	write_line_end(page, 1);
}

static void write_transport_info(struct fs *fs, const struct page *page)
{
	write_head(page->out, "transport_info", "gauge",
		   "Always 1: how requests come from the kernel.");
	write_line_begin(page, "transport_info");
	fprintf(page->out, ",transport=\"%s\",threads=\"%u\",passthrough=\"%s\"",
		fs->can.io_uring.on ? "io_uring" : "dev_fuse", fs->can.threads,
		fs->can.passthrough.on ? "on" : "off");
	write_line_end(page, 1);
}

static void write_per_operation(const struct page *page, const char *name, const char *help,
				const uint64_t *values)
{
	write_head(page->out, name, "counter", help);
	for (int op = 0; op < STAT_OPS; op++) {
		write_line_begin(page, name);
		fprintf(page->out, ",operation=\"%s\"", stats_op_name((enum stat_op)op));
		write_line_end(page, values[op]);
	}
}

static void write_histogram(const struct page *page, const char *operation, const uint64_t *counts,
			    uint64_t sum_ns)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		char end[32] = "+Inf";

		count += counts[i];
		if (i < STATS_BUCKETS - 1)
			snprintf(end, sizeof(end), "%g", (double)stats_bucket_ns[i] / NS);
		write_line_begin(page, "request_duration_seconds_bucket");
		fprintf(page->out, ",operation=\"%s\",le=\"%s\"", operation, end);
		write_line_end(page, count);
	}
	write_line_begin(page, "request_duration_seconds_sum");
	fprintf(page->out, ",operation=\"%s\"} %.9f\n", operation, (double)sum_ns / NS);
	write_line_begin(page, "request_duration_seconds_count");
	fprintf(page->out, ",operation=\"%s\"", operation);
	write_line_end(page, count);
}

/* Of the operations that were requested at least once. */
static void write_durations(const struct page *page, const struct stats_totals *totals)
{
	write_head(page->out, "request_duration_seconds", "histogram",
		   "Time from a request to its answer, of one request in 16 of each operation.");
	_Static_assert(STATS_SAMPLE == 16, "the help says so");
	for (int op = 0; op < STAT_OPS; op++)
		if (totals->ops[op])
			write_histogram(page, stats_op_name((enum stat_op)op),
					totals->latencies[op], totals->latency_ns[op]);
}

/* A counter that every volume, or every GPU, has. */
struct volume_metric {
	const char *name, *type, *help;
	uint64_t (*value)(const struct sample *sample);
	bool gpus_only;
};

#define VALUE(function, expression)                                                                \
	static uint64_t function(const struct sample *sample)                                      \
	{                                                                                          \
		return expression;                                                                 \
	}
VALUE(requests, sample->did.requests)
VALUE(read_bytes, sample->did.read_bytes)
VALUE(ahead_bytes, sample->did.ahead_bytes)
VALUE(write_bytes, sample->did.write_bytes)
VALUE(copy_bytes, sample->did.copy_bytes)
VALUE(total, sample->usage.total)
VALUE(free_bytes, sample->usage.free)
VALUE(available, sample->usage.available)
VALUE(held, sample->usage.held)
VALUE(chunks, sample->pool.chunks)
VALUE(shared, sample->pool.shared_bytes)
VALUE(blocks, sample->pool.block_bytes)
VALUE(bar_mapped, sample->bar.mapped)
VALUE(bar_budget, sample->bar.budget)
VALUE(bar_maps, sample->bar.maps)
VALUE(bar_evictions, sample->bar.evictions)
VALUE(healthy, sample->healthy)
VALUE(resets, sample->resets)
VALUE(lost, sample->lost)
VALUE(leases, sample->leases)
VALUE(leased_bytes, sample->leased_bytes)

static const struct volume_metric volume_metrics[] = {
    {"volume_requests_total", "counter", "Requests on files and directories of a volume.", requests,
     false},
    {"read_bytes_total", "counter", "Bytes read from files.", read_bytes, false},
    {"read_ahead_bytes_total", "counter",
     "Bytes read from files that the GPU had copied ahead of the program.", ahead_bytes, true},
    {"written_bytes_total", "counter", "Bytes written to files.", write_bytes, false},
    {"copied_bytes_total", "counter", "Bytes copied to files by the daemon.", copy_bytes, false},
    {"memory_total_bytes", "gauge",
     "Memory of the device, or the size limit where lower, and the spill.", total, false},
    {"memory_free_bytes", "gauge", "Free memory of the device, for all programs.", free_bytes,
     false},
    {"memory_available_bytes", "gauge", "Memory that files of this mount could still take.",
     available, false},
    {"memory_held_bytes", "gauge", "Memory held by this mount.", held, false},
    {"memory_chunks", "gauge", "Allocations of the driver that are held.", chunks, true},
    {"memory_shared_bytes", "gauge", "Memory held in chunks that small files share.", shared, true},
    {"memory_blocks_bytes", "gauge", "The part of these chunks that files have.", blocks, true},
    {"bar_mapped_bytes", "gauge", "Memory mapped through the BAR.", bar_mapped, true},
    {"bar_budget_bytes", "gauge", "Most memory to map through the BAR at once.", bar_budget, true},
    {"bar_maps_total", "counter", "Mappings made through the BAR.", bar_maps, true},
    {"bar_evictions_total", "counter", "Mappings through the BAR given up for others.",
     bar_evictions, true},
    {"leases", "gauge", "Leases that processes have of files' memory.", leases, false},
    {"leased_bytes", "gauge",
     "Sizes of the leased files as their sharers know them, once for each lease.", leased_bytes,
     false},
    {"healthy", "gauge", "0 while the device is failed.", healthy, true},
    {"resets_total", "counter", "How often the device was reset after a fault.", resets, true},
    {"lost_bytes", "gauge", "Memory of files that lost their bytes in a fault.", lost, true},
};

#define VOLUME_METRICS (sizeof(volume_metrics) / sizeof(volume_metrics[0]))

/* The GPU's labels are the labels of NVIDIA's DCGM exporter, so that queries can join both. */
static void write_volume_labels(FILE *out, const struct volume *volume)
{
	fprintf(out, ",volume=\"%s\"", volume->name);
	if (volume->device) {
		fprintf(out, ",gpu=\"%u\",", volume->device->index);
		write_label(out, "UUID", volume->device->uuid);
	}
}

static void write_per_volume(struct fs *fs, const struct page *page,
			     const struct volume_metric *metric, const struct sample *samples)
{
	write_head(page->out, metric->name, metric->type, metric->help);
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		if (metric->gpus_only && !fs->volumes[i].device)
			continue;
		write_line_begin(page, metric->name);
		write_volume_labels(page->out, &fs->volumes[i]);
		write_line_end(page, metric->value(&samples[i]));
	}
}

/* A counter that a GPU has for each place of its files. */
struct place_metric {
	const char *name, *type, *help;
	uint64_t (*value)(const struct volume *volume, enum memory_place place);
};

static uint64_t place_files(const struct volume *volume, enum memory_place place)
{
	return pool_usage(volume_pool(volume, place)).span_bytes;
}

static uint64_t place_given_up(const struct volume *volume, enum memory_place place)
{
	return pool_usage(volume_pool(volume, place)).held_bytes;
}

static uint64_t place_moved(const struct volume *volume, enum memory_place place)
{
	return atomic_load(&volume->moved[place]);
}

static const struct place_metric place_metrics[] = {
    {"memory_files_bytes", "gauge", "The part of the held memory that files have, by place.",
     place_files},
    {"memory_given_up_bytes", "gauge",
     "The part that files gave up and processes may still have, by place.", place_given_up},
    {"spill_moved_bytes_total", "counter", "Bytes of files that moved to each place.", place_moved},
};

static void write_volume_places(const struct page *page, const struct volume *volume,
				const struct place_metric *metric)
{
	for (enum memory_place place = PLACE_GPU; place < PLACES;
	     place = volume_place_below(volume, place)) {
		write_line_begin(page, metric->name);
		write_volume_labels(page->out, volume);
		fprintf(page->out, ",place=\"%s\"", memory_place_name(place));
		write_line_end(page, metric->value(volume, place));
	}
}

static void write_per_place(struct fs *fs, const struct page *page,
			    const struct place_metric *metric)
{
	write_head(page->out, metric->name, metric->type, metric->help);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			write_volume_places(page, &fs->volumes[i], metric);
}

static void samples_take(struct fs *fs, const struct stats_totals *totals, struct sample *samples)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];
		struct sample *sample = &samples[i];
		struct lease_sums sums = lease_list_sums(fs->leases, i);

		*sample = (struct sample){
		    .did = totals->volumes[i], .leases = sums.leases, .leased_bytes = sums.bytes};
		sample->healthy = !volume_usage(volume, &sample->usage);
		if (!volume->device)
			continue;
		sample->healthy = sample->healthy && !volume->device->failed;
		sample->resets = atomic_load(&volume->device->health.resets);
		sample->lost = health_lost(volume->device);
		sample->pool = pool_usage(volume->pool);
		sample->bar = bar_usage(volume->device);
	}
}

static void write_spool(struct fs *fs, const struct page *page)
{
	struct spool_counters did = spool_counters(fs);

	write_number(page, "spool_saves_total", "counter", "Records written to the spool.",
		     did.saves);
	write_number(page, "spool_saved_bytes_total", "counter",
		     "Bytes of files written to the spool.", did.saved_bytes);
	write_number(page, "spool_errors_total", "counter", "Saves to the spool that failed.",
		     did.errors);
	write_number(page, "spool_fetched_bytes_total", "counter",
		     "Bytes of files brought back from the spool.", did.fetched_bytes);
	write_number(page, "spool_damaged", "gauge",
		     "Files whose copy in the spool was found damaged.", did.damaged);
}

static void write_budget(const struct page *page, const char *name, const char *help, uint64_t host,
			 uint64_t disk)
{
	write_head(page->out, name, "gauge", help);
	for (enum memory_place place = PLACE_HOST; place < PLACES; place++) {
		write_line_begin(page, name);
		fprintf(page->out, ",place=\"%s\"", memory_place_name(place));
		write_line_end(page, place == PLACE_DISK ? disk : host);
	}
}

static void write_spill(struct fs *fs, const struct page *page)
{
	struct tier_counters did = tier_counters(fs);

	write_budget(page, "spill_size_bytes", "What files of full devices may take, by place.",
		     fs->spill_budget.size, fs->disk_budget.size);
	write_budget(page, "spill_held_bytes", "The part of the size that is held.",
		     atomic_load(&fs->spill_budget.held), atomic_load(&fs->disk_budget.held));
	write_number(page, "spill_evictions_total", "counter",
		     "How often files left a full device for others.", did.evictions);
	write_number(page, "spill_evicted_bytes_total", "counter",
		     "Bytes that left a full device for others.", did.evicted_bytes);
	write_number(page, "spill_returned_bytes_total", "counter",
		     "Bytes of files that came back because they were used.", did.returned_bytes);
}

int control_metrics(struct fs *fs, uid_t uid, FILE *out)
{
	struct sample samples[BACKEND_DEVICES_MAX + 1];
	struct stats_totals totals;
	struct page page = {.out = out};

	(void)uid;
	stats_sum(&fs->stats, &totals);
	utf8_escape(fs->options.mountpoint, "\\", page.mount, sizeof(page.mount));
	samples_take(fs, &totals, samples);
	write_build_info(fs, &page);
	write_transport_info(fs, &page);
	write_number(&page, "start_time_seconds", "gauge",
		     "When the daemon started, in seconds since the epoch.",
		     (uint64_t)fs->started.tv_sec);
	write_number(&page, "inodes", "gauge", "Files, directories and other inodes.",
		     inode_table_count(fs->inodes));
	write_number(&page, "metadata_bytes", "gauge",
		     "The daemon's own memory for names and attributes.",
		     (uint64_t)atomic_load(&fs->metadata_bytes));
	write_per_operation(&page, "requests_total", "Requests served, by operation.", totals.ops);
	write_per_operation(&page, "request_errors_total", "Requests answered with an error.",
			    totals.errors);
	write_durations(&page, &totals);
	write_spool(fs, &page);
	write_spill(fs, &page);
	write_number(&page, "compacted_bytes_total", "counter",
		     "Bytes of small files that moved together to free chunks.",
		     tier_compacted_bytes(fs));
	for (size_t i = 0; i < VOLUME_METRICS; i++)
		write_per_volume(fs, &page, &volume_metrics[i], samples);
	for (size_t i = 0; i < sizeof(place_metrics) / sizeof(place_metrics[0]); i++)
		write_per_place(fs, &page, &place_metrics[i]);
	return 0;
}
