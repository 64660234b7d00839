/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who pays for which resources: an account for each uid, with a count for each kind, and limits so
 * that no user exhausts resources of other users. Root and the user that runs the daemon are
 * counted, but only the limit on the metadata of all users applies to them. Knows no inodes.
 * Thread-safe; callable under any lock. */
#ifndef FS_LEDGER_LEDGER_H
#define FS_LEDGER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/brlock.h"
#include "common/cacheline.h"
#include "fs/core/fs.h"
#include "fs/ledger/kinds.h"

struct account;
struct fs;

/* Threads of a user share the lines of one account; accounts share none. */
struct ledger {
	struct brlock accounts_lock; /* exclusive: accounts come and go */
	struct account *by_uid;
	uint32_t n_accounts, sweep_at; /* accounts_lock */
	/* Of kinds with a limit for all: sums of all users but root and the daemon's user. */
	_Atomic uint64_t ordinary[LEDGER_KINDS];
	int64_t metadata_max;
	/* Of all users: the daemon's own memory for the tree. Changes with every name that is
	 * created or removed, so no other member is in the cache line. */
	_Alignas(CACHELINE_ALIGN) _Atomic int64_t metadata_bytes;
};

static inline FS_STATE(struct ledger, ledger_of, FS_LEDGER)

    /* 0 or -ENOMEM. */
    int ledger_new(struct ledger **new_ledger);
void ledger_free(struct ledger *ledger);

/* Charges a user, and for what the kind costs in the daemon's own memory too, all or nothing: 0;
 * the row's error (the user's limit is reached; a warning names the limit), -ENFILE (the limit of
 * all ordinary users together), -EDQUOT (the user's metadata), -ENOSPC (the metadata of all users:
 * a user who takes all memory of the machine would end the daemon), -ENOMEM. */
int ledger_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount);
/* As ledger_take without a limit: for resources that the user had with an earlier daemon. 0 or
 * -ENOMEM. */
int ledger_restore(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount);
void ledger_give(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount);

/* A part of a charge of several kinds. */
struct ledger_charge {
	enum ledger_kind kind;
	uint64_t amount;
	bool always; /* without a limit, as ledger_restore */
};

/* Charges a user for all parts or for none: 0, or the error of the part that was refused. */
int ledger_take_all(struct fs *fs, uid_t uid, const struct ledger_charge *charges, unsigned count);
void ledger_give_all(struct fs *fs, uid_t uid, const struct ledger_charge *charges, unsigned count);

/* Whether ledger_take would refuse a single resource; without a warning. */
bool ledger_is_reached(struct fs *fs, uid_t uid, enum ledger_kind kind);
/* The error that ledger_take would return for a single resource, to check before work is done. */
int ledger_check(struct fs *fs, uid_t uid, enum ledger_kind kind);
uint64_t ledger_count(struct fs *fs, uid_t uid, enum ledger_kind kind);
/* How much more the user may be charged for; UINT64_MAX: no limit. */
uint64_t ledger_room(struct fs *fs, uid_t uid, enum ledger_kind kind);

/* A copy of one account. */
struct ledger_account {
	uid_t uid;
	uint64_t counts[LEDGER_KINDS];
};

/* The accounts with a count above 0, in no order; the caller frees the list. 0 or -ENOMEM. */
int ledger_list(struct fs *fs, struct ledger_account **list, size_t *count);

#endif
