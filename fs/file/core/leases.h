/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The leases of a file, as counts. fs/file/export.h gives them. */
#ifndef FS_FILE_CORE_LEASES_H
#define FS_FILE_CORE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

struct file;

/* An exported chunk. */
struct file_chunk {
	uint64_t offset; /* modulo 2^64: the chunk may begin before the file */
	uint64_t bytes;
	int fd; /* the receiver closes the descriptor */
};

/* More chunks are not exported without waiting: an export takes the driver some 30 us. */
#define FILE_QUICK_CHUNKS 4
/* Closes exported descriptors that were not sent. */
void file_chunks_close(struct file_chunk *chunks, uint32_t count);

/* The access that a lease gives: read only; read, by readers that the file trusts with writable
 * memory; or write. A process that has a chunk of a device can write to the chunk, so
 * FILE_SHARE_READ is -EPERM on a device. Checked under the file's layout_lock each time, because a
 * file moves between volumes. */
enum file_share_access { FILE_SHARE_READ, FILE_SHARE_TRUSTED, FILE_SHARE_WRITE };

/* The effect of a lease on its file: the lease keeps the file's memory; the lease keeps no memory;
 * or the lease was dropped. */
enum file_lease_kind { FILE_LEASE_HOLDS, FILE_LEASE_LOOSE, FILE_LEASE_DROPPED };

/* For recovery: makes a lease loose that was counted as FILE_LEASE_HOLDS. */
void file_lease_loosen(struct file *file);
/* The lease stops keeping memory, though its sharer may still have the memory mapped. */
void file_lease_drop(struct file *file, enum file_lease_kind kind);
/* Ends this many leases of kind FILE_LEASE_HOLDS. */
void file_unlease(struct file *file, uint32_t leases);
/* The number of leases that were not dropped. */
uint32_t file_leases(const struct file *file);
bool file_is_held(const struct file *file);
/* Whether programs may have mapped the file, and may still store into it: a program can keep its
 * mapping after the lease is dropped. Read under layout_lock, or under a lock that the caller's
 * leases wait for. */
bool file_was_leased(const struct file *file);
/* For recovery: nothing is known of leases of an earlier daemon. */
void file_set_was_leased(struct file *file);
/* A process of another user than the owner has, or may keep, descriptors of the file's memory: its
 * chunks are not kept for the owner's next file (file_holds.shelve), and the file takes none that
 * were kept. */
void file_set_unclean(struct file *file);
bool file_is_unclean(const struct file *file);
/* Whether leases that keep no memory exist, dropped or not. */
bool file_is_loose(const struct file *file);

#endif
