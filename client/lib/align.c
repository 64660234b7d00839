/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_align: rewrites a safetensors file so that its tensors can be viewed in place. A fork does
 * not wait for a copy to end, because the copy has no state that a child could find half written.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/core/io.h"
#include "client/core/process.h"
#include "client/lib/gpumem.h"
#include "client/lib/replace.h"
#include "client/lib/safetensors.h"
#include "common/cleanup.h"

#define PIECE_BYTES	 (4U << 20)
#define ALIGNMENT_MAX	 (1U << 20)
#define RESULT_BYTES_MIN (offsetof(struct gpumem_align_result, bytes) + sizeof(size_t))

/* Long paths are cut at the front, so that the error's text has room. */
#define SHOWN_PATH 200

/* source: the old file. text: the header of the old file, without padding. */
struct job {
	const char *source_path;
	int source;
	struct stat st;
	char *text;
	size_t stored, length; /* bytes of the header: in the old file, and in text */
	struct safetensors header;
	uint64_t padding;
};

static int path_fail(const char *path)
{
	return client_fail(errno, "%s: %s", path, strerror(errno));
}

/* Puts the source's path before the error text. */
static int source_fail(const struct job *job, int rc)
{
	const char *path = job->source_path;
	size_t bytes = strlen(path);
	char what[640];

	snprintf(what, sizeof(what), "%s", client_error_text());
	if (bytes > SHOWN_PATH)
		return client_fail(-rc, "...%s: %s", path + bytes - SHOWN_PATH, what);
	return client_fail(-rc, "%s: %s", path, what);
}

/* Gives -EINVAL if the file has fewer bytes. */
static int source_read(const struct job *job, void *bytes, size_t size, uint64_t offset)
{
	ssize_t n = client_io_read_at(job->source, bytes, size, offset);

	if (n < 0)
		return client_fail((int)-n, "%s: %s", job->source_path, strerror((int)-n));
	if ((size_t)n < size)
		return client_fail(EINVAL, "%s became shorter while it was read", job->source_path);
	return 0;
}

static int target_write(int fd, const char *path, const void *bytes, size_t size, uint64_t offset)
{
	int rc = client_io_write_at(fd, bytes, size, offset);

	return rc < 0 ? client_fail(-rc, "%s: %s", path, strerror(-rc)) : 0;
}

static int source_open(struct job *job)
{
	/* O_NONBLOCK: open(2) must not wait for the other end of a FIFO. */
	job->source = open(job->source_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (job->source < 0 || fstat(job->source, &job->st) < 0)
		return path_fail(job->source_path);
	if (S_ISDIR(job->st.st_mode))
		return client_fail(EISDIR, "%s is a directory", job->source_path);
	if (!S_ISREG(job->st.st_mode))
		return client_fail(EINVAL, "%s is no regular file", job->source_path);
	return 0;
}

/* Reads the length that the header claims to have. */
static int header_read_length(struct job *job)
{
	uint64_t file_bytes = (uint64_t)job->st.st_size, length;

	if (file_bytes < SAFETENSORS_LENGTH_BYTES)
		return client_fail(EINVAL, "%s: a file of %" PRIu64 " bytes is no safetensors file",
				   job->source_path, file_bytes);
	int rc = source_read(job, &length, sizeof(length), 0);
	if (rc < 0)
		return rc;
	length = le64toh(length);
	if (length > SAFETENSORS_HEADER_MAX)
		return client_fail(
		    EINVAL, "%s: a header of %" PRIu64 " bytes is more than the format allows (%d)",
		    job->source_path, length, SAFETENSORS_HEADER_MAX);
	if (length > file_bytes - SAFETENSORS_LENGTH_BYTES)
		return client_fail(EINVAL,
				   "%s: a header of %" PRIu64
				   " bytes does not fit into the file of %" PRIu64,
				   job->source_path, length, file_bytes);
	job->stored = (size_t)length;
	return 0;
}

static uint64_t source_data_bytes(const struct job *job)
{
	return (uint64_t)job->st.st_size - SAFETENSORS_LENGTH_BYTES - job->stored;
}

static int header_read(struct job *job)
{
	int rc = header_read_length(job);

	if (rc < 0)
		return rc;
	job->text = malloc(job->stored + 1);
	if (!job->text)
		return client_fail(ENOMEM, "%s: no memory for a header of %zu bytes",
				   job->source_path, job->stored);
	rc = source_read(job, job->text, job->stored, SAFETENSORS_LENGTH_BYTES);
	if (rc < 0)
		return rc;
	rc = client_safetensors_parse(job->text, job->stored, source_data_bytes(job), &job->header);
	if (rc < 0)
		return source_fail(job, rc);
	job->length = job->stored;
	while (job->text[job->length - 1] == ' ')
		job->length--;
	return 0;
}

static int header_pad(struct job *job, size_t alignment)
{
	int64_t padding = client_safetensors_padding(&job->header, job->length, alignment);

	if (padding < 0)
		return source_fail(job, (int)padding);
	if (job->length + (uint64_t)padding > SAFETENSORS_HEADER_MAX)
		return client_fail(EINVAL, "%s: its header has no room for padding",
				   job->source_path);
	char *text = realloc(job->text, job->length + (size_t)padding);
	if (!text)
		return client_fail(ENOMEM, "%s: no memory for its header", job->source_path);
	memset(text + job->length, ' ', (size_t)padding);
	job->text = text;
	job->padding = (uint64_t)padding;
	return 0;
}

static uint64_t target_data_start(const struct job *job)
{
	return SAFETENSORS_LENGTH_BYTES + job->length + job->padding;
}

/* Copies within one filesystem; on a GPU, the GPU copies. Gives the number of bytes copied. The
 * caller reads and writes the rest, and sees any error there. */
static uint64_t data_copy_in_filesystem(const struct job *job, int target)
{
	ssize_t n = client_io_copy_range(job->source, SAFETENSORS_LENGTH_BYTES + job->stored,
					 target, target_data_start(job), source_data_bytes(job));

	return n < 0 ? 0 : (uint64_t)n;
}

static int data_copy(const struct job *job, int target, const char *path)
{
	uint64_t size = source_data_bytes(job), done = data_copy_in_filesystem(job, target);
	int rc = 0;

	if (done == size)
		return 0;
	AUTO_FREE char *piece = malloc(PIECE_BYTES);
	if (!piece)
		return client_fail(ENOMEM, "%s: no memory to copy by", path);
	while (rc == 0 && done < size) {
		size_t n = size - done < PIECE_BYTES ? (size_t)(size - done) : PIECE_BYTES;
		rc = source_read(job, piece, n, SAFETENSORS_LENGTH_BYTES + job->stored + done);
		if (rc == 0)
			rc = target_write(target, path, piece, n, target_data_start(job) + done);
		done += n;
	}
	return rc;
}

static int target_write_file(const struct job *job, int target, const char *path)
{
	uint64_t length = htole64(job->length + job->padding);

	/* With the size known first, a GPU's memory is allocated in one piece. */
	if (ftruncate(target, (off_t)(target_data_start(job) + source_data_bytes(job))) < 0)
		return path_fail(path);
	int rc = target_write(target, path, &length, sizeof(length), 0);
	if (rc == 0)
		rc = target_write(target, path, job->text, job->length + job->padding,
				  sizeof(length));
	return rc == 0 ? data_copy(job, target, path) : rc;
}

static int target_replace(const struct job *job, const char *path)
{
	struct client_replace replace;
	int rc = client_replace_begin(path, job->st.st_mode, &replace);

	if (rc < 0)
		return rc;
	rc = target_write_file(job, replace.fd, path);
	if (rc == 0)
		return client_replace_finish(path, &replace);
	client_replace_abandon(&replace);
	return rc;
}

static struct gpumem_tensor tensor_describe(const struct job *job, size_t alignment, size_t i)
{
	const struct safetensors_tensor *tensor = &job->header.tensors[i];
	uint64_t offset = target_data_start(job) + tensor->begin,
		 size = tensor->end - tensor->begin;
	uint64_t at = size ? offset : 0;

	return (struct gpumem_tensor){
	    .name = tensor->name,
	    .dtype = tensor->dtype,
	    .offset = offset,
	    .size = size,
	    .unit = tensor->unit,
	    .place = at % tensor->unit ? GPUMEM_MISALIGNED
		     : at % alignment  ? GPUMEM_VIEWABLE
				       : GPUMEM_ALIGNED,
	};
}

static void tensors_report(const struct job *job, size_t alignment,
			   void (*each)(const struct gpumem_tensor *tensor, void *user), void *user,
			   struct gpumem_align_result *result)
{
	uint64_t places[GPUMEM_MISALIGNED + 1] = {0};

	for (size_t i = 0; i < job->header.n_tensors; i++) {
		struct gpumem_tensor tensor = tensor_describe(job, alignment, i);
		places[tensor.place]++;
		if (each)
			each(&tensor, user);
	}
	if (!result)
		return;
	struct gpumem_align_result known = {.bytes = result->bytes,
					    .data_start = target_data_start(job),
					    .aligned = places[GPUMEM_ALIGNED],
					    .viewable = places[GPUMEM_VIEWABLE],
					    .misaligned = places[GPUMEM_MISALIGNED]};
	size_t bytes = known.bytes;
	memset(result, 0, bytes);
	memcpy(result, &known, bytes < sizeof(known) ? bytes : sizeof(known));
}

/* jansson draws its seed once in a process: a child must not find the seed half written. */
static void json_prepare(void)
{
	CLIENT_CALL();
	json_object_seed(0);
}

static int arguments_check(size_t alignment, const struct gpumem_align_result *result)
{
	if (!alignment || alignment > ALIGNMENT_MAX || alignment & (alignment - 1))
		return client_fail(EINVAL, "alignment %zu is not a power of two from 1 to %u",
				   alignment, ALIGNMENT_MAX);
	if (result && result->bytes < RESULT_BYTES_MIN)
		return client_fail(EINVAL, "result->bytes is %zu, the size of no struct",
				   result->bytes);
	return 0;
}

int gpumem_align(const char *source, const char *target, size_t alignment,
		 void (*each)(const struct gpumem_tensor *tensor, void *user), void *user,
		 struct gpumem_align_result *result)
{
	struct job job = {.source_path = source, .source = -1};
	int rc = arguments_check(alignment, result);

	json_prepare();
	if (rc == 0)
		rc = source_open(&job);
	if (rc == 0)
		rc = header_read(&job);
	if (rc == 0)
		rc = header_pad(&job, alignment);
	if (rc == 0)
		rc = target_replace(&job, target);
	if (rc == 0)
		tensors_report(&job, alignment, each, user, result);
	client_safetensors_free(&job.header);
	free(job.text);
	if (job.source >= 0)
		close(job.source);
	if (rc == 0)
		return 0;
	errno = -rc;
	return -1;
}
