/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads the header of an open safetensors file. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/core/error.h"
#include "client/lib/safetensors/safetensors.h"
#include "common/io.h"

_Static_assert(offsetof(struct safetensors, api) == 0, "both have the same address");

int client_safetensors_read_bytes(int fd, void *to, size_t bytes, uint64_t offset)
{
	uint64_t bytes_read = 0;
	int rc = io_read_at(fd, to, bytes, offset, &bytes_read);

	if (rc < 0)
		return client_fail(-rc, "%s", strerror(-rc));
	if (bytes_read < bytes)
		return client_fail(EINVAL, "the file became shorter while it was read");
	return 0;
}

static int file_get_size(int fd, uint64_t *bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return client_fail(errno, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return client_fail(EISDIR, "it is a directory");
	if (!S_ISREG(st.st_mode))
		return client_fail(EINVAL, "it is no regular file");
	*bytes = (uint64_t)st.st_size;
	return 0;
}

/* Reads the length that the header claims to have. */
static int header_read_length(int fd, uint64_t file_bytes, uint64_t *length)
{
	if (file_bytes < SAFETENSORS_LENGTH_BYTES)
		return client_fail(EINVAL, "a file of %" PRIu64 " bytes is no safetensors file",
				   file_bytes);
	int rc = client_safetensors_read_bytes(fd, length, sizeof(*length), 0);
	if (rc < 0)
		return rc;
	*length = le64toh(*length);
	if (*length > SAFETENSORS_HEADER_MAX)
		return client_fail(
		    EINVAL,
		    "no safetensors file, or damaged: its first 8 bytes are the length "
		    "of no header, which has at most %d bytes",
		    SAFETENSORS_HEADER_MAX);
	if (*length > file_bytes - SAFETENSORS_LENGTH_BYTES)
		return client_fail(
		    EINVAL, "a header of %" PRIu64 " bytes does not fit into the file of %" PRIu64,
		    *length, file_bytes);
	return 0;
}

int client_safetensors_read(int fd, struct safetensors **header)
{
	uint64_t file_bytes = 0, length = 0;
	int rc = file_get_size(fd, &file_bytes);

	if (rc == 0)
		rc = header_read_length(fd, file_bytes, &length);
	if (rc < 0)
		return rc;
	char *text = malloc(length + 1);
	if (!text)
		return client_fail(ENOMEM, "no memory for a header of %" PRIu64 " bytes", length);
	rc = client_safetensors_read_bytes(fd, text, length, SAFETENSORS_LENGTH_BYTES);
	if (rc < 0) {
		free(text);
		return rc;
	}
	return client_safetensors_parse(text, length,
					file_bytes - SAFETENSORS_LENGTH_BYTES - length, header);
}

int gpumem_safetensors_read(int fd, struct gpumem_safetensors **header)
{
	struct safetensors *safetensors = NULL;
	int rc = client_safetensors_read(fd, &safetensors);

	if (rc == 0)
		*header = &safetensors->api;
	return client_errno_return(rc);
}

void gpumem_safetensors_free(struct gpumem_safetensors *header)
{
	client_safetensors_free((struct safetensors *)header);
}
