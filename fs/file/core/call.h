/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The context of a call on a file: what the caller knows of the file, and where the file's memory
 * is charged and recorded. */
#ifndef FS_FILE_CORE_CALL_H
#define FS_FILE_CORE_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/copy.h"
#include "fs/core/attribute_schema.h"
#include "fs/core/limits.h"
#include "fs/volume/volume.h"

struct extents;
struct file;
struct file_call;
struct journal;

/* The largest file in bytes: larger offsets are -EFBIG. */
#define FILE_SIZE_MAX ((uint64_t)INT64_MAX & ~(CHUNK_ALIGN - 1))

/* FILE_NO_WAIT: an error instead of waiting for another thread that uses the file. */
enum file_wait { FILE_MAY_WAIT, FILE_NO_WAIT };

/* Whether a quota is above the file, or above the directory to which the file moves. */
enum file_limits { FILE_LIMITS_ASK, FILE_LIMITS_NONE, FILE_LIMITS_QUOTA };

/* A chunk that the file gives up and processes may still have is charged by quotas whatever they
 * are: the charge is the file's, who pays it no longer; or only within them: the file has as much
 * new memory. */
enum file_hold { FILE_HOLD_ALWAYS, FILE_HOLD_WITHIN_QUOTA };

/* What becomes of chunks that other processes may still have when a file gives the chunks up
 * (fs/holders/holds.h). owner: file_call.quota_owner. */
struct file_holds {
	/* From now on the charges of the chunk outlive the file's: 1 if a process that received
	 * descriptors of the file's chunks lives, else 0. FILE_HOLD_WITHIN_QUOTA: or -EDQUOT or
	 * -ENOMEM, without a change. Call before the record of the change, and before the file's
	 * charges end. layout_lock is held. */
	int (*hold)(void *owner, struct volume *volume, const struct span *span,
		    enum file_hold mode);
	/* Undoes hold: the file keeps the chunk. */
	void (*unhold)(void *owner, const struct span *span);
	/* Takes the span of a held chunk, which the caller zeroed, over for the next file of the
	 * same user: false if the span stays the caller's. */
	bool (*shelve)(void *owner, struct volume *volume, const struct span *span);
	/* Gives the owner such a span of bytes in this place in exchange for the charges of a new
	 * span, of which charge() gets charged bytes: 0, -ENOENT (there is none), or the error of a
	 * charge; then the span stays as it was. */
	int (*take)(const struct file_call *call, struct volume *volume, enum memory_place place,
		    uint64_t bytes, int64_t charged, struct span *span);
	/* A record says that the file has the extents: the spans that take gave are the file's. */
	void (*recorded)(void *owner, const struct extents *extents);
	/* Bytes that take may give the owner. */
	uint64_t (*shelved)(void *owner, const struct volume *volume);
	/* Frees all such spans in this place: whether there were any. */
	bool (*drop)(void *owner, struct volume *volume, enum memory_place place);
	/* The file ends, under no lock. */
	void (*forget)(void *owner);
};

/* The context of a call: copier, attributes, and where to charge and record. Lives on the caller's
 * stack. */
struct file_call {
	struct copier *copier;
	struct attr_values attrs;
	/* Charges bytes of memory: 0 or -EDQUOT. Negative bytes give a charge back and always
	 * succeed. Called under the file's layout_lock. */
	int (*charge)(void *quota_owner, int64_t bytes);
	/* Charges a span of bytes in a place to the file's owner, for its bytes and for its
	 * descriptor: 0 or -EDQUOT. Negative bytes, of a whole span or of some blocks of it, always
	 * succeed. replaces: the descriptor is not limited. Called under the file's layout_lock.
	 * NULL: neither is counted. */
	int (*charge_place)(void *quota_owner, enum memory_place place, int64_t bytes,
			    bool replaces);
	/* Counts an object: 1, or -1, which always succeeds. change of 0: its tmpfs is gone, and a
	 * descriptor of a shared tmpfs is in its place. 0, -ENOSPC or -EDQUOT. NULL: objects are
	 * not counted. */
	int (*count_object)(void *quota_owner, int change, enum system_tmpfs tmpfs);
	/* Takes topology. Called only with FILE_LIMITS_ASK. NULL: no quota is there. */
	enum file_limits (*find_limits)(void *quota_owner);
	enum file_limits limits;
	/* Makes room for bytes in a place of the volume by moving memory of files to slower places,
	 * but not of the file keep: true if memory was freed. PLACE_OWNER_LIMIT: of the owner's
	 * files. Called without locks. NULL: memory stays where it is, which is so on every volume
	 * with a single place. */
	bool (*make_room)(void *quota_owner, const struct volume *volume, enum memory_place place,
			  enum place_short shortage, uint64_t bytes, const struct file *keep);
	const struct file_holds *holds; /* NULL: chunks have no charges beyond their file */
	void *quota_owner;
	enum memory_place place; /* new memory is here, or in the file's place if that is slower */
	bool exchanges;		 /* new memory may be taken by pool_alloc_exchange */
	bool replaces;		 /* the file gives as much memory up for new memory */
	struct journal *journal; /* for records of layout changes; NULL: none */
	uint64_t ino;		 /* inode number in these records */
};

static inline int file_charge(const struct file_call *call, int64_t bytes)
{
	return call->charge && bytes ? call->charge(call->quota_owner, bytes) : 0;
}

static inline int file_charge_place(const struct file_call *call, enum memory_place place,
				    int64_t bytes)
{
	return bytes && call->charge_place
		   ? call->charge_place(call->quota_owner, place, bytes, call->replaces)
		   : 0;
}

static inline int file_count_object(const struct file_call *call, int change,
				    enum system_tmpfs tmpfs)
{
	return call->count_object ? call->count_object(call->quota_owner, change, tmpfs) : 0;
}

#endif
