/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_create: a new file with all of its memory allocated. The file gets its name when all is
 * there, at once or by gpumem_publish, so no process sees a part of the file, and a failed call or
 * a killed process leaves no file behind. */
#include "client/lib/create.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/error.h"
#include "client/core/mount.h"
#include "client/lib/file.h"

#define KNOWN_FLAGS (GPUMEM_CREATE_EXCL | GPUMEM_CREATE_PENDING)

int client_alignment_check(size_t alignment)
{
	if (alignment & (alignment - 1) || alignment > CLIENT_CHUNK_ALIGN)
		return client_fail(EINVAL, "alignment %zu is not 0 or a power of two up to %zu",
				   alignment, (size_t)CLIENT_CHUNK_ALIGN);
	return 0;
}

static int arguments_check(uint64_t bytes, size_t alignment, int flags)
{
	if (flags & ~KNOWN_FLAGS)
		return client_fail(EINVAL,
				   "flags are GPUMEM_CREATE_EXCL and GPUMEM_CREATE_PENDING");
	if (bytes > INT64_MAX)
		return client_fail(EFBIG, "%" PRIu64 " bytes are more than a file can have", bytes);
	return client_alignment_check(alignment);
}

/* fallocate(2) fails without an effect if there is no room for all of the memory. */
static int memory_allocate(int fd, const char *path, uint64_t bytes)
{
	int rc = client_mount_check(fd);

	if (rc < 0)
		return rc;
	while (bytes && fallocate(fd, 0, 0, (off_t)bytes) < 0)
		if (errno != EINTR)
			return client_fail(errno, "%s: no memory for %" PRIu64 " bytes: %s", path,
					   bytes, strerror(errno));
	return 0;
}

/* The handle has a descriptor of its own, because naming the file closes the other one. */
static int file_open_created(const struct client_replace *replace, uint64_t bytes,
			     const struct client_adoption *adopted, struct gpumem **file)
{
	int rc = adopted ? client_mount_check(replace->fd)
			 : memory_allocate(replace->fd, replace->path, bytes);

	if (rc < 0)
		return rc;
	int own_fd = fcntl(replace->fd, F_DUPFD_CLOEXEC, 0);
	if (own_fd < 0)
		return client_fail(errno, "%s: %s", replace->path, strerror(errno));
	return adopted ? client_file_new_adopted(own_fd, adopted, file)
		       : client_file_new(own_fd, CLIENT_FD_OPEN, O_RDWR, own_fd, file);
}

/* Creates a pending file, with new memory or with the adopted memory. */
static int file_create(const char *path, uint64_t bytes, const struct client_adoption *adopted,
		       mode_t mode, int flags, struct gpumem **file)
{
	struct client_replace *pending = malloc(sizeof(*pending));
	int rc;

	if (!pending)
		return client_fail(ENOMEM, "%s: no memory", path);
	rc = client_replace_begin(
	    path, mode, flags & GPUMEM_CREATE_EXCL ? CLIENT_REPLACE_NOTHING : CLIENT_REPLACE_FILE,
	    NULL, pending);
	if (rc < 0) {
		free(pending);
		return rc;
	}
	rc = file_open_created(pending, bytes, adopted, file);
	if (rc < 0) {
		client_replace_abandon(pending);
		free(pending);
		return rc;
	}
	(*file)->pending = pending;
	return 0;
}

static int file_create_named(const char *path, uint64_t bytes,
			     const struct client_adoption *adopted, mode_t mode, int flags,
			     struct gpumem **file)
{
	struct gpumem *new_file = NULL;
	int rc = file_create(path, bytes, adopted, mode, flags, &new_file);

	if (rc < 0)
		return rc;
	if (!(flags & GPUMEM_CREATE_PENDING))
		rc = client_publish(new_file);
	if (rc < 0)
		client_file_free(new_file);
	else
		*file = new_file;
	return rc;
}

int client_create(const char *path, uint64_t bytes, size_t alignment, mode_t mode, int flags,
		  struct gpumem **file)
{
	int rc = arguments_check(bytes, alignment, flags);

	return rc < 0 ? rc : file_create_named(path, bytes, NULL, mode, flags, file);
}

int client_create_adopted(const char *path, const struct client_adoption *from, mode_t mode,
			  int flags, struct gpumem **file)
{
	int rc = arguments_check(from->size, 0, flags);

	return rc < 0 ? rc : file_create_named(path, from->size, from, mode, flags, file);
}

int client_publish(struct gpumem *file)
{
	if (!file->pending)
		return client_fail(EINVAL, "the file has its name already");
	int rc = client_replace_finish(file->pending);

	free(file->pending);
	file->pending = NULL;
	return rc;
}
