/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/keeper_state.h"
#include "fs/upgrade.h"

/* So long one who connects may take to say what he wants: the keeper waits. */
#define ASK_MS 1000

int upgrade_address(const char *mountpoint)
{
	struct sockaddr_un address;
	socklen_t length = upgrade_name(mountpoint, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 4) == 0)
		return fd;
	int error = -errno;

	close(fd);
	return error;
}

/* Whoever may say what runs as this user: he himself, and root. */
static bool may_ask(int asking)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	return getsockopt(asking, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

static void say(int asking, int error, const char *text)
{
	struct line_message message = line_message(LINE_SAID, 0);

	message.value = (uint64_t)error;
	snprintf(message.text, sizeof(message.text), "%s", text);
	line_offer(asking, &message, -1);
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
	keeper->failures = keeper->killed = 0;
	keeper->asking = asking;
	log_info("%s: daemon %d gets ready to take over", keeper->options->mountpoint,
		 keeper->next.pid);
}

void upgrade_accept(struct keeper *keeper)
{
	struct timeval patience = {.tv_sec = ASK_MS / 1000};
	struct line_message message;
	int program = -1;
	int asking = accept4(keeper->address, NULL, NULL, SOCK_CLOEXEC);

	if (asking < 0)
		return;
	if (!may_ask(asking)) {
		say(asking, EPERM, "only root and who mounted it may do that");
		return;
	}
	setsockopt(asking, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (line_receive(asking, &message, &program) || message.type != LINE_UPGRADE ||
	    program < 0) {
		if (program >= 0)
			close(program);
		close(asking);
		return;
	}
	begin(keeper, asking, program);
}
