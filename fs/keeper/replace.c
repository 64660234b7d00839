/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"

/* A GPU that breaks more often is no matter of processes. */
#define PERIOD_MS (60 * 60 * 1000LL)

/* The oldest renewal, if it was long ago. */
static int64_t *may_renew(struct keeper *keeper)
{
	int64_t *oldest = &keeper->replacements[0];

	for (unsigned i = 1; i < REPLACEMENTS_MAX; i++)
		if (keeper->replacements[i] < *oldest)
			oldest = &keeper->replacements[i];
	return !*oldest || clock_ms() - *oldest >= PERIOD_MS ? oldest : NULL;
}

/* As with an upgrade: the one that serves goes on until the other is ready, and where it never is.
 */
static int start(struct keeper *keeper, const char *uuid)
{
	int program = fcntl(keeper->program, F_DUPFD_CLOEXEC, 3);

	if (program < 0)
		return -errno;
	keeper->wanted = uuid;
	int error = child_start(keeper, &keeper->next, program);

	keeper->wanted = NULL;
	if (error)
		close(program);
	return error;
}

void keeper_replace(struct keeper *keeper, const char *uuid)
{
	const char *mountpoint = keeper->options->mountpoint;
	int64_t *renewal = may_renew(keeper);

	/* Whoever takes over does it in a process of its own. */
	if (keeper->next.pid || keeper->before >= 0 || keeper->ending)
		return;
	if (!renewal) {
		log_error("%s: %s broke for %d daemons within an hour: no other is started for it",
			  mountpoint, uuid, REPLACEMENTS_MAX);
		return;
	}
	*renewal = clock_ms();
	int error = start(keeper, uuid);

	if (error)
		log_error("%s: cannot start a daemon for %s: %s", mountpoint, uuid,
			  strerror(-error));
	else
		log_warn("%s: %s does not work for daemon %d any more: daemon %d takes over if it "
			 "works there",
			 mountpoint, uuid, keeper->serving.pid, keeper->next.pid);
}
