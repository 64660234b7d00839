/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* For recovery: gives a file its memory back, from the records of the journal. Only the calling
 * thread has the file.
 *
 * First the records, in their order (file_restore_record, file_restore_cut); then
 * file_restore_state; then file_restore_extents for a file in gpuN/, or file_restore_object for a
 * file in host/. Records that contradict one another make the memory of this file missing
 * (core/missing.h), and affect no other file. */
#ifndef FS_FILE_RESTORE_H
#define FS_FILE_RESTORE_H

#include "fs/file/file.h"
#include "fs/journal/format.h"

/* The memory of the file is this and no more (JOURNAL_FILE), or this too (JOURNAL_EXTENTS). The
 * volume is the image's, unless the image cannot be right. 0 or -ENOMEM. */
int file_restore_record(struct file *file, struct volume *volume, enum journal_kind kind,
			const struct journal_file *image, const struct journal_extent *extents);
int file_restore_cut(struct file *file, const struct journal_cut *image);

/* The counts that no record has. FILE_RESTORE_MOUNT_KEPT: the mount outlived the last daemon, so
 * the kernel may have mapped the file if the file has a backing id. */
enum file_restore_mount { FILE_RESTORE_MOUNT_NEW, FILE_RESTORE_MOUNT_KEPT };
void file_restore_state(struct file *file, uint32_t leases, enum file_restore_mount mount);

/* How recovery finds the chunk of a number in the journal. */
struct file_restore_finder {
	void *context;
	/* Sets span->chunk: 0 or -errno. */
	int (*find)(void *context, struct volume *volume, uint64_t number, struct span *span);
	/* find failed with this error: 0 if the file is restored without the span, or -errno, which
	 * ends the recovery. */
	int (*lose)(void *context, uint64_t number, int error);
};

/* Finds the file's chunks. Spans that are found stay in the file although others are missing, so
 * that no other file gets their memory. *missing: the error if memory is missing, -EUCLEAN rather
 * than others. */
int file_restore_extents(struct file *file, const struct file_restore_finder *finder, int *missing);

/* The memory beyond the size: none; zero, unless a writer or truncation was interrupted; not zero.
 */
enum file_restore_end { FILE_RESTORE_END_NONE, FILE_RESTORE_END_ZERO, FILE_RESTORE_END_UNCLEAN };
enum file_restore_end file_restore_end(const struct file *file);
/* Zeroes the memory beyond the size, and notes that it is zero. call NULL: the memory is zero
 * already. */
int file_restore_clean_end(struct file *file, const struct file_call *call);

/* The journal's id of the object of a file in host/; 0: none. -EUCLEAN: the records are wrong. */
int file_restore_object_id(const struct file *file, uint64_t *id);
/* The file gets the object, and the system memory its bytes. */
void file_restore_object(struct file *file, int fd);
/* The object could not be found: 0 or -ENOMEM. */
int file_restore_no_object(struct file *file);

/* The bytes to charge, the kind of the object's tmpfs if the file has an object (else false), and
 * the spans. each: 0, or -errno, which ends the walk. */
uint64_t file_restored_bytes(const struct file *file);
bool file_restored_tmpfs(const struct file *file, enum system_tmpfs *tmpfs);
int file_restored_spans(const struct file *file,
			int (*each)(void *context, const struct span *span), void *context);

/* The recovery failed. Before file_restore_extents: forgets the numbers of chunks. After: gives the
 * memory back. */
void file_restore_forget(struct file *file);
void file_restore_release(struct file *file);

#endif
