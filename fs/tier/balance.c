/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A thread for each device that looks at the device once a second: files leave while other programs
 * need the device's memory (keep_free), files that are used while they are away come back when the
 * device has room, and chunks of the spill are made before they are needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/stock.h"
#include "common/clock.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/export.h"
#include "fs/file/file.h"
#include "fs/tier/internal.h"
#include "fs/tier/tier.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode_table.h"

#define PERIOD_MS 1000

/* A file comes back only if this part of the device stays free, so that the next new file does not
 * drive out another. */
#define SPARE_PART 16

/* Chunks of the spill are made ahead when this device is three quarters full: a 16th of the device,
 * but at most STOCK_MAX, for at most STOCK_MS in a period. */
#define STOCK_PART 16
#define STOCK_MAX  (8ULL << 30)
#define STOCK_MS   300

/* The system needs its memory for other things if it could give out less than this part. */
#define SHORT_PART 16

static bool system_is_short(void)
{
	static const char *const names[] = {"MemTotal:", "MemAvailable:"};
	unsigned long long kib[2] = {0};
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		for (unsigned i = 0; i < 2; i++)
			if (strncmp(line, names[i], strlen(names[i])) == 0)
				kib[i] = strtoull(line + strlen(names[i]), NULL, 10);
	if (file)
		fclose(file);
	return kib[1] < kib[0] / SHORT_PART;
}

static void stock_balance(const struct volume *volume)
{
	struct stock *stock = volume->spill ? pool_stock(volume->spill) : NULL;
	uint64_t total = volume->device->total, bytes_wanted = total / STOCK_PART;
	bool full = pool_usage(volume->pool).chunk_bytes >= total / 4 * 3;
	int64_t end = clock_ms() + STOCK_MS;

	if (!stock || (!full && !stock_bytes(stock)))
		return;
	if (system_is_short()) {
		stock_drop(stock);
		return;
	}
	bytes_wanted = bytes_wanted < STOCK_MAX ? bytes_wanted : STOCK_MAX;
	while (full && stock_make(stock, bytes_wanted) && clock_ms() < end)
		;
}

static uint64_t keep_free(const struct fs *fs, const struct volume *volume)
{
	return amount_bytes(&fs->options.keep_free, volume->device->total, 0);
}

static uint64_t file_bytes_away(struct file *file)
{
	return file_bytes_in_places(file, ~(1U << PLACE_GPU));
}

/* The file to come back first: the one that was used last, if there is room for all of it. */
static struct inode *candidate_find(struct fs *fs, const struct volume *volume, uint64_t room)
{
	struct inode *inode, *best = NULL;
	uint32_t slot = 0;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		struct file *file = S_ISREG(atomic_load(&inode->mode)) ? inode->file : NULL;
		struct attr_values attrs = atomic_load(&inode->attrs);

		if (file && file_volume(file) == volume && file_away(file) == FILE_AWAY_USED &&
		    attrs.resident == RESIDENT_GPU && !file_leases(file) &&
		    (!best || file_used(file) > file_used(best->file)) &&
		    file_bytes_away(file) <= room) {
			struct inode *old_best = best;

			best = inode;
			inode = old_best;
		}
		if (inode)
			inode_put(fs, inode, 1);
	}
	return best;
}

/* Whether a file came back. */
static bool file_return(struct fs *fs, struct volume *volume, uint64_t room)
{
	struct inode *inode = candidate_find(fs, volume, room);
	struct copier *copier = worker_copier(fs);
	struct observed_work work;
	struct inode_call call;
	uint64_t moved = 0;

	if (!inode)
		return false;
	if (copier) {
		observe_work_begin(fs, &work);
		inode_call_init(&call, fs, inode, copier);
		call.unasked = true;
		file_place(inode->file, &call.call, PLACE_GPU, UINT64_MAX, &moved);
		atomic_fetch_add(&tiers_of(fs)->returned_bytes, moved);
		observe_work_end(fs, &work, "return", inode);
	}
	inode_put(fs, inode, 1);
	return moved;
}

static void volume_balance(struct fs *fs, struct volume *volume)
{
	uint64_t low = keep_free(fs, volume), spare = volume->device->total / SPARE_PART;
	struct device_memory memory;
	uint64_t available;

	/* Reading the free memory may need the GPU's context, so only with a reason. */
	bool used_away = atomic_exchange(&volume->used_away, false);

	if (!used_away && (!low || !pool_usage(volume->pool).span_bytes))
		return;
	if (device_memory(volume->device, &memory) < 0 ||
	    pool_available(volume->pool, &available) < 0)
		return;
	if (memory.free < low) {
		tier_evict(fs, volume, low - memory.free + tier_room_part(volume));
		return;
	}
	if (!used_away)
		return;
	uint64_t room = memory.free - low < available ? memory.free - low : available;

	/* Another file may be waiting too. */
	if (room > spare)
		atomic_store(&volume->used_away, file_return(fs, volume, room - spare));
}

static void balance_work(struct background *background)
{
	struct balancer *balancer = background->context;

	while (background_wait(background, PERIOD_MS)) {
		volume_balance(balancer->fs, balancer->volume);
		stock_balance(balancer->volume);
	}
	worker_end();
}

static int balancer_open(struct fs *fs, struct volume *volume)
{
	struct balancer *balancer = &tier_of(tiers_of(fs), volume, PLACE_GPU)->balancer;

	balancer->fs = fs;
	balancer->volume = volume;
	return background_start(&balancer->background, balance_work, balancer);
}

int tier_balance_open(struct fs *fs)
{
	int rc = 0;

	if (!tiers_of(fs))
		return 0;
	exchange_restored(fs);
	for (unsigned i = 0; i < fs->n_volumes && rc == 0; i++)
		if (volume_is_tiered(&fs->volumes[i]))
			rc = balancer_open(fs, &fs->volumes[i]);
	if (rc < 0)
		tier_balance_close(fs);
	return rc;
}

void tier_balance_close(struct fs *fs)
{
	for (unsigned i = 0; tiers_of(fs) && i < tiers_of(fs)->n_gpus; i++)
		background_stop(&tiers_of(fs)->gpus[i].balancer.background);
}
