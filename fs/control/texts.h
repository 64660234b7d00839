/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of .gpumem/'s files, and the functions that make their texts. */
#ifndef FS_CONTROL_TEXTS_H
#define FS_CONTROL_TEXTS_H

#include <stdio.h>
#include <sys/types.h>

struct control_list;
struct fs;

struct control_file {
	const char *name;
	mode_t mode; /* permission bits; the daemon's user owns the file */
	/* Writes the text for the user that opens the file: 0 or -errno. */
	int (*write)(struct fs *fs, uid_t uid, FILE *out);
	/* Instead of write: writes the text's next piece, see lists.h. Neither of the two: reads
	 * wait for text, see access_log_file.h. */
	int (*piece)(struct control_list *list, FILE *out);
	/* Applies the text of a write as a whole, or not at all: 0 or -errno. NULL: the file cannot
	 * be written. */
	int (*set)(struct fs *fs, const char *text, size_t bytes);
};

/* By node id (CONTROL_INO + index); a place without a name has no file. The kernel keeps names and
 * node ids over a change of the daemon, so each file keeps its id for good, and the id of a removed
 * file stays unused. */
#define CONTROL_FILES 63
extern const struct control_file control_files[CONTROL_FILES];

int control_metrics(struct fs *fs, uid_t uid, FILE *out); /* metrics.c */
int control_users(struct fs *fs, uid_t uid, FILE *out);	  /* users.c */

#endif
