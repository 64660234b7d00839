/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The bytes of a single regular file: extents of device memory and holes (gpuN/), or a
 * shared-memory object (host/). Knows no names and no inodes; callers pass a struct file_call.
 *
 * Any number of threads read and write a file at once, without contention for a lock. Operations
 * that change the layout (grow, shrink, punch, move) exclude other operations. Bytes never written
 * read as zero. Functions return 0 or a count, or -errno. */
#ifndef FS_FILE_FILE_H
#define FS_FILE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "fs/file/core/call.h"
#include "fs/file/core/facts.h"
#include "fs/volume/volume.h"

struct ahead_block;
struct object_stat;

/* An empty file without memory. */
int file_new(struct volume *volume, struct file **file);
/* file_make: an empty file in zeroed memory of the caller, of file_struct_bytes(). file_end frees
 * the content but not this memory. */
size_t file_struct_bytes(void);
struct file *file_make(void *memory, struct volume *volume);
void file_end(struct file *file, const struct file_call *call);
/* Moves the file's persistent fields to fields, which have their values already. Only the calling
 * thread has the file. */
struct file_fields;
void file_set_fields(struct file *file, struct file_fields *fields);
/* For recovery: frees a file without memory, or with memory that was released already. */
void file_restore_free(struct file *file);
/* Before the record that the file is gone: holds the chunks that processes may still have. */
void file_hold(struct file *file, const struct file_call *call);
/* Frees all memory and gives the charge back. No other call is in flight. */
void file_free(struct file *file, const struct file_call *call);

/* file_volume, file_size, file_allocated, file_stat, file_object and file_backing_id never wait, so
 * a caller may hold a lock that a rename takes between file_move_begin and file_move_end. All other
 * functions may wait. */
uint64_t file_size(const struct file *file);
/* Bytes of memory that back the file, for st_blocks: without memory allocated ahead of the end. */
uint64_t file_allocated(struct file *file);
/* The time of the last write to the object of a host/ file, by the daemon or a program:
 * nanoseconds; 0 without an object. */
int64_t file_written(const struct file *file);
/* file_size, file_allocated and file_written at once: a single system call for a host/ file. */
struct object_stat file_stat(const struct file *file);

/* Transfers up to bytes at offset; a short count means the end of the file, or for a write an error
 * after some bytes. */
ssize_t file_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		  uint64_t offset);
/* The bytes, if they were copied ahead of a program that reads from front to back: at *at, until
 * the caller gives the block back with ahead_put. NULL: call file_read. */
struct ahead_block *file_read_ahead(struct file *file, const struct file_call *call, size_t bytes,
				    uint64_t offset, const char **at);
ssize_t file_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset);

int file_truncate(struct file *file, const struct file_call *call, uint64_t size);
/* fallocate(2): mode 0, FALLOC_FL_KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]; other
 * modes are -EOPNOTSUPP. */
int file_allocate(struct file *file, const struct file_call *call, int mode, uint64_t offset,
		  uint64_t bytes);
/* SEEK_DATA and SEEK_HOLE: the offset found; -ENXIO as in lseek(2). */
int64_t file_seek(struct file *file, uint64_t offset, int whence);

/* copy_file_range(2) for two files, or within a file (overlap: -EINVAL): on the device if both
 * files are on the same device, else peer to peer. Holes of the source stay holes where the target
 * has no memory. */
ssize_t file_copy(struct file *from, uint64_t from_offset, struct file *to,
		  const struct file_call *call, uint64_t to_offset, uint64_t bytes);

/* The memory that a copy of the file's data takes, in multiples of unit; holes take no memory. */
uint64_t file_data_bytes(struct file *file, uint64_t unit);

/* From here to file_unpromise programs may map a host/ file and store without the daemon's
 * knowledge, so the file is charged by its size, as if all pages were present. -EDQUOT, -ENOSPC,
 * -ENOTSUP (the file is on a GPU by now): no mapping is allowed and the charge is unchanged. A
 * lease makes the same promise. */
int file_promise(struct file *file, const struct file_call *call);
/* Whether the file is in host/ and its object has a tmpfs of its own (host/charge.c). */
bool file_is_bounded(const struct file *file);
/* Whether the file is in host/ and its object could have a tmpfs of its own, but shares one. */
bool file_is_unbounded(const struct file *file);
void file_unpromise(struct file *file); /* then call file_update_accounting */
/* Whether a mapping of the host/ file would allocate further memory. */
bool file_is_sparse(const struct file *file);
/* Charges a host/ file for its actual memory, after a lease or a mapping has ended. */
void file_update_accounting(struct file *file, const struct file_call *call);
/* Whether the charge of a host/ file may change without a request: programs may still have the
 * object after handles and leases, or make the object longer through a lease for writing. */
bool file_is_out(const struct file *file);

/* Call after the last writer has closed: frees memory ahead of the end, and charges pages that
 * programs wrote to an object without the daemon. */
void file_trim(struct file *file, const struct file_call *call);

/* Lays the file out again for call->attrs.page_size, all or nothing. -ENOSPC, -EDQUOT; -EBUSY for
 * an object with a backing id. */
int file_relayout(struct file *file, const struct file_call *call);
/* Lays the file out again with the attributes that the file has: for an object with a tmpfs of its
 * own. */
int file_replace_object(struct file *file, const struct file_call *call);

/* Moves the bytes to another volume in two steps, so that a rename is all or nothing.
 * file_move_begin makes a copy (to NULL: on the same volume) and holds layout_lock, so all other
 * calls on the file wait. file_move_end makes the copy the file's memory (commit) or drops the
 * copy; in between, the caller may take further locks. file_move_free frees the file's former
 * memory, after the reply, because that takes milliseconds; an allocation that needs this memory
 * waits. -EBUSY: leased. -ETXTBSY for an object with a backing id: the kernel uses the object until
 * the last handle is closed. -EXDEV, or -EOPNOTSUPP on the same volume: another program allocated
 * the memory. */
struct file_move;
enum file_move_end { FILE_MOVE_ABORT, FILE_MOVE_COMMIT };
int file_move_begin(struct file *file, const struct file_call *call, struct volume *to,
		    struct file_move **move);
void file_move_end(struct file_move *move, enum file_move_end end);
void file_move_free(struct file_move *move); /* move may be NULL */
/* Sets piece to the record of the move's commit, which points into the move. A piece of kind 0 is
 * not recorded. */
struct journal_piece;
void file_move_piece(const struct file_move *move, struct journal_piece *piece);

/* Moves extents in gpuN/ to place, from the start of the file on, until max_bytes have moved or
 * all are there. 0, or -errno (-EBUSY: leased; -ENOSPC: the place is full); *moved: the bytes, also
 * after an error. Requests wait for the move of one extent at a time. */
int file_place(struct file *file, const struct file_call *call, enum memory_place place,
	       uint64_t max_bytes, uint64_t *moved);
/* Moves the extents in the place from to another place, as file_place does. FILE_NO_WAIT: -EAGAIN
 * instead of waiting for another thread that uses the file. */
int file_evict(struct file *file, const struct file_call *call, enum memory_place from,
	       enum memory_place to, enum file_wait wait, uint64_t max_bytes, uint64_t *moved);
/* Moves extents out of drained chunks (pool_drain) within their place, as file_evict does with
 * FILE_NO_WAIT. */
int file_compact(struct file *file, const struct file_call *call, uint64_t *moved);
/* Moves the memory that other processes may have into memory that no process has, but not under a
 * lease. The file takes no memory of earlier files any more. 0; -ENOSPC and other errors: a part
 * has moved. */
int file_renew(struct file *file, const struct file_call *call);
/* Moves all extents to place, making room there. Nothing to do on a volume with a single place. */
int file_place_all(struct file *file, const struct file_call *call, enum memory_place place);
/* Moves the extents on the device to the fastest of the other places that takes them. */
int file_place_out(struct file *file, const struct file_call *call);
/* Bytes in a place of a file in gpuN/, and in several places: bits 1 << place. */
uint64_t file_bytes_in(struct file *file, enum memory_place place);
uint64_t file_bytes_in_places(struct file *file, unsigned places);
/* False: the layout is being changed. Does not wait. */
bool file_try_bytes_in(struct file *file, enum memory_place place, uint64_t *bytes);
/* Bytes in drained chunks; 0 as well while the layout changes. Does not wait. */
uint64_t file_drained(struct file *file);
/* The value of user.gpumem.extents: a line for each extent, "offset bytes chunk-offset kind";
 * gpumem(7) explains kind. */
int file_describe(struct file *file, FILE *out);
/* BAR-mapped bytes of the file's chunks; of a shared chunk only the file's part counts. */
uint64_t file_mapped(struct file *file);
/* Bytes of the file in chunks that a device failure lost: reads and writes of a lost chunk are -EIO
 * until the file frees the chunk. */
uint64_t file_lost(struct file *file);
/* Applies call->attrs.mapping to the file's chunks. */
void file_apply_mapping(struct file *file, const struct file_call *call);

/* The shared-memory object of a host/ file, created if missing; the descriptor stays the file's.
 * -ENOTSUP for a device file. For passthrough. The call has limits, because the caller holds a lock
 * that is taken after topology. */
int file_object(struct file *file, const struct file_call *call);

#endif
