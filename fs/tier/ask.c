/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* When all that is left on a device is leased, processes are told that memory is wanted. No request
 * waits for their answer: memory that they give back serves the next requests. The processes of a
 * volume are told once in a while, because a full volume may have thousands of requests a second.
 */
#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/fs.h"
#include "fs/tier/internal.h"
#include "fs/tier/tier.h"
#include "fs/volume/volume.h"

#define PAUSE_MS 500

void tier_ask_by(struct fs *fs,
		 void (*ask)(void *owner, const struct volume *volume, uint64_t bytes), void *owner)
{
	struct tiers *tiers = tiers_of(fs);

	if (!tiers)
		return;
	scoped_lock(&tiers->ask_lock);
	tiers->ask = ask;
	tiers->owner = owner;
}

void tier_ask(struct tiers *tiers, const struct volume *volume, uint64_t bytes)
{
	int64_t now = clock_ms(), *next = &tiers->next_ask[volume->index];

	scoped_lock(&tiers->ask_lock);
	if (!tiers->ask || now < *next)
		return;
	*next = now + PAUSE_MS;
	tiers->ask(tiers->owner, volume, bytes);
}
