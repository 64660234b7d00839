/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* struct file, for the file's own sources only. A million empty files exist: keep it small. */
#ifndef FS_FILE_INTERNAL_H
#define FS_FILE_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/brlock.h"
#include "fs/file/extents.h"
#include "fs/file/file.h"
#include "fs/journal/persistent_fields.h"

struct file_missing;

struct file {
	/* Shared: bytes move, the layout stays. Exclusive: the layout changes. What is atomic below
	 * is read without it by file_size and file_allocated, which never wait: a caller may ask
	 * for them while a move of the file waits for a lock that the caller holds. */
	struct brlock guard;
	struct volume *_Atomic volume;
	struct file_fields *fields; /* own, or the journal's: file_set_fields */
	union {
		struct file_fields own;	 /* without a journal */
		struct {		 /* with one */
			uint64_t object; /* what it calls the fd's object: file_object_id */
			struct file_missing *_Atomic missing; /* file_missing.h: file_missing */
		};
	};
	_Atomic uint64_t allocated;	       /* bytes of memory charged to the payer */
	_Atomic uint64_t tail_start, tail_end; /* the last extent */
	struct extents extents;		       /* under the guard */
	_Atomic int32_t backing_id;
	/* file_share.h; the first two are raised under the guard, exclusive. held: of the leases,
	 * those that keep the memory; loose: those that do not, and those that were dropped. */
	_Atomic uint32_t leases, held, loose;
	_Atomic uint32_t mapped; /* handles through which the kernel may map it: file_promise */
	_Atomic int fd; /* the object of a host/ file, empty after a move to gpuN/; or -1 */
	_Atomic uint8_t tail_shift;   /* log2 of the unit in which the last extent was taken */
	_Atomic uint8_t object_shift; /* log2 of the largest pages of the object */
	atomic_bool handed_out;	      /* the object was let out of the daemon's hands */
	bool corrupt;		      /* restoring: what the journal says of its memory is */
};

/* Set with the fd, to what the journal calls its object; 0: none. */
static inline uint64_t file_object_id(const struct file *file)
{
	return file->fields == &file->own ? 0 : file->object;
}

/* NULL: nothing is. */
static inline struct file_missing *file_missing(const struct file *file)
{
	return file->fields == &file->own ? NULL : atomic_load(&file->missing);
}

static inline void file_set_object_id(struct file *file, uint64_t object)
{
	if (file->fields != &file->own)
		file->object = object;
}

static inline bool file_is_device(const struct file *file)
{
	return volume_is_device(atomic_load(&file->volume));
}

static inline int file_charge(const struct file_call *call, int64_t bytes)
{
	return call->charge && bytes ? call->charge(call->quota_owner, bytes) : 0;
}

static inline int file_count_object(const struct file_call *call, int more)
{
	return call->count_object ? call->count_object(call->quota_owner, more) : 0;
}

/* A stretch of a file that is data all through, or a hole. */
struct file_run {
	uint64_t from, to;
	bool data;
};

/* The run that begins at offset, at most to end; false at the end. Guard held. */
bool file_next_run(struct file *file, uint64_t offset, uint64_t end, struct file_run *run);

/* file_bounce.c. Bytes between the object of a host/ file and memory of a device, which has it all
 * through in that range: straight where a window is to be had (host_window.h), else through a
 * buffer. Not through a mapping and the CPU: a page of it that cannot be had (the memory is full,
 * somebody punched a hole through a mapping of his own) would end the daemon by SIGBUS. */
struct bounce;
/* bytes: how many will go through it, for a guess. */
int bounce_new(const struct file_call *call, uint64_t bytes, struct bounce **bounce);
void bounce_free(struct bounce *bounce);
int bounce_in(struct bounce *bounce, struct file *from, uint64_t from_offset,
	      const struct extents *to, uint64_t to_offset, uint64_t bytes);
/* written is raised by what came into the object, also on failure. to: whose object it is, or NULL
 * where it is nobody's yet. */
int bounce_out(struct bounce *bounce, const struct extents *from, uint64_t from_offset,
	       struct file *to, int fd, uint64_t fd_offset, uint64_t bytes, uint64_t *written);

#endif
