/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What is mounted where, from /proc/self/mountinfo. */
#ifndef COMMON_MOUNTS_H
#define COMMON_MOUNTS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Whether something whose type begins with fstype_prefix ("": anything) is mounted on path itself,
 * an absolute path without symbolic links. False where the table cannot be read. */
bool mountinfo_is_mounted(const char *path, const char *fstype_prefix);

/* The same in a table that is already open. Lines that proc(5) does not allow are passed over. */
bool mountinfo_find(FILE *table, const char *path, const char *fstype_prefix);

/* Whether a mount of that device is anywhere in the table, which is read anew from its start: for
 * those who watch it and cannot rely on a descriptor to be had. True where it cannot be read. */
bool mountinfo_has_device(FILE *table, dev_t device);

struct mountinfo {
	dev_t device;
	uid_t user; /* of a FUSE mount: who made it */
};

/* As mountinfo_find, of FUSE mounts: what the table says of the last one on the path, which hides
 * those before. */
bool mountinfo_read(FILE *table, const char *path, const char *fstype_prefix,
		    struct mountinfo *found);

/* Takes a mount off, lazily, if it is still the one with this device number (0: not known, it is
 * taken for that); by root itself, by fusermount3 otherwise. Does not ask the mount's daemon. */
void unmount_lazily(const char *mountpoint, dev_t device);

/* The device number of what is at path, without a request to its daemon: 0 or -errno. */
int unmount_device(const char *path, dev_t *device);

#endif
