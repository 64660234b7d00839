/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/error.h"
#include "client/core/private_fd.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/mounts.h"
#include "common/system/runtime_dir.h"
#include "common/text/utf8.h"

/* The daemon of a new mount binds its socket within milliseconds of its first answer. */
#define SOCKET_WAIT_NS (2 * CLOCK_SECOND)
#define SOCKET_POLL_US 2000

struct question {
	unsigned long request;
	void *argument;
};

/* A lease may wait for a long time, and a signal may end the wait. */
static int question_ask(int fd, void *argument)
{
	const struct question *question = argument;
	int rc;

	do {
		rc = ioctl(fd, question->request, question->argument);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

/* Programs may have stored bytes through mappings, which are only in the kernel's page cache: a
 * lease shows the memory of the file, so they must be there. And with cache=auto programs may read
 * cached bytes that are old after the lease's first store: these pages go. */
static int lease_ask(int fd, void *question)
{
	const unsigned written =
	    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	if (sync_file_range(fd, 0, 0, written) < 0)
		return -errno;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return question_ask(fd, question);
}

/* Whether the descriptor has fewer rights than flags asks for. The file is then opened again, which
 * needs the right to do so. */
static bool descriptor_lacks_rights(int fd, int flags)
{
	int has = fcntl(fd, F_GETFL);

	return has >= 0 && (has & O_PATH || (flags == O_RDWR && (has & O_ACCMODE) != O_RDWR));
}

/* Asks about the file, with the rights of flags. 0 or -errno. */
static int file_ask(int fd, int flags, int (*ask)(int fd, void *question), struct question question)
{
	return descriptor_lacks_rights(fd, flags) ? client_private_fd(fd, flags, ask, &question)
						  : ask(fd, &question);
}

static int mount_fail_ended(void)
{
	return client_fail(ENOTCONN, "the daemon of this mount has ended");
}

static int mount_fail_unshared(const char *reason)
{
	return client_fail(ENOTSUP, "the daemon of this mount shares no files: %s", reason);
}

/* Tells why an ioctl on the file failed. */
static int file_fail(int error)
{
	switch (error) {
	case ENOTTY:
	case EINVAL:
	case ENOSYS:
	case EOPNOTSUPP:
		return client_fail(ENOTSUP, "the file is not on gpumemfs");
	case ENOTCONN:
	case ECONNABORTED:
		return mount_fail_ended();
	case EPROTONOSUPPORT:
		return mount_fail_unshared("its log says why");
	case EACCES: /* also from opening the file again */
	case EPERM:
		return client_fail(error, "the file's lease: %s", strerror(error));
	default:
		return client_refused(error);
	}
}

int client_mount_lease(int fd, int flags, struct gpumem_lease_ask *ask)
{
	const struct {
		int flags; /* that ask for the command; 0: the last one */
		unsigned long command;
	} kinds[] = {{CLIENT_LEASE_LOADS, GPUMEM_IOC_LEASE_LOADS},
		     {CLIENT_LEASE_FLAGS, GPUMEM_IOC_LEASE_TIMED},
		     {0, GPUMEM_IOC_LEASE}};
	int rights = flags & ~CLIENT_LEASE_FLAGS, rc = -ENOTTY;

	for (unsigned i = 0; rc == -ENOTTY && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!kinds[i].flags || flags & kinds[i].flags)
			rc = file_ask(fd, rights, lease_ask,
				      (struct question){kinds[i].command, ask});
	return rc == 0 || rc == -ESTALE ? rc : file_fail(-rc);
}

/* The daemon's errno, as GPUMEM_IOC_ADOPT says. */
static int adopt_fail(int error)
{
	switch (error) {
	case ENOTTY:
		return client_fail(ENOTSUP, "the file is not on gpumemfs, or its daemon is older");
	case EINVAL:
		return client_fail(EINVAL, "the descriptors are no memory of the file's GPU of "
					   "these sizes");
	case ENOTSUP:
		return client_fail(ENOTSUP, "the file is not on a GPU that takes memory of other "
					    "programs");
	default:
		return client_fail(error, "the daemon refuses the memory: %s", strerror(error));
	}
}

int client_mount_adopt(int fd, struct gpumem_adopt_ask *ask)
{
	int rc;

	do {
		rc = ioctl(fd, GPUMEM_IOC_ADOPT, ask) < 0 ? -errno : 0;
	} while (rc == -EINTR);
	return rc == 0 || rc == -ESTALE ? rc : adopt_fail(-rc);
}

int client_mount_flags(int fd, uint32_t *flags)
{
	struct gpumem_mount mount = {0};
	int rc = file_ask(fd, O_RDONLY, question_ask, (struct question){GPUMEM_IOC_MOUNT, &mount});

	*flags = mount.flags;
	return rc;
}

/* Asks the daemon for the place of its socket, again while the daemon of a new mount has none yet.
 */
static int socket_find(int fd, struct gpumem_socket *place)
{
	const int64_t deadline = clock_ns() + SOCKET_WAIT_NS;
	int rc;

	while ((rc = file_ask(fd, O_RDONLY, question_ask,
			      (struct question){GPUMEM_IOC_SOCKET, place})) == 0 &&
	       place->where == GPUMEM_SOCKET_NOT_YET && clock_ns() < deadline)
		usleep(SOCKET_POLL_US);
	if (rc < 0)
		return file_fail(-rc);
	place->text[sizeof(place->text) - 1] = '\0';
	/* The text goes to a terminal, which a mount must not control. */
	if (!utf8_is_printable(place->text))
		return client_fail(EPROTO, "invalid answer of the daemon: unprintable text");
	return place->where == GPUMEM_SOCKET_NOWHERE || place->where == GPUMEM_SOCKET_NOT_YET
		   ? mount_fail_unshared(place->text)
		   : 0;
}

int client_mount_check(int fd)
{
	struct gpumem_socket place;

	return socket_find(fd, &place);
}

/* Calls visit with the root of the mount: the result, or -ENOENT if the path leads elsewhere:
 * another mount may hide this one. */
static int mount_call(const struct mount_line *mount, int (*visit)(int root, void *argument),
		      void *argument)
{
	AUTO_CLOSE int root = open(mount->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat root_stat;

	if (root < 0) /* a file's bind mount, or a folder above is closed to this user */
		return errno == ENOTDIR ? -ENOENT : -errno;
	if (fstat(root, &root_stat) < 0)
		return -errno;
	return root_stat.st_dev == mount->device ? visit(root, argument) : -ENOENT;
}

int client_mount_each(int fd, enum client_mounts selection, int (*visit)(int root, void *argument),
		      void *argument)
{
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	struct stat st;
	int first_result = -ENOENT;

	if (fstat(fd, &st) < 0)
		return -errno;
	AUTO_FCLOSE FILE *mounts = fopen("/proc/self/mountinfo", "re");
	if (!mounts)
		return -errno;
	while (getline(&line, &room, mounts) > 0) {
		struct mount_line mount;
		if (!mount_line_parse(line, &mount) || mount.device != st.st_dev ||
		    (selection == CLIENT_MOUNTS_WHOLE && strcmp(mount.root, "/") != 0))
			continue;
		int rc = mount_call(&mount, visit, argument);
		if (rc >= 0)
			return rc;
		if (first_result == -ENOENT)
			first_result = rc;
	}
	return first_result;
}

/* Connects to the daemon of an ordinary user. The mount names the directory of the socket. Only a
 * directory of this user's own is accepted, and the socket's name is computed here. */
static int socket_connect_own(const char *path, dev_t device)
{
	char name[RUNTIME_NAME_MAX], reason[RUNTIME_REASON_MAX];
	AUTO_CLOSE int dir = runtime_dir_open(path, geteuid(), reason);

	if (dir == -EPERM || dir == -EACCES)
		return client_fail(EACCES,
				   "only the user who mounted it can map files of this "
				   "mount: %s",
				   reason);
	if (dir < 0)
		return client_fail(ENOTSUP,
				   "the daemon of this mount shares files in a directory that is "
				   "not visible here: %s",
				   reason);
	runtime_socket_name(GPUMEM_SOCKET_KIND, device, name);
	int fd = runtime_socket_connect(dir, name, geteuid());

	if (fd == -ECONNREFUSED || fd == -ENOENT)
		return mount_fail_ended();
	return fd >= 0 ? fd
		       : client_fail(fd == -EMFILE ? EMFILE : ENOTCONN, "connecting to %s/%s: %s",
				     path, name, strerror(-fd));
}

/* A directory's entry of the name may be a user's, of an earlier release, with a socket of any
 * process. */
static int directory_connect(int root, void *argument)
{
	const struct stat *file = argument;
	AUTO_CLOSE int dir =
	    openat(root, GPUMEM_SOCKET_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (dir < 0)
		return errno == ENOTDIR || errno == ELOOP ? -EEXIST : -errno;
	if (fstat(dir, &st) < 0)
		return -errno;
	return st.st_dev == file->st_dev && st.st_ino >= GPUMEM_INODES_OF_DAEMON
		   ? runtime_connect(dir, GPUMEM_SOCKET_LEAF, 0)
		   : -EEXIST;
}

/* Connects by a visible mount of the file's filesystem. */
static int socket_connect_in_mount(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	int rc = client_mount_each(fd, CLIENT_MOUNTS_ALL, directory_connect, &st);

	switch (rc < 0 ? -rc : 0) {
	case 0:
		return rc;
	case ENOENT:
		return client_fail(ENOTSUP,
				   "no directory of the file's filesystem with a %s is mounted "
				   "here: bind-mount the mount or a directory of it, not a file",
				   GPUMEM_SOCKET_NAME);
	case EEXIST:
		return client_fail(ENOTSUP, "rename what is not the daemon's but is named %s",
				   GPUMEM_SOCKET_DIR);
	case ECONNREFUSED:
	case ENOTCONN:
		return mount_fail_ended();
	default:
		return client_fail(rc == -EMFILE ? EMFILE : ENOTCONN, "connecting to %s: %s",
				   GPUMEM_SOCKET_NAME, strerror(-rc));
	}
}

int client_mount_connect(int fd)
{
	struct gpumem_socket place;
	struct stat st;

	int rc = socket_find(fd, &place);
	if (rc < 0)
		return rc;
	if (place.where == GPUMEM_SOCKET_IN_DIRECTORY && *place.text == '/' && fstat(fd, &st) == 0)
		return socket_connect_own(place.text, st.st_dev);
	return socket_connect_in_mount(fd);
}
