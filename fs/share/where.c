/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What programs are told of the sharing socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/share/internal.h"

void share_refused(const struct share *share, int error)
{
	struct fs *fs = share->fs;
	const char *reason = *share->reason ? share->reason : strerror(-error);

	log_warn("%s: files cannot be shared by path: %s", fs->options.mountpoint, reason);
	atomic_store(&fs->not_shared, strdup(reason));
}

/* The directory's path as it is now. */
static void own_directory(const struct share *share, struct gpumem_socket *where)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", share->tree_fd);
	ssize_t length = readlink(path, where->text, sizeof(where->text) - 1);

	where->where = length > 0 ? GPUMEM_SOCKET_IN_DIRECTORY : GPUMEM_SOCKET_NOWHERE;
	where->text[length > 0 ? length : 0] = '\0';
}

void share_where(struct fs *fs, struct gpumem_socket *where)
{
	const struct share *share = atomic_load(&fs->share);
	const char *reason = atomic_load(&fs->not_shared);

	*where = (struct gpumem_socket){.where = GPUMEM_SOCKET_NOWHERE};
	if (!share)
		snprintf(where->text, sizeof(where->text), "%s",
			 reason ? reason : "the mount has just been made: try again");
	else if (share->for_own_user)
		own_directory(share, where);
	else
		where->where = GPUMEM_SOCKET_IN_MOUNT;
}

void share_capability(struct fs *fs, struct capability *capability)
{
	struct gpumem_socket where;

	share_where(fs, &where);
	switch (where.where) {
	case GPUMEM_SOCKET_NOWHERE:
		capability_set(capability, false, "%s", where.text);
		break;
	case GPUMEM_SOCKET_IN_MOUNT:
		capability_set(capability, true,
			       "whoever may open a file maps its memory, by " GPUMEM_SOCKET_NAME);
		break;
	default:
		capability_set(capability, true, "only user %u maps files, by a socket in %s",
			       geteuid(), where.text);
		break;
	}
}
