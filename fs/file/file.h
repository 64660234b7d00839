/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The bytes of one regular file: extents of device memory and holes (gpuN/), or one shared-memory
 * object (host/). Knows no names and no inodes; whoever calls it brings a struct file_call.
 *
 * Any number of threads read and write one file at once, sharing nothing but what they touch; what
 * changes the layout (growing, shrinking, punching, moving) excludes them for its duration. Bytes
 * never written read as zero. Functions return 0 or a count, or -errno. */
#ifndef FS_FILE_FILE_H
#define FS_FILE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "backend/copy.h"
#include "fs/core/attribute_schema.h"
#include "fs/file/volume.h"

/* The largest file, in bytes: offsets past it are -EFBIG. */
#define FILE_SIZE_MAX ((uint64_t)INT64_MAX & ~(CHUNK_ALIGN - 1))

struct file;
struct journal;

/* Who calls, on whose account. Lives on the caller's stack. */
struct file_call {
	struct copier *copier;
	struct attr_values attrs;
	/* Accounts for bytes more (or, negative, fewer) of memory: 0 or -EDQUOT; giving back always
	 * succeeds. Called under the file's guard. */
	int (*charge)(void *quota_owner, int64_t bytes);
	/* Counts an object's descriptor: 1 more, or fewer (-1), which always succeeds. 0 or
	 * -ENOSPC. NULL: nobody does. */
	int (*count_object)(void *quota_owner, int more);
	void *quota_owner;
	struct journal *journal; /* where changes of the layout are recorded; NULL: nowhere */
	uint64_t ino;		 /* whose they are there */
};

/* An empty file without memory. */
int file_new(struct volume *volume, struct file **file);
/* The same in memory of the caller's, so many bytes that are zero, and away with it from there. */
size_t file_struct_bytes(void);
struct file *file_make(void *memory, struct volume *volume);
void file_end(struct file *file, const struct file_call *call);
/* Where its figures are from now on; they are as they should be. Nobody else has the file yet. */
struct file_fields;
void file_set_fields(struct file *file, struct file_fields *fields);
/* One of restoring, whose memory is not there yet, or not any more. */
void file_restore_free(struct file *file);
/* Gives all memory back, uncharged. No other call is in flight. */
void file_free(struct file *file, const struct file_call *call);

/* These three, file_object and file_backing_id never wait, so a caller may hold a lock that a
 * rename takes between file_move_begin and file_move_end. All others may wait. */
struct volume *file_volume(const struct file *file);
uint64_t file_size(const struct file *file);
/* Bytes of memory that back the file, for st_blocks: without what was taken ahead of its end. */
uint64_t file_allocated(struct file *file);
/* When the object of a host/ file was last written, by whomever: nanoseconds; 0 without one. */
int64_t file_written(const struct file *file);

/* Up to bytes at offset; fewer only at the end of the file. An error after some bytes of a write
 * reports what was written. */
ssize_t file_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		  uint64_t offset);
ssize_t file_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset);

int file_truncate(struct file *file, const struct file_call *call, uint64_t size);
/* fallocate(2): mode 0, FALLOC_FL_KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]; others
 * are -EOPNOTSUPP. */
int file_allocate(struct file *file, const struct file_call *call, int mode, uint64_t offset,
		  uint64_t bytes);
/* SEEK_DATA and SEEK_HOLE: the offset found; -ENXIO as lseek(2) says. */
int64_t file_seek(struct file *file, uint64_t offset, int whence);

/* copy_file_range(2) semantics for two files or one (overlap in one file: -EINVAL), on the device
 * where both lie on one, peer to peer where they do not. Holes of the source stay holes where
 * nothing is there in the target. */
ssize_t file_copy(struct file *from, uint64_t from_offset, struct file *to,
		  const struct file_call *call, uint64_t to_offset, uint64_t bytes);

/* The memory that a copy of the file's data takes, in units of so many bytes; holes take none. */
uint64_t file_data_bytes(struct file *file, uint64_t unit);

/* From here to file_unpromise programs may map a host/ file, and what they store comes past the
 * daemon: it is charged by its size, as if all of it were there. -EDQUOT, -ENOSPC, -ENOTSUP (it
 * is on a GPU by now): not so, and nothing is charged. A lease does the same by itself. */
int file_promise(struct file *file, const struct file_call *call);
void file_unpromise(struct file *file); /* and file_update_accounting */
/* Whether a mapping of the host/ file would take memory that it has not now. */
bool file_is_sparse(const struct file *file);
/* Charges a host/ file for what there is of it, after a lease or a mapping. */
void file_update_accounting(struct file *file, const struct file_call *call);
/* Whether what the object of a host/ file is charged for may change without a request: programs may
 * still have it after handles and leases, or make it longer through a lease for writing. */
bool file_is_out(const struct file *file);

/* Gives back what was taken ahead of the end, and charges what programs wrote to an object past the
 * daemon. After the last writer has closed. */
void file_trim(struct file *file, const struct file_call *call);

/* Lays the file out again by call->attrs.page_size: all of it or nothing (-ENOSPC, -EDQUOT; -EBUSY
 * for an object with a backing id). */
int file_relayout(struct file *file, const struct file_call *call);

/* Moves the bytes to another volume in two steps, so that a rename is all or nothing. begin copies
 * and keeps every other call on the file waiting; end makes the copy the file's memory (commit) or
 * drops it. Between the two the caller takes what locks it needs. The memory that a committed move
 * leaves is given back by file_move_free, which can come after the caller has its answer: it takes
 * milliseconds, and whoever needs the memory meanwhile waits for it. -EBUSY for an object with a
 * backing id: the kernel goes on with that object, whatever the file becomes. */
struct file_move;
enum file_move_end { FILE_MOVE_ABORT, FILE_MOVE_COMMIT };
int file_move_begin(struct file *file, const struct file_call *call, struct volume *to,
		    struct file_move **move);
void file_move_end(struct file_move *move, enum file_move_end end);
void file_move_free(struct file_move *move); /* NULL: nothing */
/* What a record of the move's commit says of the file; the move keeps what it points at. Nothing is
 * to be recorded where it has no kind. */
struct journal_piece;
void file_move_piece(const struct file_move *move, struct journal_piece *piece);

/* The value of user.gpumem.extents: one line per extent, "offset bytes chunk-offset kind"; what
 * kind means is in gpumem(7). */
int file_describe(struct file *file, FILE *out);
/* BAR-mapped bytes of the file's chunks (a shared chunk counts by the file's part). */
uint64_t file_mapped(struct file *file);
/* Bytes of it that were lost when the device failed, and can only be overwritten as a whole. */
uint64_t file_lost(struct file *file);
/* Applies call->attrs.mapping to the chunks that the file has. */
void file_apply_mapping(struct file *file, const struct file_call *call);

/* The shared-memory object of a host/ file, made if need be; the fd stays the file's. -ENOTSUP for
 * a device file. For passthrough. */
int file_object(struct file *file, const struct file_call *call);

/* Passthrough state kept with the file because all opens must share one backing id: 0 none. */
_Atomic int32_t *file_backing_id(struct file *file);

#endif
