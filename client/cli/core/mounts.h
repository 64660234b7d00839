/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The mounts of gpumemfs that this process sees. */
#ifndef CLIENT_CLI_CORE_MOUNTS_H
#define CLIENT_CLI_CORE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define MOUNTS_TYPE "fuse.gpumemfs"

struct mount_at {
	char *where; /* an absolute path without symbolic links */
	char *root;  /* what of the file system is seen there: "/" but for bind mounts of a part */
	char *options;	 /* "rw,nosuid,..." */
	char device[32]; /* "0:52": the same for all mounts of one file system */
};

struct mounts {
	struct mount_at *at;
	size_t count;
};

/* All of them, in the order of the table: 0 or -errno. */
int mounts_find(struct mounts *mounts);
/* The same from an open table in the form of /proc/self/mountinfo. */
int mounts_read(FILE *table, struct mounts *mounts);
void mounts_free(struct mounts *mounts);

/* The mount that an absolute path lies below: the innermost; NULL: none. The path's name within the
 * file system ("/gpu0/weights") is allocated into *inside. */
const struct mount_at *mounts_of(const struct mounts *mounts, const char *path, char **inside);
/* The mount of the same file system that shows the whole of it, with .gpumem/ in it; NULL: none is
 * visible here. */
const struct mount_at *mounts_whole(const struct mounts *mounts, const struct mount_at *mount);

/* The mount that a word of the command line is on, as mounts_whole; also a mount that does not
 * answer, whose path nothing resolves. NULL: none. */
const struct mount_at *mounts_named(const struct mounts *mounts, const char *word);

/* 0, or -errno of a mount that does not answer: -ENOTCONN when its daemon has ended, -ETIMEDOUT
 * when it hangs. From a process without threads. */
int mounts_answers(const struct mount_at *mount);

/* A path of the command line, and where it is. */
struct place {
	struct mounts mounts;
	const struct mount_at *mount; /* shows all of the file system */
	char *path;		      /* absolute, without symbolic links */
	char *inside;		      /* "/gpu0/weights" */
};

/* 0, or the exit status after a word about what is wrong: there is no such file, or it is on no
 * mount of gpumemfs, or that mount's daemon has ended. */
int place_find(const char *path, struct place *place);
void place_free(struct place *place);
#define AUTO_PLACE __attribute__((cleanup(place_free)))

#endif
