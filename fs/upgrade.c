/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/defer.h"
#include "common/log.h"
#include "fs/line.h"

#define PREFIX "gpumemfs-keeper:"

#define TRIES  100
#define TRY_NS 100000000L

/* An abstract name, so that nothing is left behind. Of a path that is too long its end counts. */
socklen_t upgrade_name(const char *mountpoint, struct sockaddr_un *address)
{
	size_t length = strlen(mountpoint), room = sizeof(address->sun_path) - sizeof(PREFIX) - 1;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	int used = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, PREFIX "%s",
			    mountpoint + (length > room ? length - room : 0));

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
}

/* Anybody may have taken the name. */
static int check_peer(int line)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return -errno;
	return peer.uid == 0 || peer.uid == geteuid() || geteuid() == 0 ? 0 : -EPERM;
}

static int ask(int line, struct line_message *answer)
{
	struct line_message message = line_message(LINE_UPGRADE, 0);
	AUTO_CLOSE int program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	int fd = -1, error = program < 0 ? -errno : check_peer(line);

	if (!error)
		error = line_send(line, &message, program);
	if (!error)
		error = line_receive(line, answer, &fd);
	if (fd >= 0)
		close(fd);
	return !error && answer->type != LINE_SAID ? -EPROTO : error;
}

static int ask_keeper(const char *mountpoint, struct line_message *answer)
{
	struct sockaddr_un address;
	socklen_t length = upgrade_name(mountpoint, &address);
	AUTO_CLOSE int line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (line < 0 || connect(line, (struct sockaddr *)&address, length)) {
		int error = -errno;

		log_error("%s: no keeper of such a mount answers (mounted with recovery=?): %s",
			  mountpoint, strerror(-error));
		return error;
	}
	int error = ask(line, answer);

	if (error)
		log_error("%s: the keeper cannot be asked: %s", mountpoint, strerror(-error));
	return error;
}

int upgrade_ask(const char *mountpoint)
{
	struct line_message answer;
	int error = ask_keeper(mountpoint, &answer);

	/* Another daemon is on its way in, or out. */
	for (unsigned tries = 0; !error && answer.value == EBUSY && tries < TRIES; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
		error = ask_keeper(mountpoint, &answer);
	}
	if (!error && answer.value)
		log_error("%s: not upgraded: %s", mountpoint, answer.text);
	return error || answer.value ? EXIT_FAILURE : EXIT_SUCCESS;
}
