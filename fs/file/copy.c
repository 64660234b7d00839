/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* copy_file_range(2). The first attempt holds the layout_lock of both files shared. If the target
 * lacks memory, a second attempt holds the target's layout_lock exclusive, so that new memory needs
 * no zeroing and no reader sees the memory before the copy is complete. */
#include <errno.h>
#include <unistd.h>

#include "fs/extents/extents_copy.h"
#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/internal.h"

/* The most that a call moves if either file is in host/: takes about 25 ms. */
#define HOST_STEP (256ULL << 20)

/* Bytes that a GPU copies while the CPU enqueues a copy, which takes about 7 us on the reference
 * machine. */
#define LARGE_PIECE (16ULL << 20)

enum lock_mode { LOCK_SHARED, LOCK_EXCLUSIVE };

struct copying {
	struct file *from, *to;
	const struct file_call *call;
	uint64_t from_offset, to_offset, bytes;
	enum lock_mode mode; /* how the target's layout_lock is held */
	brlock_token from_token, to_token;
	struct extents new_extents;   /* memory allocated for this copy */
	struct allocation allocation; /* the allocation of new_extents */
	struct bounce *bounce;
	uint64_t n_copied; /* target in host/: bytes copied */
};

static void file_lock(struct copying *copying, struct file *file)
{
	if (file == copying->to && copying->mode == LOCK_EXCLUSIVE)
		file_lock_layout(file);
	else if (file == copying->to)
		copying->to_token = brlock_read_lock(&file->layout_lock);
	else
		copying->from_token = brlock_read_lock(&file->layout_lock);
}

/* In the order of the addresses, so that two copies in opposite directions do not wait for each
 * other. */
static void files_lock(struct copying *copying)
{
	struct file *first = copying->from < copying->to ? copying->from : copying->to;
	struct file *second = first == copying->from ? copying->to : copying->from;

	file_lock(copying, first);
	if (second != first)
		file_lock(copying, second);
}

static void files_unlock(struct copying *copying)
{
	if (copying->mode == LOCK_EXCLUSIVE)
		brlock_write_unlock(&copying->to->layout_lock);
	else
		brlock_read_unlock(&copying->to->layout_lock, copying->to_token);
	if (copying->from != copying->to)
		brlock_read_unlock(&copying->from->layout_lock, copying->from_token);
}

static uint64_t target_offset(const struct copying *copying, uint64_t from)
{
	return copying->to_offset + (from - copying->from_offset);
}

static bool source_next_run(struct copying *copying, uint64_t at, struct data_run *run)
{
	return file_next_run(copying->from, at, copying->from_offset + copying->bytes, run);
}

static bool target_lacks_memory(struct copying *copying)
{
	struct data_run run;

	if (!file_is_device(copying->to))
		return atomic_load(&copying->to->object.fd) < 0;
	for (uint64_t at = copying->from_offset; source_next_run(copying, at, &run); at = run.to) {
		if (run.data &&
		    extents_missing(&copying->to->extents, target_offset(copying, run.from),
				    target_offset(copying, run.to)))
			return true;
	}
	return false;
}

/* Allocates memory for the source's data. If memory is short, shortens the copy. */
static int target_alloc(struct copying *copying)
{
	struct file *to = copying->to;
	struct volume *volume = atomic_load(&to->volume);
	uint64_t size = atomic_load(&to->fields->size), end = copying->to_offset + copying->bytes;
	uint64_t prealloc_end =
	    layout_prealloc_end(end, size, atomic_load(&to->allocated), volume->max_chunk);
	struct allocation *allocation = &copying->allocation;
	struct data_run run;
	int rc = 0;

	*allocation = allocation_for(volume, copying->call, size > end ? size : end);
	allocation->fill = POOL_UNDEFINED;
	allocation->target = &to->extents;
	allocation->new_extents = &copying->new_extents;
	for (uint64_t at = copying->from_offset; source_next_run(copying, at, &run); at = run.to) {
		uint64_t start = target_offset(copying, run.from),
			 stop = target_offset(copying, run.to);

		if (!run.data)
			continue;
		rc = alloc_run(allocation, start, stop, stop == end ? prealloc_end : stop);
		if (rc < 0) {
			copying->bytes =
			    extents_covered(&to->extents, start, stop) - copying->to_offset;
			break;
		}
	}
	device_update_accounting(to, (int64_t)allocation->bytes);
	return rc < 0 && !copying->bytes ? rc : 0;
}

/* Zeroes new memory outside the copied range, which comes from rounding to units or from allocating
 * ahead of the end. */
static int target_zero_around(struct copying *copying)
{
	uint64_t end = copying->to_offset + copying->bytes;
	int rc = extents_zero(copying->call->copier, &copying->new_extents, 0, copying->to_offset);

	if (rc == 0)
		rc = extents_zero(copying->call->copier, &copying->new_extents, end, UINT64_MAX);
	/* Wait: in a copy within the same file, the zeroed memory may belong to the source. */
	return device_wait(copying->call, rc);
}

static void target_alloc_undo(struct copying *copying)
{
	uint64_t bytes = copying->allocation.bytes;

	if (!bytes)
		return;
	allocation_undo(&copying->allocation);
	device_update_accounting(copying->to, -(int64_t)bytes);
}

static int copy_hole(struct copying *copying, const struct data_run *run)
{
	uint64_t start = target_offset(copying, run->from), end = target_offset(copying, run->to);

	if (file_is_device(copying->to))
		return extents_zero(copying->call->copier, &copying->to->extents, start, end);
	return object_punch(atomic_load(&copying->to->object.fd), start, end);
}

/* Copies the pieces, cut at the borders of both files' extents, of min_bytes to max_bytes. */
static int copy_pieces(struct copying *copying, const struct data_run *run, uint64_t min_bytes,
		       uint64_t max_bytes)
{
	struct extents_walk sources = extents_walk(&copying->from->extents, run->from, run->to);
	struct segment source, target;
	int rc = 0;

	while (rc == 0 && extents_next(&sources, &source)) {
		uint64_t start = target_offset(copying, source.offset);
		struct extents_walk targets =
		    extents_walk(&copying->to->extents, start, start + source.bytes);

		while (rc == 0 && extents_next(&targets, &target)) {
			/* In a copy within a file, memory allocated for the target can fill a hole
			 * of the source, for which the target has no memory: both read as zero. */
			if (!target.span || target.bytes < min_bytes || target.bytes > max_bytes)
				continue;
			rc = copy_across(copying->call->copier, target.span, target.span_offset,
					 source.span, source.span_offset + (target.offset - start),
					 target.bytes);
		}
	}
	return rc;
}

/* Large pieces first: the GPU copies large pieces while the CPU enqueues the small pieces. */
static int copy_on_devices(struct copying *copying, const struct data_run *run)
{
	int rc = 0;

	if (run->to - run->from >= LARGE_PIECE)
		rc = copy_pieces(copying, run, LARGE_PIECE, UINT64_MAX);
	return rc < 0 ? rc : copy_pieces(copying, run, 0, LARGE_PIECE - 1);
}

static int copy_data(struct copying *copying, const struct data_run *run)
{
	uint64_t target = target_offset(copying, run->from), bytes = run->to - run->from;
	bool from_device = file_is_device(copying->from), to_device = file_is_device(copying->to);
	int rc = 0;

	if (from_device && to_device)
		return copy_on_devices(copying, run);
	if (!from_device && !to_device)
		return object_copy(atomic_load(&copying->from->object.fd), run->from,
				   atomic_load(&copying->to->object.fd), target, bytes,
				   &copying->n_copied);
	if (!copying->bounce)
		rc = bounce_new(copying->call, copying->bytes, &copying->bounce);
	if (rc < 0)
		return rc;
	if (to_device)
		return bounce_in(copying->bounce, copying->from, run->from, &copying->to->extents,
				 target, bytes);
	return bounce_out(copying->bounce, &copying->from->extents, run->from, copying->to,
			  atomic_load(&copying->to->object.fd), target, bytes, &copying->n_copied);
}

static int copy_runs(struct copying *copying)
{
	struct data_run run;
	int rc = 0;

	for (uint64_t at = copying->from_offset; rc == 0 && source_next_run(copying, at, &run);
	     at = run.to) {
		copying->n_copied = run.from - copying->from_offset;
		rc = run.data ? copy_data(copying, &run) : copy_hole(copying, &run);
		if (rc == 0)
			copying->n_copied = run.to - copying->from_offset;
	}
	return device_wait(copying->call, rc);
}

static ssize_t copy_to_device(struct copying *copying)
{
	int rc = copying->mode == LOCK_EXCLUSIVE ? target_alloc(copying) : 0;

	if (rc == 0)
		rc = target_zero_around(copying);
	if (rc == 0)
		rc = copy_runs(copying);
	if (rc < 0) {
		target_alloc_undo(copying);
		return rc;
	}
	if (copying->new_extents.count)
		allocation_note_unit(&copying->allocation, copying->to);
	/* Only now does the memory have its content. */
	file_record_added(copying->call, copying->to, &copying->new_extents);
	device_raise_size(copying->to, copying->to_offset + copying->bytes);
	return (ssize_t)copying->bytes;
}

static ssize_t copy_to_object(struct copying *copying)
{
	uint64_t end = copying->to_offset + copying->bytes;
	int rc = host_make_object(copying->to, atomic_load(&copying->to->volume), copying->call);
	int fd = atomic_load(&copying->to->object.fd);

	if (rc < 0)
		return rc;

	int64_t precharged = host_precharge(copying->to, copying->call, copying->to_offset, end);

	if (precharged < 0)
		return precharged;
	rc = copy_runs(copying);
	end = copying->to_offset + copying->n_copied;
	/* A hole at the end is not written; a short write is better than an error. */
	if (copying->n_copied && end > object_size(fd) && ftruncate(fd, (off_t)end) < 0)
		rc = -errno;
	host_update_accounting(copying->to, copying->call, precharged);
	return copying->n_copied ? (ssize_t)copying->n_copied : rc;
}

static bool copy_overlaps(const struct copying *copying)
{
	return copying->from == copying->to &&
	       copying->from_offset < copying->to_offset + copying->bytes &&
	       copying->to_offset < copying->from_offset + copying->bytes;
}

/* A file of another program's memory does not grow. */
static int target_limit(struct copying *copying)
{
	uint64_t size = file_size(copying->to);

	if (!file_is_foreign(copying->to))
		return 0;
	if (copying->to_offset >= size)
		return -EFBIG;
	if (copying->bytes > size - copying->to_offset)
		copying->bytes = size - copying->to_offset;
	return 0;
}

/* -EAGAIN: try again with the target's layout_lock held exclusive. */
static ssize_t copy_locked(struct copying *copying)
{
	uint64_t size = file_size(copying->from);
	int rc = target_limit(copying);

	if (rc < 0)
		return rc;

	if (copying->from_offset >= size)
		return 0;
	if (copying->bytes > size - copying->from_offset)
		copying->bytes = size - copying->from_offset;
	if (copy_overlaps(copying))
		return -EINVAL;
	if (!(file_is_device(copying->from) && file_is_device(copying->to)) &&
	    copying->bytes > HOST_STEP)
		copying->bytes = HOST_STEP;
	if (copying->mode == LOCK_SHARED && target_lacks_memory(copying))
		return -EAGAIN;
	return file_is_device(copying->to) ? copy_to_device(copying) : copy_to_object(copying);
}

static ssize_t copy_once(struct copying copying)
{
	files_lock(&copying);

	ssize_t n = copy_locked(&copying);

	file_drop_ahead(copying.to);

	bounce_free(copying.bounce);
	extents_free(&copying.new_extents);
	files_unlock(&copying);
	return n;
}

ssize_t file_copy(struct file *from, uint64_t from_offset, struct file *to,
		  const struct file_call *call, uint64_t to_offset, uint64_t bytes)
{
	struct copying copying = {
	    .from = from,
	    .to = to,
	    .call = call,
	    .from_offset = from_offset,
	    .to_offset = to_offset,
	    .bytes = bytes,
	};

	if (bytes == 0 || from_offset >= FILE_SIZE_MAX)
		return 0;
	if (file_is_missing(from) || file_is_missing(to))
		return -EIO;
	if (to_offset >= FILE_SIZE_MAX)
		return -EFBIG;
	file_note_use(from, file_volume(from));
	file_note_use(to, file_volume(to));
	if (bytes > FILE_SIZE_MAX - to_offset)
		copying.bytes = FILE_SIZE_MAX - to_offset;

	ssize_t n = copy_once(copying);

	if (n != -EAGAIN)
		return n;
	if (journal_room(call->journal))
		return -ENOSPC;
	struct file_call own_call = *call;

	copying.mode = LOCK_EXCLUSIVE;
	copying.call = &own_call;
	do {
		n = copy_once(copying);
	} while (n == -ENOSPC && file_find_room(file_volume(to), &own_call, copying.bytes));
	return n;
}
