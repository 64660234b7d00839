/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file of .gpumem/. A part names its files in fs_part.files. */
#ifndef FS_CORE_CONTROL_FILE_H
#define FS_CORE_CONTROL_FILE_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct control_list;
struct fs;

/* The kernel keeps names and node ids (CONTROL_INO + id) over a change of the daemon, so each file
 * keeps its id for good, and the id of a removed file stays unused: test_control_operations has all
 * ids. */
#define CONTROL_FILES 63

struct control_file {
	unsigned id; /* 1 to CONTROL_FILES - 1 */
	const char *name;
	mode_t mode; /* permission bits; the daemon's user owns the file */
	/* Writes the text for the user that opens the file: 0 or -errno. */
	int (*write)(struct fs *fs, uid_t uid, FILE *out);
	/* Instead of write: writes the text's next piece, see control/lists.h. Neither of the two:
	 * reads wait for text, see control/access_log_file.h. */
	int (*piece)(struct control_list *list, FILE *out);
	/* Applies the text of a write as a whole, or not at all: 0 or -errno. NULL: the file cannot
	 * be written. */
	int (*set)(struct fs *fs, const char *text, size_t bytes);
};

#endif
