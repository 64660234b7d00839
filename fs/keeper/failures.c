/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* When the next daemon is started after one that died, and what becomes of requests where none is
 * likely to serve. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"

/* A daemon that served for so long did not die of its start, or of what it was asked first. */
#define SETTLED_MS 60000
/* Crashes in a row after which requests are refused, and the longest wait between two. */
#define FAILURES_MAX 8
#define DELAY_MS     100
#define DELAY_MAX_MS 5000
/* Then another daemon is tried after this, and twice as long each time. */
#define RETRY_MS     60000
#define RETRY_MAX_MS (60 * RETRY_MS)
/* Between daemons that somebody else kills before they serve. */
#define KILLED_DELAY_MS 5
#define KILLED_MAX_MS	50

/* Whether somebody waits to be told that the mount is there. */
static bool is_awaited(const struct keeper *keeper)
{
	return keeper->launcher && keeper->launcher->ready_fd >= 0;
}

/* Twice as long each time; not at all for the first. */
static int64_t delay(unsigned times, int64_t first, int64_t most)
{
	int64_t wait = first;

	if (times < 2)
		return 0;
	while (--times > 1 && wait < most)
		wait *= 2;
	return wait < most ? wait : most;
}

static const char *what_is_kept(const struct keeper *keeper)
{
	return keeper->options->recovery == RECOVERY_TRANSPARENT
		   ? "requests are answered with EIO until one serves. The mount and its files' "
		     "memory are kept"
		   : "there is no mount until one serves. Its files' memory is kept";
}

/* Not for ever: a request that no daemon survives has been refused by then. */
static void give_up(struct keeper *keeper)
{
	const char *mountpoint = keeper->options->mountpoint;

	if (is_awaited(keeper)) {
		log_error("%s: %u daemons crashed one after the other", mountpoint,
			  keeper->failures);
		keeper_end_alone(keeper, 1);
		return;
	}
	/* The first retry is not the first failure, which has no wait. */
	int64_t wait = delay(++keeper->retries + 1, RETRY_MS, RETRY_MAX_MS);

	keeper->start_at = clock_ms() + wait;
	log_error("%s: %u daemons crashed one after the other: %s. Another one is tried in %lld s; "
		  "'gpumemfs --upgrade %s' goes on at once, with that program; 'kill %d' ends the "
		  "mount, and its files are lost",
		  mountpoint, keeper->failures, what_is_kept(keeper), (long long)wait / 1000,
		  mountpoint, getpid());
	upgrade_tell(keeper, ECANCELED, "the daemon crashes again and again");
	refuse_start(keeper);
}

/* What is killed from outside says nothing about the program. */
void failure_schedule(struct keeper *keeper, const struct child *was, int status)
{
	int64_t now = clock_ms(), wait;

	if (was->ready && now - was->since >= SETTLED_MS)
		keeper->failures = keeper->killed = keeper->retries = 0;
	bool killed =
	    status == CHILD_UNKNOWN || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

	if (killed)
		wait = was->ready ? 0 : delay(++keeper->killed, KILLED_DELAY_MS, KILLED_MAX_MS);
	else
		wait = delay(++keeper->failures, DELAY_MS, DELAY_MAX_MS);
	keeper->start_at = now + wait;
	if (!killed && keeper->failures >= FAILURES_MAX)
		give_up(keeper);
}

void failure_put_off(struct keeper *keeper)
{
	keeper->start_at = clock_ms() + DELAY_MAX_MS;
}
