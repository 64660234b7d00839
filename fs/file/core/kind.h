/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The operations of a kind of files, device_kind (gpuN/) or host_kind (host/). A move changes the
 * kind of a file with the file's volume. So the caller chooses the kind under layout_lock, and
 * holds the lock during the call: shared or exclusive as noted. */
#ifndef FS_FILE_CORE_KIND_H
#define FS_FILE_CORE_KIND_H

#include <stdio.h>
#include <sys/types.h>

#include "fs/file/core/state.h"

struct file_kind {
	/* Without layout_lock. The caller tries again if the kind has changed during the call. */
	uint64_t (*size)(const struct file *file);
	struct object_stat (*stat)(const struct file *file);

	/* Shared. write: 0: memory is missing, so the caller must call make_room. refused: the
	 * error of the last make_room, or 0. */
	ssize_t (*read)(struct file *file, const struct file_call *call, void *to, size_t bytes,
			uint64_t offset);
	ssize_t (*write)(struct file *file, const struct file_call *call, const void *from,
			 size_t bytes, uint64_t offset, int refused);
	int64_t (*seek)(struct file *file, uint64_t offset, int whence);
	/* file_next_run. */
	bool (*next_run)(struct file *file, uint64_t offset, uint64_t end, struct data_run *run);
	/* ahead_file.copy. NULL: bytes are not copied ahead of readers. */
	ssize_t (*copy_ahead)(void *file, struct copier *copier, void *to, size_t bytes,
			      uint64_t offset);
	void (*describe)(struct file *file, FILE *out);

	/* Shared. -ENOSPC: [from, to) lacks more memory than there is. */
	int (*check_room)(const struct file *file, const struct file_call *call, uint64_t from,
			  uint64_t to);
	/* Exclusive. Makes memory for a write to [from, to). */
	int (*make_room)(struct file *file, const struct file_call *call, uint64_t from,
			 uint64_t to);
	int (*truncate)(struct file *file, const struct file_call *call, uint64_t size);
	/* file_allocate. */
	int (*allocate)(struct file *file, const struct file_call *call, int mode, uint64_t from,
			uint64_t to);
	/* Whether trim would find memory to give back; shared. trim gives back memory ahead of the
	 * end. */
	bool (*has_ahead)(struct file *file, const struct file_call *call);
	void (*trim)(struct file *file, const struct file_call *call);
	/* Shared. file_update_accounting. */
	void (*update_accounting)(struct file *file, const struct file_call *call);

	/* A lease for reading gives memory that the reader cannot change, and keeps no memory. */
	bool leases_read_only;
	/* Exclusive. */
	int (*make_exportable)(struct file *file, const struct file_call *call);
	/* Whether a lease needs no trimming, allocation or copying first. */
	bool (*is_exportable)(struct file *file, const struct file_call *call);
	/* Exclusive. A lease is counted: charges what its process may allocate. */
	int (*promise_lease)(struct file *file, const struct file_call *call,
			     enum file_share_access access);
	/* file_promise. Exclusive if the object has a tmpfs of its own, else shared. */
	int (*promise_mapping)(struct file *file, const struct file_call *call);
	/* Shared. file_export, for a file of size bytes. */
	int (*export)(struct file *file, struct journal *journal, enum file_share_access access,
		      uint64_t size, uint32_t first, struct file_chunk *chunks, uint32_t max);

	/* Exclusive. Records that a file without its memory (missing.h) is empty again. */
	void (*record_empty)(struct file *file, const struct file_call *call);
	/* Frees the memory and gives the charge back. No other call is in flight. */
	void (*free_memory)(struct file *file, const struct file_call *call);
};

#endif
