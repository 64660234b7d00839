/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon that is as far as one can be while another one serves, so that the end of that one costs
 * its users no start of a process and of the GPUs' driver. */
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"

/* After one that ended by itself, and the longest wait after many. */
#define DELAY_MS     100
#define DELAY_MAX_MS 60000

/* The one that serves comes first, and an upgrade. */
static bool is_wanted(const struct keeper *keeper)
{
	return keeper->options->standby == STANDBY_ON && keeper->serving.pid &&
	       keeper->serving.ready && !keeper->next.pid && !keeper->standby.pid &&
	       keeper->before < 0 && !keeper->ending && !keeper->done;
}

int64_t standby_due(const struct keeper *keeper)
{
	return is_wanted(keeper) ? keeper->standby_at : KEEPER_NEVER;
}

static void put_off(struct keeper *keeper)
{
	unsigned shift = keeper->standby_failures < 10 ? keeper->standby_failures : 10;
	int64_t wait = (int64_t)DELAY_MS << shift;

	keeper->standby_failures++;
	keeper->standby_at = clock_ms() + (wait < DELAY_MAX_MS ? wait : DELAY_MAX_MS);
}

void standby_start(struct keeper *keeper)
{
	if (standby_due(keeper) > clock_ms())
		return;
	int error = child_start(keeper, &keeper->standby, keeper->program);

	if (!error)
		return;
	log_error("%s: cannot start a daemon to stand by: %s", keeper->options->mountpoint,
		  strerror(-error));
	put_off(keeper);
}

/* Also one that is not ready yet is nearer to it than a new one. */
bool standby_serves(struct keeper *keeper)
{
	if (!keeper->standby.pid || keeper->standby.ended)
		return false;
	keeper->serving = keeper->standby;
	keeper->serving.program = keeper->program;
	keeper->serving.since = clock_ms();
	keeper->standby = (struct child){0};
	keeper->standby_failures = 0;
	keeper->standby_at = 0;
	if (keeper->serving.prepared)
		child_go(keeper, &keeper->serving);
	return true;
}

void standby_died(struct keeper *keeper)
{
	bool ended = keeper->standby.ended;
	pid_t pid = keeper->standby.pid;

	while (keeper_hear(keeper, &keeper->standby))
		;
	child_reap(&keeper->standby);
	if (ended)
		return;
	put_off(keeper);
	log_warn("%s: daemon %d, which stood by, ended: another one is started",
		 keeper->options->mountpoint, pid);
}

void standby_end(struct keeper *keeper)
{
	keeper->standby.ended = true;
	child_kill(&keeper->standby);
}
