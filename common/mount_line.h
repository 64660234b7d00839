/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Parses lines of /proc/self/mountinfo, for the daemon, the library and the command. */
#ifndef COMMON_MOUNT_LINE_H
#define COMMON_MOUNT_LINE_H

#include <stdbool.h>
#include <sys/types.h>

/* The fields of a line. The pointers point into the line; escapes are resolved in root and
 * mountpoint. */
struct mount_line {
	dev_t device;
	char *root, *mountpoint;
	char *options;	     /* of the mount */
	char *type;	     /* NULL: the line ends before */
	char *super_options; /* of the file system; NULL: the line ends before */
};

/* Splits the line in place. False: the line does not have the form of proc(5). */
bool mount_line_parse(char *text, struct mount_line *line);

/* Replaces every \ooo (three octal digits, at most \377) by its byte, in place; the kernel writes
 * blanks, tabs, newlines and backslashes so. Gives the text. */
char *octal_unescape(char *text);

#endif
