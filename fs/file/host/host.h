/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in host/: a shared-memory object for each file, created with the first byte. Programs may
 * write to the object without the daemon (passthrough, mappings), so size and blocks are read from
 * the object and never cached. The caller holds layout_lock, shared or exclusive as noted. */
#ifndef FS_FILE_HOST_HOST_H
#define FS_FILE_HOST_HOST_H

#include "fs/file/core/kind.h"

extern const struct file_kind host_kind;

/* Shared. */
ssize_t host_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		  uint64_t offset);
/* 0: there is no object, so the caller must call host_make_object. refused: the error of the last
 * host_make_object, or 0. */
ssize_t host_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset, int refused);
int64_t host_seek(struct file *file, uint64_t offset, int whence);
/* As object_next_run, for a file; skips the page-by-page search if the file has no holes. */
bool host_file_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run);

/* Call before the file grows to the size `to`: the bytes behind the end read as zero, as far as
 * file_zeroes_end allows. Exclusive: a writer that makes the file longer at the same time would
 * lose its bytes. */
int host_zero_end(struct file *file, uint64_t to);

/* As file_export, for a file of size bytes. Shared. */
int host_export(struct file *file, struct journal *journal, enum file_share_access access,
		uint64_t size, uint32_t first, struct file_chunk *chunks, uint32_t max);

/* Exclusive. */
int host_make_object(struct file *file, struct volume *volume, const struct file_call *call);
struct host_object {
	int fd;
	uint8_t shift;		 /* log2 of the largest page size */
	enum system_tmpfs tmpfs; /* its own: below a quota */
	uint64_t id;		 /* the journal's, or 0 */
};
int host_new_object(struct volume *volume, const struct file_call *call, enum system_tmpfs tmpfs,
		    struct host_object *object);
/* For an object made now: whether a quota is above the file. Takes topology, unless the call knows
 * the answer. */
enum system_tmpfs host_tmpfs_wanted(const struct file_call *call);
int host_truncate(struct file *file, const struct file_call *call, uint64_t size);
int host_allocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		  uint64_t to);

/* Charges in advance for the memory that a change of [from, to) may allocate; -EDQUOT or -ENOSPC.
 * Pass the result to host_update_accounting after the change, which corrects the charge. */
int64_t host_precharge(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
void host_update_accounting(struct file *file, const struct file_call *call, int64_t precharged);
/* Charges the file by its size and adds a lease or mapping to *promises. NULL: the lease is counted
 * already. The object's own tmpfs gets this limit. 0, -EDQUOT or -ENOSPC. Exclusive if the object
 * has its own tmpfs or the lease is counted already, else shared. */
int host_promise(struct file *file, const struct file_call *call, _Atomic uint32_t *promises);
/* Whether programs have the object: by a lease or handle, or by a mapping or descriptor that
 * outlived a lease or handle. */
bool host_is_out(struct file *file, int fd);
/* Whether the file is in host/ and its object could have a tmpfs of its own, but shares one. */
bool host_is_unbounded(const struct file *file);
/* A lease for writing is counted, and nothing is promised for the lease: whether other programs
 * have the object. Exclusive. */
bool host_is_shared(const struct file *file);
/* Whether a mapping or descriptor has outlived all handles and leases. */
bool host_has_descriptors(const struct file *file);
/* After the file has become shorter: lowers the limit of the object's own tmpfs, and so the charge.
 * Exclusive. */
void host_lower_limit(struct file *file, uint64_t size);
/* Whether writes inside the file allocate no memory. */
struct stat;
bool host_has_no_holes(const struct file *file, const struct stat *st);
/* The bytes to charge the file for, at this moment. */
uint64_t host_due(struct file *file, int fd);
int host_charge(struct file *file, const struct file_call *call, int64_t bytes);

#endif
