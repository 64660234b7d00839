/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Limits on the resources that each user makes the daemon hold, counted by uid, so that no user
 * exhausts resources of other users. Root and the user that runs the daemon are counted, but only
 * the metadata limit applies to them. Thread-safe; callable under any lock. */
#ifndef FS_TREE_USER_LIMITS_H
#define FS_TREE_USER_LIMITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

struct fs;
struct inode;

enum user_kind {
	USER_LEASES,	  /* -o user_leases= */
	USER_CONNECTIONS, /* to the sharing socket */
	USER_TEXTS,	  /* open files of .gpumem/ */
	USER_TEXT_BYTES,  /* bytes of these open files */
	USER_HOST_FILES,  /* files of host/ that have memory: -o user_host_files= */
	USER_SPILL_HOST, /* bytes in PLACE_HOST: -o user_spill=; the other places follow in order */
	USER_SPILL_DISK,
	USER_KINDS
};

struct user_limits {
	pthread_mutex_t lock;
	struct user *by_uid;	       /* users with a count above 0 */
	uint64_t ordinary[USER_KINDS]; /* sums of all users but root and the daemon's user */
};

/* 0 or -ENOMEM. */
int user_limits_new(struct user_limits **made);
void user_limits_free(struct user_limits *limits);

/* Counts more resources: 0, -EMFILE (the user's limit is reached; a warning names the limit),
 * -ENFILE (the limit of all ordinary users together), -ENOSPC (the metadata limit), -ENOMEM. */
int user_limits_take(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more);
/* As user_limits_take without a limit: for resources that the user had with an earlier daemon. 0 or
 * -ENOMEM. */
int user_limits_restore(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more);
void user_limits_give(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t fewer);

/* Whether user_limits_take would refuse a single resource; without a warning. */
bool user_limits_reached(struct fs *fs, uid_t uid, enum user_kind kind);
/* The error that user_limits_take would return for a single resource, to check before work is
 * done. */
int user_limits_check(struct fs *fs, uid_t uid, enum user_kind kind);
uint64_t user_limits_count(struct fs *fs, uid_t uid, enum user_kind kind);

/* Charges the owner of a file for memory in a place: 0, -EMFILE or -ENOMEM. Negative bytes, which
 * were charged before, always succeed. */
int user_limits_charge(struct fs *fs, struct inode *inode, enum memory_place place, int64_t bytes);
/* The same without a limit. 0 or -ENOMEM. */
int user_limits_charge_restored(struct fs *fs, struct inode *inode, enum memory_place place,
				uint64_t bytes);
/* The bytes in a place that the user may still be charged for; UINT64_MAX: no limit. */
uint64_t user_limits_room(struct fs *fs, uid_t uid, enum memory_place place);
/* Sets the owner, who takes over the charges. inode->lock is held. */
void user_limits_chown(struct fs *fs, struct inode *inode, uid_t uid);

#endif
