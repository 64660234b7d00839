/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_align: rewrites a safetensors file so that its tensors can be viewed in place. A fork does
 * not wait for a copy to end, because the copy has no state that a child could find half written.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/lib/gpumem.h"
#include "client/lib/replace.h"
#include "client/lib/safetensors/document.h"
#include "client/lib/safetensors/safetensors.h"
#include "common/cleanup.h"
#include "common/io.h"

#define PIECE_BYTES   (4U << 20)
#define ALIGNMENT_MAX (1U << 20)

struct job {
	const char *source_path;
	int source;
	struct stat found;	    /* the source */
	uint64_t source_data_start; /* of the data in the source */
	struct safetensors *header; /* first of the source, then of the target */
};

static int path_fail(const char *path)
{
	return client_fail(errno, "%s: %s", path, strerror(errno));
}

static int target_write(int fd, const char *path, const void *bytes, size_t size, uint64_t offset)
{
	int rc = io_write_at(fd, bytes, size, offset, NULL);

	return rc < 0 ? client_fail(-rc, "%s: %s", path, strerror(-rc)) : 0;
}

static int source_open(struct job *job)
{
	/* O_NONBLOCK: open(2) must not wait for the other end of a FIFO. */
	job->source = open(job->source_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (job->source < 0 || fstat(job->source, &job->found) < 0)
		return path_fail(job->source_path);
	return 0;
}

/* Reads the source's header and makes the target's header of it. */
static int header_make(struct job *job, size_t alignment)
{
	int rc = client_safetensors_read(job->source, &job->header);

	if (rc == 0) {
		job->source_data_start = job->header->api.data_start;
		rc = client_safetensors_pad(job->header, alignment);
	}
	return rc < 0 ? client_fail_in(job->source_path, rc) : 0;
}

/* Copies within one filesystem; on a GPU, the GPU copies. Gives the number of bytes copied. The
 * caller reads and writes the rest, and sees any error there. */
static uint64_t data_copy_in_filesystem(const struct job *job, int target)
{
	uint64_t bytes_copied = 0;

	(void)io_copy_at(job->source, job->source_data_start, target, job->header->api.data_start,
			 job->header->data_bytes, &bytes_copied);
	return bytes_copied;
}

static int data_copy(const struct job *job, int target, const char *path)
{
	uint64_t size = job->header->data_bytes,
		 bytes_copied = data_copy_in_filesystem(job, target);
	int rc = 0;

	if (bytes_copied == size)
		return 0;
	AUTO_FREE char *piece = malloc(PIECE_BYTES);
	if (!piece)
		return client_fail(ENOMEM, "%s: no memory to copy by", path);
	while (rc == 0 && bytes_copied < size) {
		size_t n =
		    size - bytes_copied < PIECE_BYTES ? (size_t)(size - bytes_copied) : PIECE_BYTES;
		rc = client_safetensors_read_bytes(job->source, piece, n,
						   job->source_data_start + bytes_copied);
		if (rc < 0)
			return client_fail_in(job->source_path, rc);
		rc = target_write(target, path, piece, n,
				  job->header->api.data_start + bytes_copied);
		bytes_copied += n;
	}
	return rc;
}

static int target_write_file(const struct job *job, int target, const char *path)
{
	const struct safetensors *header = job->header;
	uint64_t length = htole64(header->text_bytes);

	/* With the size known first, a GPU's memory is allocated in one piece. */
	if (ftruncate(target, (off_t)(header->api.data_start + header->data_bytes)) < 0)
		return path_fail(path);
	int rc = target_write(target, path, &length, sizeof(length), 0);
	if (rc == 0)
		rc = target_write(target, path, header->text, header->text_bytes, sizeof(length));
	return rc == 0 ? data_copy(job, target, path) : rc;
}

static int target_replace(const struct job *job, const char *path)
{
	struct client_replace replace;
	int rc = client_replace_begin(path, job->found.st_mode, CLIENT_REPLACE_FILE, &job->found,
				      &replace);

	if (rc < 0)
		return rc;
	/* Another user may have put another file in the place of the source. */
	if (!replace.keeps_owner && strcmp(path, job->source_path) == 0)
		rc = client_fail(ESTALE, "%s: another process has replaced it meanwhile", path);
	if (rc == 0)
		rc = target_write_file(job, replace.fd, path);
	if (rc == 0)
		return client_replace_finish(&replace);
	client_replace_abandon(&replace);
	return rc;
}

/* Whether source and target are one file, whose header needs no change. */
static bool is_done(const struct job *job, const char *target)
{
	struct stat old;

	return job->header->api.data_start == job->source_data_start && stat(target, &old) == 0 &&
	       beneath_is_same(&job->found, &old);
}

static int alignment_check(size_t alignment)
{
	if (!alignment || alignment > ALIGNMENT_MAX || alignment & (alignment - 1))
		return client_fail(EINVAL, "alignment %zu is not a power of two from 1 to %u",
				   alignment, ALIGNMENT_MAX);
	return 0;
}

int gpumem_align(const char *source, const char *target, size_t alignment,
		 struct gpumem_safetensors **header)
{
	struct job job = {.source_path = source, .source = -1};
	int rc = alignment_check(alignment);

	if (rc == 0)
		rc = source_open(&job);
	if (rc == 0)
		rc = header_make(&job, alignment);
	if (rc == 0 && !is_done(&job, target))
		rc = target_replace(&job, target);
	if (job.source >= 0)
		close(job.source);
	if (rc == 0 && header) {
		*header = &job.header->api;
		return 0;
	}
	client_safetensors_free(job.header);
	return client_errno_return(rc);
}
