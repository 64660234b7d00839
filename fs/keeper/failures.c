/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* When the next daemon is started after a daemon's end, and when the keeper gives up waiting and
 * answers requests with EIO. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"

/* A daemon that served for this long did not die of its start, nor of the first requests. */
#define SETTLED_MS 60000
/* Crashes in a row after which requests are refused; and the first and the longest wait between two
 * daemons. */
#define FAILURES_MAX 8
#define DELAY_MS     100
#define DELAY_MAX_MS 5000
/* The first and the longest wait for another attempt after FAILURES_MAX crashes. */
#define RETRY_MS     60000
#define RETRY_MAX_MS (60 * RETRY_MS)
/* The first and the longest wait between daemons that another process kills before they serve. */
#define KILLED_DELAY_MS 5
#define KILLED_MAX_MS	50

/* Whether the launching process still waits to hear that the mount exists. */
static bool launcher_waits(const struct keeper *keeper)
{
	return keeper->launcher && keeper->launcher->ready_fd >= 0;
}

/* The wait after this many failures: 0 after the first, then first, and twice as long each time up
 * to max. */
static int64_t failure_delay(unsigned times, int64_t first, int64_t max)
{
	int64_t wait = first;

	if (times < 2)
		return 0;
	while (--times > 1 && wait < max)
		wait *= 2;
	return wait < max ? wait : max;
}

static const char *requests_meanwhile(const struct keeper *keeper)
{
	return keeper->options->recovery == RECOVERY_TRANSPARENT
		   ? "requests are answered with EIO until a daemon serves. The mount and its "
		     "files' "
		     "memory are kept"
		   : "there is no mount until a daemon serves. Its files' memory is kept";
}

/* Retries go on: a request that no daemon survives has been refused by then. */
static void failure_refuse_requests(struct keeper *keeper)
{
	const char *mountpoint = keeper->options->mountpoint;

	if (launcher_waits(keeper)) {
		log_error("%s: %u daemons crashed one after the other", mountpoint,
			  keeper->failures);
		keeper_end_alone(keeper, 1);
		return;
	}
	/* Plus 1, so that the first retry waits as well. */
	int64_t wait = failure_delay(++keeper->retries + 1, RETRY_MS, RETRY_MAX_MS);

	keeper->start_at = clock_ms() + wait;
	log_error(
	    "%s: %u daemons crashed one after the other: %s. Another daemon is started in %lld s; "
	    "'gpumemfs --upgrade %s' goes on at once, with that program; 'kill %d' ends the "
	    "mount, and its files are lost",
	    mountpoint, keeper->failures, requests_meanwhile(keeper), (long long)wait / 1000,
	    mountpoint, getpid());
	upgrade_tell(keeper, ECANCELED, "the daemon keeps crashing");
	refuse_start(keeper);
}

/* SIGKILL comes from outside and is no fault of the program: killed and crashed daemons are counted
 * apart. */
void failure_schedule(struct keeper *keeper, const struct child *child, int status)
{
	int64_t now = clock_ms(), wait;

	if (child->ready && now - child->start_ms >= SETTLED_MS)
		keeper->failures = keeper->killed = keeper->retries = 0;
	bool killed =
	    status == CHILD_UNKNOWN || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

	if (killed)
		wait = child->ready
			   ? 0
			   : failure_delay(++keeper->killed, KILLED_DELAY_MS, KILLED_MAX_MS);
	else
		wait = failure_delay(++keeper->failures, DELAY_MS, DELAY_MAX_MS);
	keeper->start_at = now + wait;
	if (!killed && keeper->failures >= FAILURES_MAX)
		failure_refuse_requests(keeper);
}

void failure_put_off(struct keeper *keeper)
{
	keeper->start_at = clock_ms() + DELAY_MAX_MS;
}
