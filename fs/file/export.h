/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases of a file's memory, and the descriptors that give other processes the memory. */
#ifndef FS_FILE_EXPORT_H
#define FS_FILE_EXPORT_H

#include "fs/file/file.h"

/* An exported chunk. */
struct file_chunk {
	uint64_t offset, bytes;
	int fd; /* the receiver closes the descriptor */
};

/* The access that a lease gives: read only; read, by readers that the file trusts with writable
 * memory; or write. A process that has a chunk of a device can write to the chunk, so
 * FILE_SHARE_READ is -EPERM on a device. Checked under the file's layout_lock each time, because a
 * file moves between volumes. */
enum file_share_access { FILE_SHARE_READ, FILE_SHARE_TRUSTED, FILE_SHARE_WRITE };

/* The effect of a lease on its file: the lease keeps the file's memory; the lease keeps no memory;
 * or the lease was dropped. */
enum file_lease_kind { FILE_LEASE_HOLDS, FILE_LEASE_LOOSE, FILE_LEASE_DROPPED };

/* FILE_NO_WAIT in this header: -EINPROGRESS without a change if another thread holds layout_lock,
 * if the file must be made exportable first, or if the file has more than FILE_QUICK_CHUNKS chunks:
 * an export takes the driver some 30 us. */
#define FILE_QUICK_CHUNKS 4

/* Makes the file's memory exportable and counts a lease. Afterwards every byte up to the size is
 * backed, by chunks without other files' bytes. While a lease holds the memory, all operations that
 * would take memory away (shrink, punch, relayout, move to another volume) are -EBUSY. A lease for
 * reading a file in host/ is loose: the file can shrink, and a file that moves leaves the object to
 * the reader. Returns FILE_LEASE_HOLDS or FILE_LEASE_LOOSE. -ENOSPC, -EDQUOT: holes could not be
 * filled or small pieces not replaced, and no lease is counted. -EXDEV: below a quota a lease for
 * writing needs an object with a tmpfs of its own; call file_replace_object first. -EBUSY: programs
 * have the object that the file has. */
int file_lease(struct file *file, const struct file_call *call, enum file_share_access access,
	       enum file_wait wait);
/* For recovery: makes a lease loose that was counted as FILE_LEASE_HOLDS. */
void file_lease_loosen(struct file *file);
/* The lease stops keeping memory, though its sharer may still have the memory mapped. */
void file_lease_drop(struct file *file, enum file_lease_kind kind);
/* May wait for layout_lock. */
void file_lease_end(struct file *file, enum file_lease_kind kind);
/* Ends this many leases of kind FILE_LEASE_HOLDS. */
void file_unlease(struct file *file, uint32_t leases);
/* The number of leases that were not dropped. */
uint32_t file_leases(const struct file *file);
bool file_is_held(const struct file *file);
/* Whether a process may have a descriptor through which a host/ file can grow beyond a quota that
 * comes above the file. */
bool file_may_outgrow_quota(const struct file *file);
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

/* After growth of a leased file: makes the new memory exportable too. */
int file_lease_more(struct file *file, const struct file_call *call, enum file_share_access access,
		    enum file_wait wait);

/* The volume and size of the file at the time of an export. */
struct file_place {
	const struct volume *volume;
	uint64_t size;
};

/* Exports the chunks from number first on, at most max. Before a descriptor exists, the journal has
 * that other processes may have the chunks. Returns the number of chunks; 0 past the
 * last chunk. On an error all descriptors are closed, and place is unchanged. A file in host/ has a
 * single chunk, its object; the descriptor is read-only unless the access is FILE_SHARE_WRITE. */
int file_export(struct file *file, struct journal *journal, enum file_share_access access,
		enum file_wait wait, uint32_t first, struct file_chunk *chunks, uint32_t max,
		struct file_place *place);

/* Closes exported descriptors that were not sent. */
void file_chunks_close(struct file_chunk *chunks, uint32_t count);

#endif
