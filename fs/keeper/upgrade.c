/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/upgrade_client.h"

/* So long one who connects may take to say what he wants: the keeper waits. */
#define ASK_MS 1000

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
static bool may_ask(int asking)
{
	struct ucred peer;

	return runtime_peer(asking, &peer) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static void say(int asking, int error, const char *text)
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
		say(keeper->asking, error, text);
	keeper->asking = -1;
}

static void begin(struct keeper *keeper, int asking, int program)
{
	int error;

	if (keeper->next.pid || keeper->before >= 0 || keeper->ending ||
	    (keeper->serving.pid && !keeper->serving.ready)) {
		say(asking, EBUSY, "another daemon is being started or ended");
		close(program);
		return;
	}
	error = child_start(keeper, &keeper->next, program);
	if (error) {
		say(asking, -error, strerror(-error));
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
	struct timeval patience = {.tv_sec = ASK_MS / 1000};
	struct ipc_message message;
	int program = -1;
	int asking = accept4(keeper->address.fd, NULL, NULL, SOCK_CLOEXEC);

	if (asking < 0)
		return;
	if (!may_ask(asking)) {
		say(asking, EPERM, "only root and who mounted it may do that");
		return;
	}
	setsockopt(asking, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (ipc_receive(asking, &message, &program) || message.type != IPC_UPGRADE || program < 0) {
		if (program >= 0)
			close(program);
		close(asking);
		return;
	}
	begin(keeper, asking, program);
}
