/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/mount.h"
#include "client/core/process.h"
#include "common/cleanup.h"

#define KNOWN_OPEN_FLAGS (O_ACCMODE | O_CLOEXEC | GPUMEM_OPEN_TIMED)

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t visit_ended = PTHREAD_COND_INITIALIZER;
static struct gpumem *open_files; /* under list_lock */

static void files_forked(void);
static struct client_fork_handler fork_handler = {.forked = files_forked};

static void files_add(struct gpumem *file)
{
	client_fork_handler_register(&fork_handler);
	scoped_lock(&list_lock);
	file->next = open_files;
	if (open_files)
		open_files->previous = file;
	open_files = file;
}

static void files_remove(struct gpumem *file)
{
	scoped_lock(&list_lock);
	while (file->visits)
		pthread_cond_wait(&visit_ended, &list_lock);
	if (file->next)
		file->next->previous = file->previous;
	if (file->previous)
		file->previous->next = file->next;
	else
		open_files = file->next;
}

/* AT_STATX_DONT_SYNC: neither number changes, so the daemon need not be asked. */
static struct client_identity identity_read(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) < 0)
		return (struct client_identity){0};
	return (struct client_identity){makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino};
}

bool client_file_has_name(const struct gpumem *file, const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == file->identity.device &&
	       st.st_ino == file->identity.inode;
}

/* adopted: memory of this process for the file; NULL: the file has memory. */
static int file_new(int fd, enum client_fd kind, int flags, int lease_from,
		    const struct client_adoption *adopted, struct gpumem **file)
{
	struct gpumem *new_file = calloc(1, sizeof(*new_file));

	if (!new_file) {
		close(fd);
		return client_fail(ENOMEM, "no memory");
	}
	new_file->fd = fd;
	new_file->identity = identity_read(fd);
	new_file->fd_kind = kind;
	new_file->flags = flags;
	new_file->end = CLIENT_END_NEW;
	int rc = client_connection_lease(lease_from, flags, adopted, &new_file->connection,
					 &new_file->layout);
	if (rc < 0) {
		close(fd);
		free(new_file);
		return rc;
	}
	pthread_mutex_init(&new_file->lock, NULL);
	files_add(new_file);
	*file = new_file;
	return 0;
}

int client_file_new(int fd, enum client_fd kind, int flags, int lease_from, struct gpumem **file)
{
	return file_new(fd, kind, flags, lease_from, NULL, file);
}

int client_file_check(int fd)
{
	struct statx st;

	/* The type never changes: AT_STATX_DONT_SYNC saves a request to the daemon. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return client_fail(errno, "%s", strerror(errno));
	if (S_ISDIR(st.stx_mode))
		return client_fail(EISDIR, "this is a directory");
	if (!S_ISREG(st.stx_mode))
		return client_fail(EINVAL, "it is no regular file");
	return 0;
}

int client_file_open(const char *path, int flags, struct gpumem **file)
{
	int mode = flags & O_ACCMODE;

	if (flags & ~KNOWN_OPEN_FLAGS || (mode != O_RDONLY && mode != O_RDWR))
		return client_fail(EINVAL, "flags are O_RDONLY or O_RDWR");
	/* O_NONBLOCK: open(2) must not wait for the other end of a FIFO. */
	int fd = open(path, mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return client_fail(errno, "%s: %s", path, strerror(errno));
	int rc = client_file_check(fd);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return client_file_new(fd, CLIENT_FD_OPEN, mode | (flags & CLIENT_LEASE_TIMED), fd, file);
}

int client_file_new_adopted(int fd, const struct client_adoption *from, struct gpumem **file)
{
	int rc = file_new(fd, CLIENT_FD_OPEN, O_RDWR, fd, from, file);

	if (rc < 0)
		return rc;
	/* The file may not be parked: it would end with its lease. */
	(*file)->exported = true;
	if (!from->uuid || memcmp((*file)->layout.uuid, from->uuid, 16) == 0)
		return 0;
	client_file_free(*file);
	return client_fail(EINVAL, "the memory is on another GPU than the directory");
}

void client_files_each(void (*visit)(struct gpumem *file, void *context), void *context)
{
	scoped_lock(&list_lock);
	for (struct gpumem *at = open_files; at; at = at->next) {
		/* The file stays, and with it the place in the list. The visit may take long, and
		 * does not hold up calls for other files. */
		at->visits++;
		pthread_mutex_unlock(&list_lock);
		pthread_mutex_lock(&at->lock);
		visit(at, context);
		pthread_mutex_unlock(&at->lock);
		pthread_mutex_lock(&list_lock);
		if (--at->visits == 0)
			pthread_cond_broadcast(&visit_ended);
	}
}

int client_file_unmap_device(struct gpumem *file)
{
	if (!file->device.vendor)
		return 0;
	return client_file_ops(file)->device_unmap(&file->device, &file->layout);
}

/* The memory is unmapped before the lease ends. */
int client_file_free(struct gpumem *file)
{
	files_remove(file);
	client_file_ops(file)->host_unmap(&file->host);
	int rc = client_file_unmap_device(file);
	client_layout_cut(&file->layout, 0);
	client_connection_release(file->connection, file->layout.lease);
	if (file->pending)
		client_replace_abandon(file->pending);
	free(file->pending);
	if (file->end.fd >= 0)
		close(file->end.fd);
	close(file->fd);
	pthread_mutex_destroy(&file->lock);
	free(file);
	return rc;
}

/* Opens an O_PATH file for reading: a lease needs such a descriptor. */
static int file_reopen(const struct gpumem *file)
{
	char path[BENEATH_THROUGH_MAX];
	int fd =
	    open(beneath_through(file->fd, path), (file->flags & ~CLIENT_LEASE_FLAGS) | O_CLOEXEC);
	return fd >= 0 ? fd : client_fail(errno, "opening the file again: %s", strerror(errno));
}

int client_file_renew(struct gpumem *file)
{
	struct client_layout layout = {0};
	AUTO_CLOSE int reopened_fd = -1;
	int fd = file->fd;

	if (file->connection)
		return 0;
	if (file->parked)
		return client_fail(EBUSY, "the file is parked: gpumem_unpark first");
	if (file->fd_kind == CLIENT_FD_PATH) {
		fd = reopened_fd = file_reopen(file);
		if (reopened_fd < 0)
			return reopened_fd;
	}
	int rc = client_connection_lease(fd, file->flags, NULL, &file->connection, &layout);
	if (rc == 0)
		file->layout = layout;
	return rc;
}

/* If a mapping cannot grow, the other mapping grows all the same. */
int client_file_extend(struct gpumem *file)
{
	int rc = file->connection ? client_connection_extend(file->connection, &file->layout)
				  : client_file_renew(file);
	if (rc < 0)
		return rc;
	const struct client_gpu_ops *ops = client_file_ops(file);
	int host = file->host.range.base ? ops->host_extend(&file->host, &file->layout) : 0;
	rc = file->device.vendor ? ops->device_extend(&file->device, &file->layout) : 0;
	return rc < 0 ? rc : host;
}

/* In the child of a fork. Chunks that the child kept open would keep memory that the parent
 * believes free. Mappings by mmap(2) are inherited and stay; mappings of a driver are not the
 * child's to unmap. */
static void file_forked(struct gpumem *file)
{
	client_layout_cut(&file->layout, 0);
	file->layout.lease = 0;
	file->connection = NULL;
	file->parked = file->on_request = file->exported = false;
	file->end = (struct client_end){.fd = file->end.fd};
	if (file->device.vendor)
		client_file_ops(file)->device_forget(&file->device);
	client_file_ops(file)->host_forget(&file->host);
	if (file->pending)
		client_replace_forget(file->pending);
	free(file->pending);
	file->pending = NULL;
}

static void files_forked(void)
{
	for (struct gpumem *at = open_files; at; at = at->next)
		file_forked(at);
}
