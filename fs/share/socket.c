/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Binds the sharing socket in the mount itself, so that every process that sees the mount can
 * share. A socket bound on the path of the mount would keep the mount busy for umount. A socket
 * bound through a detached clone keeps only the clone busy, and the daemon drops the clone when the
 * mount is gone. The kernel finds a socket by its inode, so connect() works through the mount and
 * through bind mounts of the mount.
 *
 * A clone needs privileges. The daemon of an ordinary user has its socket in a directory of this
 * user, and serves no other user. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/keeper/fdstore.h"
#include "fs/share/binder.h"
#include "fs/share/internal.h"

#define BACKLOG 1024

static int socket_bind(struct share *share, const char *mountpoint)
{
	share->tree_fd =
	    (int)syscall(SYS_open_tree, AT_FDCWD, mountpoint, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (share->tree_fd < 0)
		return -errno;
	share->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (share->listen_fd < 0)
		return -errno;
	int error = binder_bind(share->listen_fd, share->tree_fd);

	if (!error && listen(share->listen_fd, BACKLOG))
		error = -errno;
	return error;
}

/* Takes over the socket of an earlier daemon, by the directory that the keeper holds beside the
 * socket. */
static int socket_adopt(struct share *share)
{
	struct statx st;

	if (statx(share->tree_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
		return -errno;
	if (!share->device || makedev(st.stx_dev_major, st.stx_dev_minor) == share->device)
		return 0;
	share->for_own_user = true;
	runtime_socket_adopt(&share->runtime, share->tree_fd, share->listen_fd, GPUMEM_SOCKET_KIND,
			     share->device);
	return 0;
}

static int socket_open_for_user(struct share *share)
{
	int error =
	    runtime_socket_open(&share->runtime, GPUMEM_SOCKET_KIND, share->device, share->reason);

	share->tree_fd = share->runtime.dir;
	share->listen_fd = share->runtime.fd;
	share->for_own_user = !error;
	return error;
}

bool share_is_kept(struct fs *fs)
{
	AUTO_CLOSE int tree =
	    fdstore_take(fs->fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_DIR));
	AUTO_CLOSE int listen =
	    fdstore_take(fs->fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_LISTEN));

	return tree >= 0 && listen >= 0;
}

static int socket_hold(struct share *share, enum fdstore_share number, int fd)
{
	/* A daemon that mounts again binds a new socket. */
	if (share->fs->options.recovery != RECOVERY_TRANSPARENT)
		return 0;
	return fdstore_hold(share->fs->fdstore, fdstore_id(FDSTORE_SOCKET, number), fd);
}

/* With a keeper, the socket takes connections even while no daemon serves them. */
static int socket_open(struct share *share, const char *mountpoint)
{
	struct fdstore *fdstore = share->fs->fdstore;

	share->tree_fd = fdstore_take(fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_DIR));
	share->listen_fd = fdstore_take(fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_LISTEN));
	if (share->tree_fd >= 0 && share->listen_fd >= 0)
		return socket_adopt(share);
	share_socket_close(share);
	int error = socket_bind(share, mountpoint);

	if (share->tree_fd < 0 && (error == -EPERM || error == -ENOSYS))
		error = socket_open_for_user(share);
	if (!error)
		error = socket_hold(share, FDSTORE_SHARE_LISTEN, share->listen_fd);
	return error ? error : socket_hold(share, FDSTORE_SHARE_DIR, share->tree_fd);
}

int sharing_open(struct fs *fs)
{
	fs->states[FS_SHARING] = calloc(1, sizeof(struct sharing));
	return fs->states[FS_SHARING] ? 0 : -ENOMEM;
}

void sharing_close(struct fs *fs)
{
	struct sharing *sharing = sharing_of(fs);

	free(atomic_load(&sharing->refusal));
	free(sharing);
}

int share_socket_open(struct share *share, const char *mountpoint)
{
	int error = socket_open(share, mountpoint);
	struct statx st;

	if (error || share->for_own_user)
		return error;
	/* Without an answer of this daemon: the calling thread may be the thread that serves the
	 * mount. */
	if (statx(share->tree_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
		return -errno;
	share->device = makedev(st.stx_dev_major, st.stx_dev_minor);
	atomic_store(&sharing_of(share->fs)->socket_bound, true);
	share->mounts = fopen("/proc/self/mountinfo", "re");
	return share->mounts ? 0 : -errno;
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void share_socket_close(struct share *share)
{
	/* The keeper's descriptors first: the process that closes the mount last may wait for the
	 * daemon. */
	fdstore_drop(share->fs->fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_LISTEN));
	fdstore_drop(share->fs->fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_DIR));
	fdstore_wait_idle(share->fs->fdstore);
	if (share->for_own_user) {
		runtime_socket_close(&share->runtime);
		share->listen_fd = share->tree_fd = -1;
	}
	fd_close(&share->listen_fd);
	fd_close(&share->tree_fd);
	if (share->mounts)
		fclose(share->mounts);
	share->mounts = NULL;
}

int share_socket_admit(const struct share *share, int fd)
{
	struct ucred peer;

	if (!share->for_own_user)
		return 0;
	return runtime_peer(fd, &peer) == 0 && peer.uid == geteuid() ? 0 : -EPERM;
}

bool share_is_bound(const struct fs *fs)
{
	return atomic_load(&sharing_of(fs)->socket_bound);
}

bool share_name_bind(struct fs *fs, pid_t pid)
{
	return binder_is(pid) && !atomic_exchange(&sharing_of(fs)->socket_bound, true);
}

bool share_socket_mounted(const struct share *share)
{
	/* A socket in a directory keeps no mount alive. */
	return !share->mounts || mountinfo_has_device(share->mounts, share->device);
}

void share_log_refusal(const struct share *share, int error)
{
	struct fs *fs = share->fs;
	const char *reason = *share->reason ? share->reason : strerror(-error);

	log_warn("%s: files cannot be shared by path: %s", fs->options.mountpoint, reason);
	atomic_store(&sharing_of(fs)->refusal, strdup(reason));
}

/* The directory's path, even if the directory was renamed. */
static void where_directory(const struct share *share, struct gpumem_socket *location)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", share->tree_fd);
	ssize_t length = readlink(path, location->text, sizeof(location->text) - 1);

	location->where = length > 0 ? GPUMEM_SOCKET_IN_DIRECTORY : GPUMEM_SOCKET_NOWHERE;
	location->text[length > 0 ? length : 0] = '\0';
}

void share_where(struct fs *fs, struct gpumem_socket *location)
{
	const struct share *share = share_of(fs);
	const char *reason = atomic_load(&sharing_of(fs)->refusal);

	*location = (struct gpumem_socket){.where = share || reason ? GPUMEM_SOCKET_NOWHERE
								    : GPUMEM_SOCKET_NOT_YET};
	if (!share)
		snprintf(location->text, sizeof(location->text), "%s",
			 reason ? reason : "the mount has just been made: try again");
	else if (share->for_own_user)
		where_directory(share, location);
	else
		location->where = GPUMEM_SOCKET_IN_MOUNT;
}

void share_capability(struct fs *fs, struct capability *capability)
{
	struct gpumem_socket location;

	share_where(fs, &location);
	switch (location.where) {
	case GPUMEM_SOCKET_NOWHERE:
	case GPUMEM_SOCKET_NOT_YET:
		capability_set(capability, false, "%s", location.text);
		break;
	case GPUMEM_SOCKET_IN_MOUNT:
		capability_set(
		    capability, true,
		    "every process that may open a file maps its memory, by " GPUMEM_SOCKET_NAME);
		break;
	default:
		capability_set(capability, true, "only user %u maps files, by a socket in %s",
			       geteuid(), location.text);
		break;
	}
}
