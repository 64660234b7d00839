/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files of a volume that may leave its device, the first to go first, and how much of the
 * device each user has. */
#ifndef FS_TIER_VICTIMS_H
#define FS_TIER_VICTIMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A scan of all inodes finds this many files, so that most calls that make room need no scan. */
#define VICTIMS_MAX 256

struct fs;
struct tier_user;
struct volume;

struct victim {
	uint64_t ino; /* 0: gone from the list */
	uid_t uid;
	uint8_t priority;
	uint32_t used; /* file_used at the time of the scan */
};

/* Zeroed memory is an empty list. */
struct victims {
	const struct volume *volume; /* of the list; NULL: none */
	struct victim list[VICTIMS_MAX];
	unsigned n;
	struct tier_user *users;
};

/* Replaces the list by the files of the volume that have memory on the device and no lease. */
void victims_scan(struct victims *victims, struct fs *fs, const struct volume *volume);
/* Whether a user has more of the device than an equal share. */
bool victims_over_share(const struct victims *victims, uid_t uid);
/* bytes of the user's files left the device. */
void victims_note_moved(struct victims *victims, uid_t uid, uint64_t bytes);
void victims_free(struct victims *victims);

#endif
