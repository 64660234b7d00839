/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sets of tensors: the index in a directory, and the files that it names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/core/error.h"
#include "client/lib/safetensors/document.h"
#include "client/lib/safetensors/safetensors.h"
#include "client/lib/safetensors/tensor_index.h"
#include "common/cleanup.h"

#define INDEX_NAME "tensors.json"
#define INDEX_MAX  SAFETENSORS_HEADER_MAX

_Static_assert(offsetof(struct tensor_index, api) == 0, "both have the same address");

static int index_load(int fd, struct tensor_index **index)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return client_fail(errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > INDEX_MAX)
		return client_fail(EINVAL, "no file of at most %d bytes", INDEX_MAX);
	size_t bytes = (size_t)st.st_size;
	AUTO_FREE char *text = malloc(bytes + 1);

	if (!text)
		return client_fail(ENOMEM, "no memory for an index of %zu bytes", bytes);
	int rc = client_safetensors_read_bytes(fd, text, bytes, 0);

	return rc < 0 ? rc : client_tensor_index_parse(text, bytes, index);
}

static int set_read(const char *directory, struct gpumem_set **set)
{
	AUTO_FREE char *path = NULL;
	struct tensor_index *index = NULL;

	if (asprintf(&path, "%s/" INDEX_NAME, directory) < 0)
		return client_fail(ENOMEM, "no memory");
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return client_fail(errno, "%s: %s", path, strerror(errno));
	int rc = index_load(fd, &index);

	if (rc < 0)
		return client_fail_in(path, rc);
	index->directory = strdup(directory);
	if (!index->directory) {
		client_tensor_index_free(index);
		return client_fail(ENOMEM, "no memory");
	}
	*set = &index->api;
	return 0;
}

int gpumem_set_read(const char *directory, struct gpumem_set **set)
{
	return client_errno_return(set_read(directory, set));
}

void gpumem_set_free(struct gpumem_set *set)
{
	client_tensor_index_free((struct tensor_index *)set);
}

/* Whether the file is the one that the index means, and has all of its tensors. */
static int file_check(gpumem *file, const char *path, const struct tensor_index *index,
		      size_t number)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	gpumem_get_info(file, &info);
	if (info.inode != index->inodes[number])
		return client_fail(ESTALE, "%s: another file has this name", path);
	for (size_t i = 0; i < index->api.n_tensors; i++) {
		const struct gpumem_set_tensor *tensor = &index->tensors[i];

		if (tensor->size && tensor->file == number &&
		    (tensor->offset > info.size || tensor->size > info.size - tensor->offset))
			return client_fail(
			    EINVAL, "%s: tensor %zu of the index ends behind the file", path, i);
	}
	return 0;
}

/* Between the end of the process and that of the name the file has no memory: EIO. */
static int open_fail(const char *path, int error)
{
	if (error == ENOENT || error == EIO)
		return client_fail(ESTALE, "%s: the process that shared it has ended", path);
	return client_fail(error, "%s: %s", path, strerror(error));
}

static int file_open(const struct tensor_index *index, size_t number, int flags, gpumem **file)
{
	AUTO_FREE char *path = NULL;

	if (flags != O_RDONLY && flags != O_RDWR)
		return client_fail(EINVAL, "flags are O_RDONLY or O_RDWR");
	if (number >= index->api.n_files)
		return client_fail(EINVAL, "the set has no file %zu", number);
	if (asprintf(&path, "%s/%s", index->directory, index->files[number]) < 0)
		return client_fail(ENOMEM, "no memory");
	/* A user who may write the directory could name a file elsewhere. */
	AUTO_CLOSE int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return open_fail(path, errno);
	*file = gpumem_open_fd(fd);
	if (!*file)
		return errno == EIO ? open_fail(path, EIO) : -errno;
	int rc = file_check(*file, path, index, number);

	if (rc < 0)
		gpumem_close(*file);
	return rc;
}

gpumem *gpumem_set_open(const struct gpumem_set *set, size_t number, int flags)
{
	gpumem *file = NULL;
	int rc = file_open((const struct tensor_index *)set, number, flags, &file);

	return client_errno_return(rc) < 0 ? NULL : file;
}
