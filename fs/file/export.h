/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file's memory in other processes' hands. */
#ifndef FS_FILE_EXPORT_H
#define FS_FILE_EXPORT_H

#include "fs/file/file.h"

/* A chunk as it is handed out. */
struct file_chunk {
	uint64_t offset, bytes;
	int fd; /* the receiver's to close */
};

/* What the holder of a lease may be given: nothing of a file's that can be written to; what the
 * file entrusts to readers; or all of it. Whoever has a chunk of a device can write to it, so that
 * FILE_SHARE_READ is -EPERM on a device. Looked at under the file's guard, each time: a file moves
 * between volumes. */
enum file_share_access { FILE_SHARE_READ, FILE_SHARE_TRUSTED, FILE_SHARE_WRITE };

/* What a lease is to its file: it keeps the file's memory; it does not; or it was dropped. */
enum file_lease_kind { FILE_LEASE_HOLDS, FILE_LEASE_LOOSE, FILE_LEASE_DROPPED };

/* FILE_NO_WAIT: -EINPROGRESS, with nothing changed, where the file is in other hands, where its
 * memory has to be made fit first, or where it has more than FILE_QUICK_CHUNKS chunks: an export is
 * some 30 us of the driver's. */
enum file_wait { FILE_MAY_WAIT, FILE_NO_WAIT };
#define FILE_QUICK_CHUNKS 4

/* Makes the file's memory fit to be handed out, and counts a lease: every byte up to the size is
 * backed, by chunks that hold nothing else. While a lease holds it whatever would take memory away
 * (shrinking, punching, laying out again, moving to another volume) is -EBUSY. A lease for reading
 * a file in host/ is loose: the file may be made shorter under it, and a file that moves leaves it
 * the object. FILE_LEASE_HOLDS or _LOOSE; -ENOSPC, -EDQUOT: holes could not be filled or small
 * pieces not replaced; nothing is leased then. */
int file_lease(struct file *file, const struct file_call *call, enum file_share_access access,
	       enum file_wait wait);
/* For restoring: a lease that was counted as one that holds is loose. */
void file_lease_loosen(struct file *file);
/* The lease keeps nothing any more, though its holder may have the memory mapped: what the file
 * gives up of it is nobody else's before file_lease_end (file_left.h). */
void file_lease_drop(struct file *file, enum file_lease_kind kind);
/* May wait for the file. */
void file_lease_end(struct file *file, enum file_lease_kind kind);
/* Ends so many that hold. */
void file_unlease(struct file *file, uint32_t leases);
/* How many there are that were not dropped. */
uint32_t file_leases(const struct file *file);
bool file_is_held(const struct file *file);
/* Whether there are leases that hold nothing, dropped or not. */
bool file_is_loose(const struct file *file);
/* A daemon before this one handed out what the file has. */
void file_set_handed_out(struct file *file);

/* After growth: the same for what came since, on a file that is leased. */
int file_lease_more(struct file *file, const struct file_call *call, enum file_share_access access,
		    enum file_wait wait);

/* Where the file was, and how large, when its chunks were looked at. */
struct file_place {
	const struct volume *volume;
	uint64_t size;
};

/* Exports chunks from number first on, at most max: how many; 0 past the last. On an error none is
 * exported, and place is left alone. A file in host/ has one chunk, its object; for all but writers
 * that is an fd which cannot be written to. */
int file_export(struct file *file, enum file_share_access access, enum file_wait wait,
		uint32_t first, struct file_chunk *chunks, uint32_t max, struct file_place *place);

/* Closes what was exported and not handed on. */
void file_chunks_close(struct file_chunk *chunks, uint32_t count);

#endif
