/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/upgrade_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "common/system/runtime_dir.h"
#include "fs/keeper/ipc.h"

#define TRIES  100
#define TRY_NS 100000000L

static int upgrade_request(int ipc, struct ipc_message *answer)
{
	struct ipc_message message = ipc_message(IPC_UPGRADE, 0);
	AUTO_CLOSE int program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	int fd = -1, error = program < 0 ? -errno : ipc_send(ipc, &message, program);

	if (!error)
		error = ipc_receive(ipc, answer, &fd);
	if (fd >= 0)
		close(fd);
	return !error && answer->type != IPC_LOGGED ? -EPROTO : error;
}

/* Reads the mount table; a request to the mount could wait for its daemon. */
static int mount_find(const char *mountpoint, struct mountinfo *mount)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	if (!table || !mountinfo_read(table, mountpoint, "fuse.gpumemfs", mount)) {
		log_error("%s: no gpumemfs is mounted there", mountpoint);
		return -ENOENT;
	}
	if (geteuid() != 0 && geteuid() != mount->user) {
		log_error("%s: user %u mounted it: only that user and root may upgrade it",
			  mountpoint, mount->user);
		return -EPERM;
	}
	return 0;
}

/* Connects to the keeper's socket in a directory: the connection, or -errno with a reason. */
static int keeper_connect_in(const char *path, const struct mountinfo *mount,
			     char reason[RUNTIME_REASON_MAX])
{
	char name[RUNTIME_NAME_MAX];
	AUTO_CLOSE int dir = runtime_dir_open(path, mount->user, reason);

	if (dir < 0)
		return dir;
	runtime_socket_name(UPGRADE_KIND, mount->device, name);
	int ipc = runtime_socket_connect(dir, name, mount->user);

	if (ipc == -EPERM)
		snprintf(reason, RUNTIME_REASON_MAX,
			 "%s/%s: the listening process is not user %u's", path, name, mount->user);
	else if (ipc < 0)
		snprintf(reason, RUNTIME_REASON_MAX, "%s/%s: %s", path, name, strerror(-ipc));
	return ipc;
}

/* Tries each directory. Reports an untrusted process, or another failure; without a socket there is
 * no keeper. */
static int keeper_connect(const char *mountpoint, const struct mountinfo *mount)
{
	char path[RUNTIME_PATH_MAX], failure[RUNTIME_REASON_MAX], reason[RUNTIME_REASON_MAX] = "";
	int result = -ENOENT;

	for (unsigned n = 0; runtime_dir_path(mount->user, n, path); n++) {
		int ipc = keeper_connect_in(path, mount, failure);

		if (ipc >= 0)
			return ipc;
		if (ipc == -ENOENT || ipc == -ECONNREFUSED || result != -ENOENT)
			continue;
		result = ipc;
		memcpy(reason, failure, sizeof(reason));
	}
	if (*reason)
		log_error("%s: not upgraded: %s%s", mountpoint, reason,
			  result == -EPERM ? ": it is not trusted" : "");
	else
		log_error("%s: not upgraded: it has no keeper's socket in /run/gpumemfs, "
			  "/tmp/gpumemfs-UID-* or, of a user, $XDG_RUNTIME_DIR/gpumemfs. Only a "
			  "mount with recovery=transparent or recovery=remount has a keeper",
			  mountpoint);
	return result;
}

static int keeper_request(const char *mountpoint, struct ipc_message *answer)
{
	struct mountinfo mount;
	int error = mount_find(mountpoint, &mount);

	if (error)
		return error;
	AUTO_CLOSE int ipc = keeper_connect(mountpoint, &mount);

	if (ipc < 0)
		return ipc;
	error = upgrade_request(ipc, answer);
	if (error)
		log_error("%s: cannot ask the keeper: %s", mountpoint, strerror(-error));
	return error;
}

int upgrade_ask(const char *mountpoint)
{
	struct ipc_message answer;
	int error = keeper_request(mountpoint, &answer);

	/* EBUSY: another daemon is being started or ended. */
	for (unsigned attempt = 0; !error && answer.value == EBUSY && attempt < TRIES; attempt++) {
		nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
		error = keeper_request(mountpoint, &answer);
	}
	if (error)
		return EXIT_FAILURE;
	if (answer.value) {
		log_error("%s: not upgraded: %s", mountpoint, answer.text);
		return EXIT_FAILURE;
	}
	/* A keeper of an earlier program sends no text. */
	printf("gpumemfs: %s: %s of this program serves now, with all files\n", mountpoint,
	       *answer.text ? answer.text : "a daemon");
	return EXIT_SUCCESS;
}
