/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the operations of device_kind, and the allocation and freeing of device memory.
 * The caller holds layout_lock, shared or exclusive as noted. */
#ifndef FS_FILE_DEVICE_DEVICE_H
#define FS_FILE_DEVICE_DEVICE_H

#include "fs/extents/alloc_policy.h"
#include "fs/file/core/kind.h"

extern const struct file_kind device_kind;

/* io.c. Shared. */
/* ahead_file.copy. */
ssize_t device_copy_ahead(void *file, struct copier *copier, void *to, size_t bytes,
			  uint64_t offset);
ssize_t device_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		    uint64_t offset);
/* 0: memory is missing, so the caller must call device_make_room. refused: the error of the last
 * device_make_room, or 0. */
ssize_t device_write(struct file *file, const struct file_call *call, const void *from,
		     size_t bytes, uint64_t offset, int refused);
/* Without layout_lock. */
uint64_t device_size(const struct file *file);
/* The memory that is ahead of the end does not count. */
struct object_stat device_stat(const struct file *file);
bool device_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run);
int64_t device_seek(struct file *file, uint64_t offset, int whence);
void device_raise_size(struct file *file, uint64_t size);
enum copy_path device_copy_path(const struct file_call *call);

/* Waits for the copier. Call this function on every path, also after an error: until then the GPU
 * uses the host memory. Returns rc, or the error of the wait. */
int device_wait(const struct file_call *call, int rc);

/* As extents_zero, complete on return; free of cost if the range has no memory. */
int device_zero_now(const struct extents *extents, const struct file_call *call, uint64_t from,
		    uint64_t to);

/* As host_zero_end, for stores through a lease that has ended. Exclusive. */
int device_zero_end(struct file *file, const struct file_call *call, uint64_t to);

/* alloc.c. Exclusive, or on extents that no other thread can see. */
enum allocation_charge { ALLOCATION_CHARGED, ALLOCATION_UNCHARGED };

struct allocation {
	struct volume *volume;
	const struct file_call *call;
	enum memory_place place;
	struct layout layout;
	enum pool_fill fill;
	enum allocation_charge charge;
	struct file *recorded; /* file to record extents for at once, or NULL */
	struct extents *target;
	struct extents *new_extents; /* also lists the new extents; may be NULL */
	uint64_t bytes;		     /* allocated so far */
};

/* Where new memory of the file belongs. */
enum memory_place device_place_wanted(const struct volume *volume, const struct file_call *call);
static inline void allocation_set_place(struct allocation *allocation, enum memory_place place)
{
	allocation->place = place;
	allocation->layout.max_chunk = volume_max_chunk(allocation->volume, place);
}
struct allocation allocation_for(struct volume *volume, const struct file_call *call,
				 uint64_t size);
/* Allocates the memory that [from, end) lacks, up to prealloc_end where that helps. On -ENOSPC,
 * -EDQUOT and other errors the memory allocated so far stays, in order from the start of the
 * range. */
int alloc_run(struct allocation *allocation, uint64_t from, uint64_t end, uint64_t prealloc_end);
/* Frees all extents listed in new_extents. */
void allocation_undo(struct allocation *allocation);
/* From here on the file's blocks are counted in the unit of this memory. Call after the allocation
 * and before the record, which includes the unit: otherwise the next daemon would count other
 * blocks. */
static inline void allocation_note_unit(const struct allocation *allocation, struct file *file)
{
	atomic_store(&file->memory.tail_shift, (uint8_t)__builtin_ctzll(allocation->layout.unit));
	if (allocation->place != PLACE_GPU)
		file_note_left(file);
}

/* hold.c. Before the record that the file gives the extents up, and before their charges
 * end: chunks that processes may still have stay charged to the user (struct file_holds). */
void device_hold(const struct file_call *call, struct volume *volume,
		 const struct extents *extents);
/* device_hold for extents that the file replaces by as much new memory: -EDQUOT or -ENOMEM without
 * a change. */
int device_hold_replaced(const struct file_call *call, struct volume *volume,
			 const struct extents *extents);
/* The file keeps the extents after all. */
void device_unhold(const struct file_call *call, const struct extents *extents);
/* After the record: takes chunks that the next file of the same user may get out of extents; the
 * caller frees the rest. */
void device_shelve(const struct file *file, const struct file_call *call, struct volume *volume,
		   struct extents *extents);
/* A chunk of a former file of the same user, zeroed, with the charges of the new file. -ENOENT:
 * there is none of this size. */
int span_take_shelved(struct volume *volume, const struct file_call *call, enum memory_place place,
		      uint64_t bytes, enum allocation_charge charge, struct span *span);
/* Frees a new span that the file does not use after all, and gives the charge of its place back. A
 * chunk of a former file is held again. */
void span_release_unused(struct volume *volume, const struct file_call *call,
			 const struct span *span);

/* pool_alloc in a place, with the charge of the place. */
int span_take(struct volume *volume, const struct file_call *call, enum memory_place place,
	      uint64_t bytes, enum pool_fill fill, struct span *span);
/* The charges of the extents' places go back: call when the file gives the extents up, and before
 * the release. */
void device_uncharge_places(const struct file_call *call, const struct extents *extents);
void span_release(struct volume *volume, const struct span *span);
/* Frees the memory of extents to the volume without changing the charge, and empties extents. */
uint64_t device_release(struct volume *volume, struct extents *extents);
/* Frees the spans of extents, which become empty, to the volume, and returns their bytes. */
uint64_t device_release_unused(struct volume *volume, const struct file_call *call,
			       struct extents *extents);
/* Removes [from, to) from the file and frees the memory; no whole chunk may lie across a border. */
int device_free_range(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
/* Call after the extents changed: adds bytes, which may be negative, to the allocated bytes. */
void device_update_accounting(struct file *file, int64_t bytes);
/* Allocates memory for a write or copy to [from, end), with memory ahead for a growing file. */
int device_make_room(struct file *file, const struct file_call *call, uint64_t from, uint64_t end);
void device_apply_mapping(const struct extents *extents, const struct file_call *call);

/* resize.c. Exclusive. */
int device_truncate(struct file *file, const struct file_call *call, uint64_t size);
/* -ENOSPC: [from, to) lacks more memory than there is. Shared is enough. */
int device_check_room(const struct file *file, const struct file_call *call, uint64_t from,
		      uint64_t to);
int device_allocate(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
int device_fallocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		     uint64_t to);
int device_punch(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
/* Gives back the memory beyond device_kept_end. */
void device_trim(struct file *file, const struct file_call *call);
/* Whether device_trim would find memory to give back. Shared is enough. */
bool device_has_ahead(struct file *file, const struct file_call *call);
/* The offset up to which memory belongs to a file of size bytes; memory beyond was taken ahead. */
uint64_t device_kept_end(struct file *file, const struct file_call *call, uint64_t size);

/* export.c. Makes the memory exportable: every byte up to the size is backed, by chunks without
 * other files' bytes. Exclusive. */
int device_make_exportable(struct file *file, const struct file_call *call);
/* Whether a lease needs no trimming, allocation or copying first. */
bool device_is_exportable(struct file *file, const struct file_call *call);
/* As file_export, for a file of size bytes. Shared. */
int device_export(struct file *file, struct journal *journal, enum file_share_access access,
		  uint64_t size, uint32_t first, struct file_chunk *chunks, uint32_t max);

/* rewrite.c. Exclusive. */
/* Fills all memory of target with the bytes of from at the same file offsets, and with zeroes in
 * the holes of from. */
int device_fill(const struct file_call *call, const struct extents *target,
		const struct extents *from);
struct device_range {
	uint64_t from, to;
};
/* Replaces the extent at index, a whole chunk, by less memory for the two ranges, which get the
 * same bytes; laid out as in a file of size bytes. On an error the extent stays. */
int device_reshape(struct file *file, const struct file_call *call, uint32_t index,
		   const struct device_range ranges[2], uint64_t size);

#endif
