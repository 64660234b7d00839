/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Daemons that get ready while another daemon serves: one that stands by, one for a GPU that
 * stopped working, and one of a new program (an upgrade). */
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

/* After one that ended by itself, and the longest wait after many. */
#define STANDBY_DELAY_MS     100
#define STANDBY_DELAY_MAX_MS 60000

/* The one that serves comes first, and an upgrade. */
static bool standby_wanted(const struct keeper *keeper)
{
	return keeper->options->standby == STANDBY_ON && keeper->serving.pid &&
	       keeper->serving.ready && !keeper->next.pid && !keeper->standby.pid &&
	       keeper->before < 0 && !keeper->ending && !keeper->done;
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
	log_error("%s: cannot start a daemon to stand by: %s", keeper->options->mountpoint,
		  strerror(-error));
	standby_put_off(keeper);
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
	standby_put_off(keeper);
	log_warn("%s: daemon %d, which stood by, ended: another one is started",
		 keeper->options->mountpoint, pid);
}

void standby_end(struct keeper *keeper)
{
	keeper->standby.ended = true;
	child_kill(&keeper->standby);
}

/* A GPU that breaks more often is no matter of processes. */
#define REPLACE_PERIOD_MS (60 * 60 * 1000LL)

/* The oldest slot, if it was long ago. */
static int64_t *replacement_slot(struct keeper *keeper)
{
	int64_t *oldest = &keeper->replacements[0];

	for (unsigned i = 1; i < REPLACEMENTS_MAX; i++)
		if (keeper->replacements[i] < *oldest)
			oldest = &keeper->replacements[i];
	return !*oldest || clock_ms() - *oldest >= REPLACE_PERIOD_MS ? oldest : NULL;
}

/* As with an upgrade: the one that serves goes on until the other is ready, and where it never is.
 */
static int replacement_start(struct keeper *keeper, const char *uuid)
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
	int64_t *slot = replacement_slot(keeper);

	/* Whoever takes over does it in a process of its own. */
	if (keeper->next.pid || keeper->before >= 0 || keeper->ending)
		return;
	if (!slot) {
		log_error("%s: %s broke for %d daemons within an hour: no other is started for it",
			  mountpoint, uuid, REPLACEMENTS_MAX);
		return;
	}
	*slot = clock_ms();
	int error = replacement_start(keeper, uuid);

	if (error)
		log_error("%s: cannot start a daemon for %s: %s", mountpoint, uuid,
			  strerror(-error));
	else
		log_warn("%s: %s does not work for daemon %d any more: daemon %d takes over if it "
			 "works there",
			 mountpoint, uuid, keeper->serving.pid, keeper->next.pid);
}

/* So long one who connects may take to say what he wants: the keeper waits. */
#define UPGRADE_ASK_MS 1000

/* A mount's device number names it, and is known once there is a mount; with recovery=remount each
 * daemon makes another one. */
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
		log_warn("%s: no upgrade will be possible: %s%s", keeper->options->mountpoint,
			 reason, error == -EPERM ? ": remove it, and mount again" : "");
}

/* Who may choose the program that runs as this user: that user, and root. */
static bool upgrade_permitted(int asking)
{
	struct ucred peer;

	return runtime_peer(asking, &peer) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static void upgrade_answer(int asking, int error, const char *text)
{
	struct ipc_message message = ipc_message(IPC_LOGGED, 0);

	message.value = (uint64_t)error;
	snprintf(message.text, sizeof(message.text), "%s", text);
	ipc_offer(asking, &message, -1);
	close(asking);
}

void upgrade_tell(struct keeper *keeper, int error, const char *text)
{
	if (keeper->asking >= 0)
		upgrade_answer(keeper->asking, error, text);
	keeper->asking = -1;
}

static void upgrade_begin(struct keeper *keeper, int asking, int program)
{
	int error;

	if (keeper->next.pid || keeper->before >= 0 || keeper->ending ||
	    (keeper->serving.pid && !keeper->serving.ready)) {
		upgrade_answer(asking, EBUSY, "another daemon is being started or ended");
		close(program);
		return;
	}
	error = child_start(keeper, &keeper->next, program);
	if (error) {
		upgrade_answer(asking, -error, strerror(-error));
		close(program);
		return;
	}
	keeper->failures = keeper->killed = keeper->retries = 0;
	keeper->asking = asking;
	log_info("%s: daemon %d gets ready to take over", keeper->options->mountpoint,
		 keeper->next.pid);
}

void upgrade_accept(struct keeper *keeper)
{
	struct timeval patience = {.tv_sec = UPGRADE_ASK_MS / 1000};
	struct ipc_message message;
	int program = -1;
	int asking = accept4(keeper->address.fd, NULL, NULL, SOCK_CLOEXEC);

	if (asking < 0)
		return;
	if (!upgrade_permitted(asking)) {
		upgrade_answer(asking, EPERM, "only root and who mounted it may do that");
		return;
	}
	setsockopt(asking, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (ipc_receive(asking, &message, &program) || message.type != IPC_UPGRADE || program < 0) {
		if (program >= 0)
			close(program);
		close(asking);
		return;
	}
	upgrade_begin(keeper, asking, program);
}
