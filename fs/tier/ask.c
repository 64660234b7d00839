/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* When all that is left on a device is leased, processes are asked to give memory back. A request
 * waits a moment for that. So that processes which never answer cost little, one request of a
 * volume waits at a time, and each wait in vain doubles the pause before the next. */
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/fs.h"
#include "fs/file/volume.h"
#include "fs/tier/internal.h"
#include "fs/tier/tier.h"

#define ANSWER_MS    200
#define POLL_US	     2000
#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 64000

void tier_ask_by(struct fs *fs,
		 bool (*ask)(void *owner, const struct volume *volume, uint64_t bytes), void *owner)
{
	struct tiers *tiers = fs->tiers;

	if (!tiers)
		return;
	scoped_lock(&tiers->ask_lock);
	tiers->ask = ask;
	tiers->owner = owner;
}

void tier_ask(struct tiers *tiers, const struct volume *volume, uint64_t bytes)
{
	scoped_lock(&tiers->ask_lock);
	if (tiers->ask)
		tiers->ask(tiers->owner, volume, bytes);
}

static bool ask_begin(struct tiers *tiers, const struct volume *volume, uint64_t bytes)
{
	struct tier_pause *pause = &tiers->pauses[volume->index];

	scoped_lock(&tiers->ask_lock);
	if (!tiers->ask || clock_ms() < pause->until || !tiers->ask(tiers->owner, volume, bytes))
		return false;
	pause->until = INT64_MAX;
	return true;
}

static void ask_end(struct tiers *tiers, const struct volume *volume, bool made)
{
	struct tier_pause *pause = &tiers->pauses[volume->index];

	scoped_lock(&tiers->ask_lock);
	pause->ms = made ? 0 : pause->ms * 2;
	if (!made && pause->ms < PAUSE_MIN_MS)
		pause->ms = PAUSE_MIN_MS;
	if (pause->ms > PAUSE_MAX_MS)
		pause->ms = PAUSE_MAX_MS;
	pause->until = clock_ms() + pause->ms;
}

bool tier_ask_and_wait(struct tiers *tiers, const struct volume *volume, uint64_t bytes,
		       bool (*made)(void *context), void *context)
{
	uint64_t seen = atomic_load(&volume->unleased);
	bool done = false;

	if (!ask_begin(tiers, volume, bytes))
		return false;
	for (int64_t end = clock_ms() + ANSWER_MS; !done && clock_ms() < end;) {
		/* Also after a file lost its leases: made may scan all files, and a process can end
		 * leases all the time. */
		usleep(POLL_US);
		uint64_t now = atomic_load(&volume->unleased);

		done = now != seen && made(context);
		seen = now;
	}
	ask_end(tiers, volume, done);
	return done;
}
