/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/system/bounded.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backend/system/system.h"
#include "backend/system/tmpfs.h"
#include "common/cleanup.h"

#define ROOT_ATTRIBUTE "trusted.gpumemfs.root"

/* The handle of a directory in tmpfs has 12 bytes. */
#define HANDLE_MAX 32

union root_handle {
	struct file_handle handle;
	char bytes[sizeof(struct file_handle) + HANDLE_MAX];
};

static int root_open(int object)
{
	union root_handle root;

	if (fgetxattr(object, ROOT_ATTRIBUTE, &root, sizeof(root)) < (ssize_t)sizeof(root.handle))
		return -1;
	return open_by_handle_at(object, &root.handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int root_store(int root, int object)
{
	union root_handle stored = {.handle = {.handle_bytes = HANDLE_MAX}};
	int mount;

	if (name_to_handle_at(root, "", &stored.handle, &mount, AT_EMPTY_PATH) < 0)
		return -1;
	return fsetxattr(object, ROOT_ATTRIBUTE, &stored, sizeof(stored), 0);
}

int bounded_new(const char *huge)
{
	AUTO_CLOSE int root = tmpfs_new(SYSTEM_UNLIMITED, huge);
	int object = -1, probe = -1;

	if (root < 0) {
		errno = -root;
		return -1;
	}
	object = tmpfs_object(root);
	/* Opening by handle needs a capability that the calls before do not need. */
	if (object >= 0 && root_store(root, object) == 0)
		probe = root_open(object);
	if (probe >= 0) {
		close(probe);
		return object;
	}

	int error = errno;

	if (object >= 0)
		close(object);
	errno = error;
	return -1;
}

bool bounded_is(int fd)
{
	return fgetxattr(fd, ROOT_ATTRIBUTE, NULL, 0) > 0;
}

uint64_t bounded_limit(int fd)
{
	struct statfs fs;

	return fd < 0 || fstatfs(fd, &fs) < 0 ? 0 : (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
}

int bounded_set_limit(int fd, uint64_t bytes)
{
	AUTO_CLOSE int root = root_open(fd);

	return root < 0 ? -errno : tmpfs_resize(root, bytes);
}
