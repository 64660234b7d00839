/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/runtime_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"

#define LEAF	  "gpumemfs"
#define TMP	  "/tmp"
#define TMP_START LEAF "-"
#define BACKLOG	  1024
/* The name of a socket before listening; the names of mounts begin differently. */
#define NEW_PREFIX "new-"

/* How long to wait while another process of the user makes a socket. */
#define LOCK_TRIES  100
#define LOCK_TRY_NS 10000000L

/* $XDG_RUNTIME_DIR is this user's directory, not another user's. */
static const char *xdg_runtime_dir(uid_t owner)
{
	const char *path = owner && owner == geteuid() ? getenv("XDG_RUNTIME_DIR") : NULL;

	return path && *path == '/' ? path : NULL;
}

/* The n-th directory of the user in /tmp. Other users can make directories of such names there, but
 * none that this user owns. */
static bool tmp_dir_find(uid_t owner, unsigned n, char path[RUNTIME_PATH_MAX])
{
	char start[32], reason[RUNTIME_REASON_MAX];
	size_t length = (size_t)snprintf(start, sizeof(start), TMP_START "%u", owner);
	DIR *tmp = opendir(TMP);
	struct dirent *entry;
	bool found = false;

	while (tmp && !found && (entry = readdir(tmp))) {
		const char *rest = entry->d_name + length;

		if (strncmp(entry->d_name, start, length) != 0 || (*rest && *rest != '-'))
			continue;
		snprintf(path, RUNTIME_PATH_MAX, TMP "/%s", entry->d_name);
		int fd = runtime_dir_open(path, owner, reason);

		found = fd >= 0 && n-- == 0;
		if (fd >= 0)
			close(fd);
	}
	if (tmp)
		closedir(tmp);
	return found;
}

bool runtime_dir_path(uid_t owner, unsigned n, char path[RUNTIME_PATH_MAX])
{
	const char *session = xdg_runtime_dir(owner);
	int length = 0;

	if (session && n-- == 0)
		length = snprintf(path, RUNTIME_PATH_MAX, "%s/" LEAF, session);
	else if (n == 0 && owner)
		length = snprintf(path, RUNTIME_PATH_MAX, "/run/user/%u/" LEAF, owner);
	else if (n == 0)
		length = snprintf(path, RUNTIME_PATH_MAX, "/run/" LEAF);
	else
		return tmp_dir_find(owner, n - 1, path);
	/* An empty path, which the kernel never finds. */
	if (length >= RUNTIME_PATH_MAX)
		*path = '\0';
	return true;
}

static int reason_set(char reason[RUNTIME_REASON_MAX], const char *path, const char *problem)
{
	snprintf(reason, RUNTIME_REASON_MAX, "%s %s", path, problem);
	return -EPERM;
}

static int dir_check(int fd, const char *path, uid_t owner, char reason[RUNTIME_REASON_MAX])
{
	char problem[100];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return reason_set(reason, path, "is no directory");
	if (st.st_uid != owner) {
		snprintf(problem, sizeof(problem), "belongs to user %u and not to user %u",
			 st.st_uid, owner);
		return reason_set(reason, path, problem);
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(problem, sizeof(problem), "may be written by others (mode %04o)",
			 st.st_mode & 07777);
		return reason_set(reason, path, problem);
	}
	return 0;
}

int runtime_dir_open(const char *path, uid_t owner, char reason[RUNTIME_REASON_MAX])
{
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int error = fd < 0 ? -errno : 0;

	if (error)
		snprintf(reason, RUNTIME_REASON_MAX, "%s: %s", path, strerror(-error));
	else
		error = dir_check(fd, path, owner, reason);
	if (!error)
		return fd;
	if (fd >= 0)
		close(fd);
	return error;
}

/* Makes a directory in /tmp. The name is random, because another user could take any name that is
 * known beforehand. The next daemon finds the directory by its owner. */
static int tmp_dir_make(char reason[RUNTIME_REASON_MAX])
{
	char path[64];

	snprintf(path, sizeof(path), TMP "/" TMP_START "%u-XXXXXX", geteuid());
	if (mkdtemp(path))
		return runtime_dir_open(path, geteuid(), reason);
	int error = -errno;

	snprintf(reason, RUNTIME_REASON_MAX, "%s: %s", path, strerror(-error));
	return error;
}

/* The first directory that exists or can be made. */
static int dir_make(char reason[RUNTIME_REASON_MAX])
{
	char path[RUNTIME_PATH_MAX];

	for (unsigned n = 0; runtime_dir_path(geteuid(), n, path); n++) {
		/* 0700 with any umask. */
		mkdir(path, 0700);
		int fd = runtime_dir_open(path, geteuid(), reason);

		if (fd >= 0)
			return fd;
	}
	return tmp_dir_make(reason);
}

/* A path may be longer than a socket's address; through /proc/self/fd it is short. */
static struct sockaddr_un socket_address(int dir, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir, name);
	return address;
}

int runtime_connect(int dir, const char *name, int flags)
{
	struct sockaddr_un address = socket_address(dir, name);
	int error, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -errno;
	do {
		error = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	} while (error == EINTR);
	if (!error)
		return fd;
	close(fd);
	return -error;
}

int runtime_peer(int fd, struct ucred *peer)
{
	socklen_t length = sizeof(*peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) < 0 ? -errno : 0;
}

int runtime_socket_connect(int dir, const char *name, uid_t owner)
{
	int fd = runtime_connect(dir, name, 0);
	struct ucred peer;

	if (fd < 0)
		return fd;
	int error = runtime_peer(fd, &peer);

	if (!error && peer.uid == owner)
		return fd;
	close(fd);
	return error ? error : -EPERM;
}

/* A connection is refused only if no process listens. */
static void socket_remove_dead(int dir, const char *name)
{
	int fd = runtime_connect(dir, name, SOCK_NONBLOCK);

	if (fd == -ECONNREFUSED)
		unlinkat(dir, name, 0);
	if (fd >= 0)
		close(fd);
}

void runtime_socket_name(const char *kind, dev_t device, char name[RUNTIME_NAME_MAX])
{
	snprintf(name, RUNTIME_NAME_MAX, "%s-%u:%u", kind, major(device), minor(device));
}

void runtime_socket_remove_dead(int dir, const char *kind, dev_t device)
{
	char name[RUNTIME_NAME_MAX];

	runtime_socket_name(kind, device, name);
	socket_remove_dead(dir, name);
}

/* Under the directory's lock: between bind and listen a socket looks dead. */
static void sockets_remove_dead(int dir)
{
	int list = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *open_dir = list < 0 ? NULL : fdopendir(list);

	if (!open_dir) {
		if (list >= 0)
			close(list);
		return;
	}
	for (struct dirent *entry; (entry = readdir(open_dir));)
		if (entry->d_type == DT_SOCK)
			socket_remove_dead(dir, entry->d_name);
	closedir(open_dir);
}

/* The lock, or -1 if another process keeps it too long. */
static int dir_lock(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (unsigned n_tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); n_tries++) {
		if (errno != EWOULDBLOCK || n_tries == LOCK_TRIES) {
			close(fd);
			return -1;
		}
		nanosleep(&(struct timespec){.tv_nsec = LOCK_TRY_NS}, NULL);
	}
	return fd;
}

/* The socket listens before getting the name, so a client finds either the old socket or the new.
 */
static int socket_listen(struct runtime_socket *listener)
{
	char name[RUNTIME_NAME_MAX];
	struct stat st;

	snprintf(name, sizeof(name), NEW_PREFIX "%d", getpid());
	struct sockaddr_un address = socket_address(listener->dir, name);

	unlinkat(listener->dir, name, 0);
	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0 ||
	    bind(listener->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (listen(listener->fd, BACKLOG) < 0 ||
	    fstatat(listener->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    renameat(listener->dir, name, listener->dir, listener->name) < 0) {
		int error = -errno;

		unlinkat(listener->dir, name, 0);
		return error;
	}
	listener->inode = st.st_ino;
	return 0;
}

int runtime_socket_open(struct runtime_socket *listener, const char *kind, dev_t device,
			char reason[RUNTIME_REASON_MAX])
{
	*listener = (struct runtime_socket){.dir = dir_make(reason), .fd = -1};
	runtime_socket_name(kind, device, listener->name);
	if (listener->dir < 0) {
		int error = listener->dir;

		listener->dir = -1;
		return error;
	}
	int lock = dir_lock(listener->dir);

	if (lock >= 0)
		sockets_remove_dead(listener->dir);
	int error = socket_listen(listener);

	if (lock >= 0)
		close(lock);
	if (error) {
		snprintf(reason, RUNTIME_REASON_MAX, "%s: %s", listener->name, strerror(-error));
		runtime_socket_close(listener);
	}
	return error;
}

void runtime_socket_adopt(struct runtime_socket *listener, int dir, int fd, const char *kind,
			  dev_t device)
{
	struct stat st;

	*listener = (struct runtime_socket){.dir = dir, .fd = fd};
	runtime_socket_name(kind, device, listener->name);
	if (fstatat(dir, listener->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		listener->inode = st.st_ino;
}

/* Another mount may have the device number by now, and its socket the name: compare inodes. This
 * socket's inode number stays in use while the socket is open. */
void runtime_socket_close(struct runtime_socket *listener)
{
	struct stat st;

	if (listener->dir >= 0 && listener->fd >= 0 && listener->inode &&
	    fstatat(listener->dir, listener->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == listener->inode)
		unlinkat(listener->dir, listener->name, 0);
	if (listener->fd >= 0)
		close(listener->fd);
	if (listener->dir >= 0)
		close(listener->dir);
	listener->dir = listener->fd = -1;
}
