/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which file systems are mounted where, from /proc/self/mountinfo, whose files processes map, from
 * /proc/PID/maps, and unmounting. For the daemon, the library and the command. */
#ifndef COMMON_SYSTEM_MOUNTS_H
#define COMMON_SYSTEM_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The fields of a line. The pointers point into the line; escapes are resolved in root and
 * mountpoint. */
struct mount_line {
	uint64_t id; /* of the mount: different for each mount of a file system */
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

/* Whether the open table names a file system of a type beginning with fstype_prefix ("": any type)
 * on path, an absolute path without symbolic links. Lines that do not have proc(5)'s form are
 * ignored. */
bool mountinfo_find(FILE *table, const char *path, const char *fstype_prefix);

/* Whether the table has a mount of the device. Reads the open table from the start; no free
 * descriptor is needed. True if the table cannot be read. */
bool mountinfo_has_device(FILE *table, dev_t device);

struct mountinfo {
	dev_t device;
	uid_t user; /* of a FUSE mount: its user */
};

/* As mountinfo_find, for FUSE mounts: reads the last entry of the path, which hides earlier mounts
 * on the same path. */
bool mountinfo_read(FILE *table, const char *path, const char *fstype_prefix,
		    struct mountinfo *found);

/* The options of the mount and of its file system, comma-separated: allocated. NULL: the last entry
 * of the path, which hides earlier mounts, is not of the type, or there is no memory. */
char *mountinfo_options(FILE *table, const char *path, const char *fstype);

/* Whether a comma-separated list of options has this option, with or without a value. */
bool option_list_has(const char *list, const char *name);

/* The fields of a line of /proc/PID/maps. */
struct maps_line {
	uint64_t start, end; /* addresses */
	uint64_t offset;     /* in the file */
	uint64_t inode;	     /* 0: the mapping is of no file, or the line has another form */
	dev_t device;
	const char *path; /* within the line, with its newline */
};

struct maps_line maps_line_parse(const char *line);

/* Unmounts the file system at mountpoint if its device number is still device (0: unknown, unmount
 * in any case). Lazy: open files do not keep the mount busy. Root unmounts itself, other users by
 * fusermount3. No request to the mount's daemon. */
void unmount_lazily(const char *mountpoint, dev_t device);

/* The device number of the file at path, without a request to a FUSE daemon: 0 or -errno. */
int unmount_device(const char *path, dev_t *device);

#endif
