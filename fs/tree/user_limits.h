/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What each user makes the daemon keep: counted by uid, so that no user takes what others need.
 * Root, and the user who runs the daemon, are counted and bound by the metadata limit alone.
 * Thread-safe; under any lock. */
#ifndef FS_TREE_USER_LIMITS_H
#define FS_TREE_USER_LIMITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fs;

enum user_kind {
	USER_LEASES,	  /* -o user_leases= */
	USER_TOKENS,	  /* that wait to be shown */
	USER_CONNECTIONS, /* to the sharing socket */
	USER_TEXTS,	  /* open files of .gpumem/ */
	USER_TEXT_BYTES,  /* of their texts */
	USER_HOST_FILES,  /* of host/ that have memory: -o user_host_files= */
	USER_KINDS
};

struct user_limits {
	pthread_mutex_t lock;
	struct user *by_uid;	       /* those who have anything */
	uint64_t ordinary[USER_KINDS]; /* what all have but root and who runs the daemon */
};

/* -ENOMEM. */
int user_limits_new(struct user_limits **made);
void user_limits_free(struct user_limits *limits);

/* Whether the user is root, or runs the daemon. */
bool user_is_privileged(uid_t uid);

/* So many more: 0, -EMFILE (the user has all that one may have: a warning names the limit), -ENFILE
 * (all ordinary users together have), -ENOSPC (the metadata limit), -ENOMEM. */
int user_limits_take(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more);
/* The same without a limit: what the user had with a daemon before this one. 0 or -ENOMEM. */
int user_limits_restore(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more);
void user_limits_give(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t fewer);

/* What user_limits_take would say of one more, before work is done for it. */
int user_limits_check(struct fs *fs, uid_t uid, enum user_kind kind);
uint64_t user_limits_count(struct fs *fs, uid_t uid, enum user_kind kind);

#endif
