/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The texts of .gpumem/'s files. */
#ifndef FS_CONTROL_TEXTS_H
#define FS_CONTROL_TEXTS_H

#include <stdio.h>
#include <sys/types.h>

struct control_list;
struct fs;

struct control_file {
	const char *name;
	mode_t mode; /* permission bits, for who runs the daemon */
	/* The text for who opens it: 0 or -errno. */
	int (*write)(struct fs *fs, uid_t uid, FILE *out);
	/* Instead of it, the text's next piece: control_list.h. NULL, as write: access_file.h. */
	int (*piece)(struct control_list *list, FILE *out);
	/* Takes what one write brings, all or nothing: 0 or -errno. NULL: cannot be written. */
	int (*set)(struct fs *fs, const char *text, size_t bytes);
};

/* Ends with a NULL name. */
extern const struct control_file control_files[];

int control_metrics(struct fs *fs, uid_t uid, FILE *out); /* metrics.c */

#endif
