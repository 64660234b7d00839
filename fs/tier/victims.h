/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files that may leave a place, the first to go first, and how much of the place each user
 * has. */
#ifndef FS_TIER_VICTIMS_H
#define FS_TIER_VICTIMS_H

#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

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
	bool filled;
	enum memory_place place;
	const struct volume *volume; /* the device's; NULL: all volumes, which share the place */
	struct victim list[VICTIMS_MAX];
	unsigned n;
	struct tier_user *users; /* with memory in the place, or asking for some */
	uint64_t weights;	 /* of these, together */
	bool leased;		 /* a file is not on the list for its leases alone */
	uint64_t shared;	 /* memory of the place that files of the mount can have */
};

/* Replaces the list by the files without a lease that have memory in the place: on the volume's
 * device, or in system memory. Their owners have room in a slower place. */
void victims_scan(struct victims *victims, struct fs *fs, const struct volume *volume,
		  enum memory_place place);
/* Whether the list is of the volume's device, or of the place that the volume shares. */
bool victims_are_of(const struct victims *victims, const struct volume *volume);
/* A user that asks for memory has a share too, until the next scan. */
void victims_count_user(struct victims *victims, const struct fs *fs, uid_t uid);
/* The bytes of the place that a user has beyond the user's share by weight (-o shares=). */
uint64_t victims_above_share(const struct victims *victims, uid_t uid);
/* bytes of the user's files left the place. */
void victims_note_moved(struct victims *victims, uid_t uid, uint64_t bytes);
void victims_free(struct victims *victims);

#endif
