/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Daemons that get ready while another daemon serves: a standby daemon, a daemon for a GPU that
 * stopped working, and a daemon of a new program (an upgrade). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/upgrade_client.h"

/* The first and the longest wait after standby daemons that ended on their own. */
#define STANDBY_DELAY_MS     100
#define STANDBY_DELAY_MAX_MS 60000

/* A start of the serving daemon, or an upgrade, comes first. */
static bool standby_wanted(const struct keeper *keeper)
{
	return keeper->options->standby == STANDBY_ON && keeper->serving.pid &&
	       keeper->serving.ready && !keeper->next.pid && !keeper->standby.pid &&
	       keeper->old_program < 0 && !keeper->ending && !keeper->is_done;
}

int64_t standby_due(const struct keeper *keeper)
{
	return standby_wanted(keeper) ? keeper->standby_at : KEEPER_NEVER;
}

static void standby_put_off(struct keeper *keeper)
{
	unsigned shift = keeper->standby_failures < 10 ? keeper->standby_failures : 10;
	int64_t wait = (int64_t)STANDBY_DELAY_MS << shift;

	keeper->standby_failures++;
	keeper->standby_at =
	    clock_ms() + (wait < STANDBY_DELAY_MAX_MS ? wait : STANDBY_DELAY_MAX_MS);
}

void standby_start(struct keeper *keeper)
{
	if (standby_due(keeper) > clock_ms())
		return;
	int error = child_start(keeper, &keeper->standby, keeper->program);

	if (!error)
		return;
	log_error("%s: cannot start a standby daemon: %s", keeper->options->mountpoint,
		  strerror(-error));
	standby_put_off(keeper);
}

/* A standby daemon is further than a new process, even if it is not prepared yet. */
bool standby_serves(struct keeper *keeper)
{
	if (!keeper->standby.pid || keeper->standby.ended)
		return false;
	keeper->serving = keeper->standby;
	keeper->serving.program = keeper->program;
	keeper->serving.start_ms = clock_ms();
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

	while (keeper_receive(keeper, &keeper->standby))
		;
	child_reap(&keeper->standby);
	if (ended)
		return;
	standby_put_off(keeper);
	log_warn("%s: standby daemon %d ended: another daemon is started",
		 keeper->options->mountpoint, pid);
}

void standby_end(struct keeper *keeper)
{
	keeper->standby.ended = true;
	child_kill(&keeper->standby);
}

/* A GPU that stops working more often than REPLACEMENTS_MAX times in this period has a fault that
 * new processes do not cure. */
#define REPLACE_PERIOD_MS (60 * 60 * 1000LL)

/* The slot of the oldest replacement; NULL: REPLACEMENTS_MAX within the last hour. */
static int64_t *replacement_slot(struct keeper *keeper)
{
	int64_t *oldest = &keeper->replacements[0];

	for (unsigned i = 1; i < REPLACEMENTS_MAX; i++)
		if (keeper->replacements[i] < *oldest)
			oldest = &keeper->replacements[i];
	return !*oldest || clock_ms() - *oldest >= REPLACE_PERIOD_MS ? oldest : NULL;
}

/* As in an upgrade, the serving daemon goes on until the new daemon is ready, or for good if the
 * new daemon never is. */
static int replacement_start(struct keeper *keeper, const char *uuid)
{
	int program = fcntl(keeper->program, F_DUPFD_CLOEXEC, 3);

	if (program < 0)
		return -errno;
	keeper->wanted_gpu = uuid;
	int error = child_start(keeper, &keeper->next, program);

	keeper->wanted_gpu = NULL;
	if (error)
		close(program);
	return error;
}

void keeper_replace(struct keeper *keeper, const char *uuid)
{
	const char *mountpoint = keeper->options->mountpoint;
	int64_t *slot = replacement_slot(keeper);

	/* A daemon that is about to take over for another reason is a new process, too. */
	if (keeper->next.pid || keeper->old_program >= 0 || keeper->ending)
		return;
	if (!slot) {
		log_error("%s: %s stopped working in %d daemons within an hour: no other daemon is "
			  "started",
			  mountpoint, uuid, REPLACEMENTS_MAX);
		return;
	}
	*slot = clock_ms();
	int error = replacement_start(keeper, uuid);

	if (error)
		log_error("%s: cannot start a daemon for %s: %s", mountpoint, uuid,
			  strerror(-error));
	else
		log_warn(
		    "%s: %s does not work in daemon %d any more: daemon %d takes over if the GPU "
		    "works there",
		    mountpoint, uuid, keeper->serving.pid, keeper->next.pid);
}

/* How long the keeper waits for the message of a connected process. */
#define UPGRADE_ASK_MS 1000

/* The address is named after the mount's device number, known once a daemon has mounted. With
 * recovery=remount every daemon makes another mount. */
void upgrade_follow_mount(struct keeper *keeper)
{
	dev_t device = keeper_mount_device(keeper);
	char reason[RUNTIME_REASON_MAX];
	int error;

	if (!device || device == keeper->device)
		return;
	runtime_socket_close(&keeper->address);
	keeper->device = device;
	error = runtime_socket_open(&keeper->address, UPGRADE_KIND, device, reason);
	if (error)
		log_warn("%s: no upgrade will be possible: %s", keeper->options->mountpoint,
			 reason);
}

/* The program will run as the keeper's user, so only this user and root may choose the program. */
static bool upgrade_permitted(int connection)
{
	struct ucred peer;

	return runtime_peer(connection, &peer) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static void upgrade_begin(struct keeper *keeper, int connection, int program)
{
	int error;

	if (keeper->next.pid || keeper->old_program >= 0 || keeper->ending ||
	    (keeper->serving.pid && !keeper->serving.ready)) {
		upgrade_answer(connection, EBUSY, "another daemon is being started or ended");
		close(program);
		return;
	}
	error = child_start(keeper, &keeper->next, program);
	if (error) {
		upgrade_answer(connection, -error, strerror(-error));
		close(program);
		return;
	}
	keeper->failures = keeper->killed = keeper->retries = 0;
	keeper->upgrade_fd = connection;
	log_info("%s: daemon %d gets ready to take over", keeper->options->mountpoint,
		 keeper->next.pid);
}

void upgrade_accept(struct keeper *keeper)
{
	struct timeval patience = {.tv_sec = UPGRADE_ASK_MS / 1000};
	struct ipc_message message;
	int program = -1;
	int connection = accept4(keeper->address.fd, NULL, NULL, SOCK_CLOEXEC);

	if (connection < 0)
		return;
	if (!upgrade_permitted(connection)) {
		upgrade_answer(connection, EPERM,
			       "only root and the user who mounted it may do that");
		return;
	}
	setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (ipc_receive(connection, &message, &program) || message.type != IPC_UPGRADE ||
	    program < 0) {
		if (program >= 0)
			close(program);
		close(connection);
		return;
	}
	upgrade_begin(keeper, connection, program);
}
