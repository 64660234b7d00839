/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The state of a file (struct file), for the sources of fs/file only. A million empty files may
 * exist: keep the struct small. */
#ifndef FS_FILE_CORE_STATE_H
#define FS_FILE_CORE_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/brlock.h"
#include "fs/ahead/ahead.h"
#include "fs/extents/extents.h"
#include "fs/file/core/call.h"
#include "fs/file/core/facts.h"
#include "fs/file/core/leases.h"
#include "fs/journal/persistent_fields.h"
#include "fs/object/object.h"

struct file_missing;

/* Bits of file_memory.leased. FILE_LEASED: processes may have received descriptors of the file's
 * memory. FILE_UNCLEAN: not only processes of the owner whose leases ended by a release; also
 * without FILE_LEASED, of memory that the file took from an earlier file of a former owner.
 * FILE_FOREIGN: another program allocated the memory, and the file has nothing else. */
enum file_leased { FILE_LEASED = 1, FILE_UNCLEAN = 2, FILE_FOREIGN = 4 };
#define FILE_OF_FOREIGN (FILE_LEASED | FILE_UNCLEAN | FILE_FOREIGN)

/* struct file_memory, file_object and file_leases have no padding together: memory.leased is where
 * a byte was left. */

/* The memory of a file in gpuN/ (device/device.h), and what has become of the memory. */
struct file_memory {
	_Atomic uint64_t tail_end;    /* of the last extent */
	_Atomic uint32_t tail_blocks; /* length of the last extent, in POOL_BLOCK_MIN */
	_Atomic uint8_t tail_shift;   /* log2 of the unit of the last allocation */
	_Atomic uint8_t ahead;	      /* blocks in volume->ahead */
	_Atomic uint8_t away;	      /* enum file_away */
	_Atomic uint8_t leased;	      /* of enum file_leased; of an object too */
};

/* The object of a file in host/ (host/host.h). */
struct file_object {
	_Atomic int fd; /* or -1; empty after a move to gpuN/ */
	_Atomic int32_t backing_id;
	_Atomic uint32_t mapped; /* handles that allow the kernel to map the file: file_promise */
	_Atomic uint8_t shift;	 /* log2 of the largest pages */
	atomic_bool handed_out;	 /* programs may have the object */
	atomic_bool bounded;	 /* the object has a tmpfs of its own: host/charge.c */
};

/* leases.h. count and held are raised under layout_lock, exclusive. */
struct file_leases {
	_Atomic uint32_t count; /* leases that were not dropped */
	_Atomic uint32_t held;	/* leases that keep memory */
	_Atomic uint32_t loose; /* leases that keep no memory, and dropped leases */
};

/* The part of a file that only a daemon with a journal has. */
struct file_journaled {
	uint64_t object_id;		      /* the journal's id of the object: file_object_id */
	struct file_missing *_Atomic missing; /* missing.h: file_missing */
	bool corrupt; /* recovery: the journal's records of the memory are inconsistent */
};

struct file {
	/* Shared: bytes move, the layout stays. Exclusive: the layout changes. file_size and
	 * file_allocated read the atomic members without layout_lock and never wait: a caller may
	 * hold a lock that a move of the file waits for. */
	struct brlock layout_lock;
	struct volume *_Atomic volume;
	struct file_fields *fields; /* own_fields, or the journal's: file_set_fields */
	union {
		struct file_fields own_fields;	 /* without a journal */
		struct file_journaled journaled; /* with a journal */
	};
	_Atomic uint64_t allocated; /* bytes of memory charged to quota_owner */
	struct extents extents;	    /* under layout_lock */
	struct file_memory memory;
	struct file_object object;
	struct file_leases leases;
	_Atomic uint32_t used; /* file_used */
};

/* Set together with fd: the journal's id of the object; 0: none. */
static inline uint64_t file_object_id(const struct file *file)
{
	return file->fields == &file->own_fields ? 0 : file->journaled.object_id;
}

/* NULL: all memory was found. */
static inline struct file_missing *file_missing(const struct file *file)
{
	return file->fields == &file->own_fields ? NULL : atomic_load(&file->journaled.missing);
}

/* Recovery has a journal. */
static inline void file_set_corrupt(struct file *file, bool corrupt)
{
	if (file->fields != &file->own_fields)
		file->journaled.corrupt = corrupt;
}

static inline bool file_is_corrupt(const struct file *file)
{
	return file->fields != &file->own_fields && file->journaled.corrupt;
}

static inline void file_set_object_id(struct file *file, uint64_t object)
{
	if (file->fields != &file->own_fields)
		file->journaled.object_id = object;
}

/* Of a host/ file. */
static inline enum system_tmpfs file_tmpfs(const struct file *file)
{
	return atomic_load(&file->object.bounded) ? SYSTEM_TMPFS_OWN : SYSTEM_TMPFS_SHARED;
}

static inline bool file_is_device(const struct file *file)
{
	return volume_is_device(atomic_load(&file->volume));
}

static inline bool file_is_foreign(const struct file *file)
{
	return atomic_load(&file->memory.leased) & FILE_FOREIGN;
}

/* Whether the file may grow with zeroes where programs stored bytes behind the end, through
 * mappings. Not while a process has the memory: the preload library stores bytes there, and then
 * sets the size. layout_lock is held. */
static inline bool file_zeroes_end(const struct file *file)
{
	return !atomic_load(&file->leases.count) && !atomic_load(&file->leases.loose);
}

/* The clock is read, and the time stored when it differs, only if the time can matter. */
static inline void file_note_use(struct file *file, struct volume *volume)
{
	if (!volume_is_tiered(volume))
		return;
	uint32_t now = file_used_now();

	if (atomic_load_explicit(&file->used, memory_order_relaxed) == now)
		return;
	atomic_store_explicit(&file->used, now, memory_order_relaxed);
	if (atomic_load_explicit(&file->memory.away, memory_order_relaxed) == FILE_HERE)
		return;
	atomic_store(&file->memory.away, FILE_AWAY_USED);
	atomic_store(&volume->used_away, true);
}

/* Memory of the file is off the device, from now on if there was none before. */
static inline void file_note_left(struct file *file)
{
	uint8_t expected = FILE_HERE;

	atomic_compare_exchange_strong(&file->memory.away, &expected, FILE_AWAY);
}

/* Call after bytes of the file have changed, under layout_lock. */
static inline void file_drop_ahead(struct file *file)
{
	ahead_drop(atomic_load(&file->volume)->ahead, &file->memory.ahead);
}

/* Takes layout_lock, exclusive. Until the lock is given up no copy out of the file is under way. */
static inline void file_lock_layout(struct file *file)
{
	brlock_write_lock(&file->layout_lock);
	file_drop_ahead(file);
}

#endif
