/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files that may leave a place: of each user the first to go first, and how much of the place
 * the user has. */
#ifndef FS_TIER_VICTIMS_H
#define FS_TIER_VICTIMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

/* A scan of all inodes finds this many files of each user, so that most calls that make room need
 * no scan. */
#define VICTIMS_MAX 256

/* A scan names this many files that it could not look at. */
#define VICTIMS_BUSY_MAX 16

struct eviction;
struct fs;
struct inode;
struct victim_user;
struct volume;

struct victim {
	uint64_t ino;
	uid_t uid;
	uint8_t priority;
	bool is_stuck; /* the owner may have no more in a slower place: leaves in exchanges only */
	uint32_t used; /* file_used at the time of the scan */
};

/* Zeroed memory is an empty list. */
struct victims {
	uint64_t scans;
	enum memory_place place;
	const struct volume *volume; /* the device's; NULL: all volumes, which share the place */
	struct victim_user *users;   /* with memory in the place, or asking for some */
	uint64_t weights;	     /* of these, together */
	bool leased;		     /* a file is not on the list for its leases alone */
	/* Files whose layout was being changed, which are not on the list. */
	struct busy_victim {
		uint64_t ino; /* 0: was added meanwhile */
		uid_t uid;
		uint64_t bytes_most;
	} busy[VICTIMS_BUSY_MAX];
	unsigned n_busy;
	uint64_t shared; /* memory of the place that files of the mount can have */
};

/* Replaces the list by the files without a lease that have memory in the place: on the volume's
 * device, or in system memory. */
void victims_scan(struct victims *victims, struct fs *fs, const struct volume *volume,
		  enum memory_place place);
/* The number of the busy file of that index, or 0 if it may not leave for the eviction. */
uint64_t victims_busy(const struct victims *victims, const struct eviction *eviction,
		      unsigned index);
/* A busy file is busy no more. */
void victims_add_busy(struct victims *victims, struct fs *fs, unsigned index, struct inode *inode,
		      uint64_t bytes);
/* A user that asks for memory has a share too, until the next scan. */
void victims_count_user(struct victims *victims, const struct fs *fs, uid_t uid);
/* Takes the file that leaves next for the eviction from the list, and sets *max_bytes to the bytes
 * that may leave at most. Users with more than their share (-o shares=) come first, by what lies
 * above the share. false: no further file may leave. */
bool victims_take(struct victims *victims, const struct eviction *eviction, struct victim *victim,
		  uint64_t *max_bytes);
/* Puts a file that has not left as a whole back on the list. */
void victims_put_back(struct victims *victims, const struct victim *victim);
/* bytes of the user's files left the place. */
void victims_note_moved(struct victims *victims, uid_t uid, uint64_t bytes);
void victims_free(struct victims *victims);

#endif
