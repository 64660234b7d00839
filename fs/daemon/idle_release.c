/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/daemon/idle_release.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "backend/pool.h"
#include "common/background.h"
#include "common/log.h"
#include "common/number.h"
#include "fs/ahead/ahead.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"
#include "fs/tier/tier.h"
#include "fs/volume/volume.h"

/* To create a context and a Vulkan device again takes up to 1.2 s, so the 560 MiB are given to
 * other programs only after some time without files. */
#define IDLE_MS 30000

/* A smaller gain is not worth the walk through the heap, during which threads that allocate wait.
 * The second is for the rest, when no names come or go any more. */
#define TRIM_BYTES	 (16LL << 20)
#define TRIM_BYTES_QUIET (1LL << 20)

/* How often within that time each GPU is checked. */
#define CHECKS 4

struct idle_release {
	struct background background;
	struct fs *fs;
	int check_ms; /* between two checks; set before the thread starts */
};

static FS_STATE(struct idle_release, idle_release_of, FS_IDLE_RELEASE)

    /* Not called by the thread: libfuse sets a variable of the environment when it mounts for a
     * user, and a thread that reads the environment just then crashes. */
    static uint64_t idle_release_ms(void)
{
	const char *text = secure_getenv("GPUMEMFS_IDLE_MS");
	uint64_t ms;

	return text && parse_u64(text, CHECKS, IDLE_MS, &ms) == 0 ? ms : IDLE_MS;
}

/* Releases the GPU after CHECKS checks without a file or an allocation; unused counts these checks.
 * Whether the GPU is unused. */
static bool volume_release_if_idle(struct volume *volume, uint64_t *allocations, unsigned *unused)
{
	struct pool *spill = volume->spill;
	uint64_t now = pool_allocations(volume->pool) + (spill ? pool_allocations(spill) : 0);

	if (*allocations != now || !pool_is_unused(volume->pool) ||
	    (spill && !pool_is_unused(spill)))
		*unused = 0;
	else if (*unused < CHECKS)
		++*unused;
	*allocations = now;
	if (*unused < CHECKS)
		return false;
	pool_trim(volume->pool);
	if (spill)
		pool_trim(spill);
	device_idle_release(volume->device); /* if the device is busy, the next check tries again */
	return true;
}

/* Returns freed memory, which the allocator keeps for later allocations: half a GB after rm -r of a
 * million names. Of the memory that names and inodes take (LEDGER_METADATA), peak is the most since
 * the last trim, and last what the last check found. */
static void heap_trim_if_shrunk(struct fs *fs, int64_t *peak, int64_t *last)
{
	int64_t now = atomic_load(&ledger_of(fs)->metadata_bytes);
	bool quiet = now == *last;

	*last = now;
	if (now > *peak)
		*peak = now;
	if (*peak - now < (quiet ? TRIM_BYTES_QUIET : TRIM_BYTES))
		return;
	malloc_trim(0);
	*peak = now;
}

static void idle_release_work(struct background *background)
{
	const struct idle_release *release = background->context;
	struct fs *fs = release->fs;
	uint64_t allocations[BACKEND_DEVICES_MAX + 1] = {0};
	unsigned unused[BACKEND_DEVICES_MAX + 1] = {0};
	int64_t peak = 0, last = 0;

	while (background_wait(background, release->check_ms)) {
		bool idle = true;

		heap_trim_if_shrunk(fs, &peak, &last);
		tier_compact_check(fs);
		for (unsigned i = 0; i < fs->n_volumes; i++)
			if (fs->volumes[i].pool)
				idle &= volume_release_if_idle(&fs->volumes[i], &allocations[i],
							       &unused[i]);
		if (idle)
			ahead_trim(ahead_of(fs));
	}
}

int idle_release_open(struct fs *fs)
{
	struct idle_release *release = calloc(1, sizeof(*release));

	if (!release)
		return -ENOMEM;
	release->fs = fs;
	release->check_ms = (int)(idle_release_ms() / CHECKS);
	fs->states[FS_IDLE_RELEASE] = release;
	if (background_start(&release->background, idle_release_work, release))
		log_warn("cannot start the thread that releases idle GPUs: their contexts stay");
	return 0;
}

void idle_release_close(struct fs *fs)
{
	struct idle_release *release = idle_release_of(fs);

	background_stop(&release->background);
	free(release);
}
