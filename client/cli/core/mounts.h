/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the mounts of gpumemfs that this process sees, and the mount of a path. */
#ifndef CLIENT_CLI_CORE_MOUNTS_H
#define CLIENT_CLI_CORE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#define MOUNTS_TYPE "fuse.gpumemfs"

struct mount_at {
	char *mountpoint; /* an absolute path without symbolic links */
	char *root;    /* the part of the file system that is mounted: "/", but for bind mounts of a
			  part */
	char *options; /* "rw,nosuid,..." */
	dev_t device;  /* the same for all mounts of one file system */
	uint64_t id;   /* of this mount alone */
};

struct mounts {
	struct mount_at *at;
	size_t count;
};

/* Finds all mounts, in the order of the kernel's table: 0 or -errno. */
int mounts_find(struct mounts *mounts);
/* Reads the mounts from an open table in the form of /proc/self/mountinfo. */
int mounts_read(FILE *table, struct mounts *mounts);
void mounts_free(struct mounts *mounts);
/* Whether there is a mount of the file system. */
bool mounts_have(const struct mounts *mounts, dev_t device);
/* Leaves one mount of each file system: the first that shows all of its files and is usable. A
 * mount may be hidden by another mount, and then does not answer. */
void mounts_keep(struct mounts *mounts, bool (*is_usable)(const struct mount_at *mount));

/* The innermost mount that contains an absolute path; NULL: none. Allocates into *inside the path
 * within the file system ("/gpu0/weights"). */
const struct mount_at *mounts_of(const struct mounts *mounts, const char *path, char **inside);
/* The mount with this number if its root is at the absolute path; NULL: none. */
const struct mount_at *mounts_at(const struct mounts *mounts, const char *path, uint64_t id);
/* The mount of the same file system that shows all of its files and .gpumem/; NULL: no such mount
 * is visible here. */
const struct mount_at *mounts_whole(const struct mounts *mounts, const struct mount_at *mount);

/* The mount of an argument, as mounts_whole. The mount need not answer; then the path is not
 * resolved. NULL: none. */
const struct mount_at *mounts_named(const struct mounts *mounts, const char *word);

/* Gives 0 if the mount answers; -ENOTCONN: its daemon has ended; -ETIMEDOUT: its daemon hangs. The
 * calling process must have no other threads. */
int mounts_answers(const struct mount_at *mount);

/* Reports each file system that does not answer, and leaves its mounts out. Gives the exit status.
 * The calling process must have no other threads. */
int mounts_drop_dead(struct mounts *mounts);

/* A path of the command line with its mount. */
struct place {
	struct mounts mounts;
	const struct mount_at *mount; /* the mount that shows all of the file system */
	char *path;		      /* absolute, without symbolic links */
	char *inside;		      /* "/gpu0/weights" */
};

/* Finds the place of a path. 0, or the exit status after a message: the file does not exist, the
 * path is on no mount of gpumemfs, or the daemon of the mount has ended. */
int place_find(const char *path, struct place *place);
void place_free(struct place *place);
/* stat(2) of a regular file: 0, or the exit status after a message. */
int place_stat(const struct place *place, struct stat *st);
/* Whether the place is the root of its mount. */
bool place_is_mount(const struct place *place);
/* Calls visit for the mount of the path, or for every whole mount, with path NULL and inside "/"; a
 * -errno of visit is reported. Gives the exit status. */
int place_each(const char *path,
	       int (*visit)(const char *mountpoint, const char *inside, void *context),
	       void *context);
#define AUTO_PLACE __attribute__((cleanup(place_free)))

#endif
