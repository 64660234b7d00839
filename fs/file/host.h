/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in host/: one shared-memory object each, made with the first byte. Programs may write to
 * the object past the daemon (passthrough, mappings), so its size and its blocks are asked for,
 * never remembered. Guard held by the caller: shared or exclusive as noted. */
#ifndef FS_FILE_HOST_H
#define FS_FILE_HOST_H

#include "fs/file/internal.h"

/* No guard. */
uint64_t host_object_size(int fd);
uint64_t host_object_taken(int fd); /* bytes */
uint64_t host_object_mtime(int fd); /* nanoseconds */

/* Shared. */
ssize_t host_read(struct file *file, void *to, size_t bytes, uint64_t offset);
/* 0: there is no object, call host_make_object; refused is what that said last, or 0. */
ssize_t host_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset, int refused);
int64_t host_seek(struct file *file, uint64_t offset, int whence);
bool host_next_run(int fd, uint64_t offset, uint64_t end, struct file_run *run);
/* The same for a file: in one without holes nobody looks for them, page by page to its end. */
bool host_file_next_run(struct file *file, uint64_t offset, uint64_t end, struct file_run *run);
int host_punch(int fd, uint64_t from, uint64_t to);
/* written is raised by what came there, also on failure. The copy ends early, without an error,
 * where the source has become shorter by a mapping's hand. */
int host_copy_object(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t bytes,
		     uint64_t *written);
int host_write_all(int fd, const void *from, size_t bytes, uint64_t offset, uint64_t *written);

/* Exclusive. */
int host_make_object(struct file *file, struct volume *volume, const struct file_call *call);
/* shift: log2 of the pages that it has at most. */
/* object: what the journal calls it; 0. */
int host_new_object(struct volume *volume, const struct file_call *call, int *fd, uint8_t *shift,
		    uint64_t *object);
int host_truncate(struct file *file, const struct file_call *call, uint64_t size);
int host_allocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		  uint64_t to);

/* Charges ahead for what a change of [from, to) may take; -EDQUOT or -ENOSPC. The bytes charged go
 * to host_update_accounting after the change, which sets the charge right. */
int64_t host_precharge(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
void host_update_accounting(struct file *file, const struct file_call *call, int64_t precharged);
/* One more lease or mapping, from here on, of those that promises counts; or, with the guard
 * exclusive, one that is counted already (NULL): the file is charged by its size. 0, -EDQUOT or
 * -ENOSPC. Shared. */
int host_promise(struct file *file, const struct file_call *call, _Atomic uint32_t *promises);
/* Whether programs have the object, by a lease, a handle, or what outlived those. */
bool host_is_out(struct file *file, int fd);
/* Whether there is nothing to take inside the file. */
struct stat;
bool host_has_no_holes(const struct file *file, const struct stat *st);
/* What it is to be charged for, as it is now. */
uint64_t host_due(struct file *file, int fd);
int host_charge(struct volume *volume, const struct file_call *call, int64_t bytes);

#endif
