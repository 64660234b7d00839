/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: what fs/file/file.c calls with the guard held, shared or exclusive as noted, and
 * how memory is taken and given. */
#ifndef FS_FILE_DEVICE_H
#define FS_FILE_DEVICE_H

#include "fs/file/alloc_policy.h"
#include "fs/file/internal.h"

/* device_io.c. Shared. */
ssize_t device_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		    uint64_t offset);
/* 0: memory is missing, call device_make_room; refused is what that said last, or 0. */
ssize_t device_write(struct file *file, const struct file_call *call, const void *from,
		     size_t bytes, uint64_t offset, int refused);
int64_t device_seek(struct file *file, uint64_t offset, int whence);
void device_raise_size(struct file *file, uint64_t size);
enum copy_path device_copy_path(const struct file_call *call);

/* Completion of the copier's work, which must be asked for on every way out: the host memory
 * given to it is in use until then. rc, or the error that wait finds. */
int device_wait(const struct file_call *call, int rc);

/* Enqueues zeroes over the memory in [from, to); holes stay. */
int device_zero(const struct extents *extents, const struct file_call *call, uint64_t from,
		uint64_t to);
/* The same, complete on return; free of cost where there is no memory at all. */
int device_zero_now(const struct extents *extents, const struct file_call *call, uint64_t from,
		    uint64_t to);

/* device_alloc.c. Exclusive, or on extents that nobody else sees. */
enum allocation_charge { ALLOCATION_CHARGED, ALLOCATION_UNCHARGED };

struct allocation {
	struct volume *volume;
	const struct file_call *call;
	struct layout layout;
	enum pool_fill fill;
	enum allocation_charge charge;
	struct file *recorded; /* whose file's record has it at once; NULL: later, or never */
	struct extents *into;
	struct extents *fresh; /* what was taken is listed here too; may be NULL */
	uint64_t bytes;	       /* taken so far */
};

struct allocation allocation_for(struct volume *volume, const struct file_call *call,
				 uint64_t size);
/* Takes what [from, end) lacks, reaching to wish where that helps. On -ENOSPC, -EDQUOT and other
 * failures what was taken stays taken, in order from the start of the range. */
int alloc_run(struct allocation *allocation, uint64_t from, uint64_t end, uint64_t prealloc_end);
/* Gives back all that is listed in fresh. */
void allocation_undo(struct allocation *allocation);
/* The file's blocks are counted in the unit of this memory from here on. Called where memory was
 * taken, before its record, which has the unit: else the next daemon would count other blocks. */
static inline void allocation_note_unit(const struct allocation *allocation, struct file *file)
{
	atomic_store(&file->tail_shift, (uint8_t)__builtin_ctzll(allocation->layout.unit));
}

/* Gives the memory of extents back to the volume, uncharged, and empties them. */
uint64_t device_release(struct volume *volume, struct extents *extents);
/* Removes [from, to) and gives it back; no whole chunk lies across a border. */
int device_free_range(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
/* After the extents changed: bytes more (or fewer) are taken. */
void device_update_accounting(struct file *file, int64_t bytes);
/* Memory for a write or a copy to [from, end), ahead of the end where it grows. */
int device_make_room(struct file *file, const struct file_call *call, uint64_t from, uint64_t end);
void device_apply_mapping(const struct extents *extents, const struct file_call *call);

/* device_resize.c. Exclusive. */
int device_truncate(struct file *file, const struct file_call *call, uint64_t size);
int device_allocate(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
int device_punch(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
/* Gives back the memory beyond device_kept_end. */
void device_trim(struct file *file, const struct file_call *call);
/* Whether device_trim would find memory to give back. Shared is enough. */
bool device_has_ahead(struct file *file, const struct file_call *call);
/* The offset up to which memory belongs to a file of size bytes; memory beyond was taken ahead. */
uint64_t device_kept_end(struct file *file, const struct file_call *call, uint64_t size);

/* device_rewrite.c. Exclusive. */
/* Fills all of fresh from what from has at the same file offsets, zeroes where that has none. */
int device_fill(const struct file_call *call, const struct extents *fresh,
		const struct extents *from);
struct device_range {
	uint64_t from, to;
};
/* Replaces the extent at index, a whole chunk, by less memory for the ranges of kept, with the same
 * bytes in them; laid out as in a file of size bytes. On an error the extent stays. */
int device_reshape(struct file *file, const struct file_call *call, uint32_t index,
		   const struct device_range kept[2], uint64_t size);

#endif
