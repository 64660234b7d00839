/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases of a file's memory, and the descriptors that give other processes the memory. */
#ifndef FS_FILE_EXPORT_H
#define FS_FILE_EXPORT_H

#include "fs/file/core/adoption.h"
#include "fs/file/core/leases.h"
#include "fs/file/file.h"

/* FILE_NO_WAIT in this header: -EINPROGRESS without a change if another thread holds layout_lock,
 * if the file must be made exportable first, or if the file has more than
 * FILE_QUICK_CHUNKS chunks. */

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
/* May wait for layout_lock. */
void file_lease_end(struct file *file, enum file_lease_kind kind);
/* Whether a process may have a descriptor through which a host/ file can grow beyond a quota that
 * comes above the file. */
bool file_may_outgrow_quota(const struct file *file);
/* After growth of a leased file: makes the new memory exportable too. */
int file_lease_more(struct file *file, const struct file_call *call, enum file_share_access access,
		    enum file_wait wait);

/* Gives an empty file in gpuN/ this memory, whole or not at all. The whole pieces are charged.
 * -ENOTSUP: the file is in host/, or the provider imports no such memory. -EBUSY: the file has
 * bytes, or is leased. -EINVAL: the pieces do not hold the bytes, or a descriptor is no memory of
 * the file's GPU of that size. -ENOSPC, -EDQUOT. */
int file_adopt(struct file *file, const struct file_call *call, const struct file_adoption *from);
/* Whether another program allocated the file's memory. */
bool file_has_foreign_memory(const struct file *file);
/* Whether the file loses its memory and its names with the process that allocated the memory. */
bool file_ends_with_process(const struct file *file);
/* The program has ended, or has closed a file that ends with it: from here on every operation that
 * needs the bytes is -EIO, also under the next daemon. False: the file does not end. */
bool file_adopted_end(struct file *file);
/* Whether that has happened. */
bool file_adopted_has_ended(const struct file *file);
/* Then gives the memory up; processes with leases keep it. */
void file_adopted_free(struct file *file, const struct file_call *call);

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

#endif
