/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ledger/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/log.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"

struct account {
	UT_hash_handle hh;
	uid_t uid;
	uint64_t counts[LEDGER_KINDS];
	bool warned; /* of a kind with warn_once; until the user gives something back */
};

int ledger_new(struct ledger **made)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));

	if (!ledger)
		return -ENOMEM;
	pthread_mutex_init(&ledger->lock, NULL);
	*made = ledger;
	return 0;
}

static void account_free(struct ledger *ledger, struct account *account)
{
	HASH_DEL(ledger->by_uid, account);
	free(account);
}

void ledger_free(struct ledger *ledger)
{
	struct account *account, *next;

	HASH_ITER (hh, ledger->by_uid, account, next)
		account_free(ledger, account);
	pthread_mutex_destroy(&ledger->lock);
	free(ledger);
}

static struct account *account_find(const struct ledger *ledger, uid_t uid)
{
	struct account *account = NULL;

	HASH_FIND(hh, ledger->by_uid, &uid, sizeof(uid), account);
	return account;
}

static struct account *account_find_or_new(struct ledger *ledger, uid_t uid)
{
	struct account *account = account_find(ledger, uid);

	if (account)
		return account;
	account = calloc(1, sizeof(*account));
	if (!account)
		return NULL;
	account->uid = uid;
	if (HASH_ADD_NEW(hh, ledger->by_uid, uid, sizeof(uid), account))
		return account;
	free(account);
	return NULL;
}

/* lock is held. */
static int limit_check(const struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	const struct account *account = account_find(fs->ledger, uid);
	uint64_t has = account ? account->counts[kind] : 0, of_all = ledger_rows[kind].of_all;

	if (user_is_privileged(uid))
		return 0;
	if (has + amount > ledger_limit(fs, kind))
		return ledger_rows[kind].error;
	return of_all && fs->ledger->ordinary[kind] + amount > of_all ? -ENFILE : 0;
}

/* lock is held. */
static int count_add(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	struct account *account = account_find_or_new(fs->ledger, uid);

	if (!account)
		return -ENOMEM;
	account->counts[kind] += amount;
	if (!user_is_privileged(uid))
		fs->ledger->ordinary[kind] += amount;
	return 0;
}

/* lock is held. */
static void count_give(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	struct account *account = account_find(fs->ledger, uid);

	if (!account)
		return;
	account->warned = false;
	account->counts[kind] -= amount;
	if (!user_is_privileged(uid))
		fs->ledger->ordinary[kind] -= amount;
	for (unsigned i = 0; i < LEDGER_KINDS; i++)
		if (account->counts[i])
			return;
	account_free(fs->ledger, account);
}

/* lock is held. One line for a request that is refused piece by piece. */
static bool refusal_is_first(const struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	struct account *account =
	    ledger_rows[kind].warn_once ? account_find(fs->ledger, uid) : NULL;
	bool first = !account || !account->warned;

	if (account)
		account->warned = true;
	return first;
}

/* The current thread may serve a request of another user, or no request. */
static void refusal_log(const struct fs *fs, uid_t uid, enum ledger_kind kind, int error)
{
	struct log_caller before = log_caller_change((struct log_caller){true, uid});
	const struct ledger_row *row = &ledger_rows[kind];

	if (error == row->error)
		log_warn("uid %u: refused: a user may have at most %" PRIu64 " %s%s", uid,
			 ledger_limit(fs, kind), row->name, row->remedy);
	else
		log_warn("uid %u: refused: all users together may have at most %" PRIu64 " %s", uid,
			 row->of_all, row->name);
	log_caller_change(before);
}

static int count_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	pthread_mutex_lock(&fs->ledger->lock);
	int refusal = limit_check(fs, uid, kind, amount);
	bool first = refusal && refusal_is_first(fs, uid, kind);
	int error = refusal ? refusal : count_add(fs, uid, kind, amount);

	pthread_mutex_unlock(&fs->ledger->lock);
	if (first)
		refusal_log(fs, uid, kind, refusal);
	return error;
}

int ledger_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	int64_t bytes = (int64_t)amount * ledger_rows[kind].cost;
	int error = ledger_metadata(fs, bytes);

	if (error)
		return error;
	error = count_take(fs, uid, kind, amount);
	if (error)
		ledger_metadata(fs, -bytes);
	return error;
}

int ledger_restore(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	scoped_lock(&fs->ledger->lock);
	int error = count_add(fs, uid, kind, amount);

	if (!error)
		atomic_fetch_add(&fs->metadata_bytes, (int64_t)amount * ledger_rows[kind].cost);
	return error;
}

void ledger_give(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	ledger_metadata(fs, -(int64_t)amount * ledger_rows[kind].cost);
	scoped_lock(&fs->ledger->lock);
	count_give(fs, uid, kind, amount);
}

bool ledger_is_reached(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	scoped_lock(&fs->ledger->lock);
	return limit_check(fs, uid, kind, 1) != 0;
}

int ledger_check(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	pthread_mutex_lock(&fs->ledger->lock);
	int error = limit_check(fs, uid, kind, 1);

	pthread_mutex_unlock(&fs->ledger->lock);
	if (error)
		refusal_log(fs, uid, kind, error);
	return error;
}

uint64_t ledger_count(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	scoped_lock(&fs->ledger->lock);
	const struct account *account = account_find(fs->ledger, uid);

	return account ? account->counts[kind] : 0;
}

uint64_t ledger_room(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	if (user_is_privileged(uid))
		return UINT64_MAX;
	uint64_t has = ledger_count(fs, uid, kind), limit = ledger_limit(fs, kind);

	return has < limit ? limit - has : 0;
}

int ledger_metadata(struct fs *fs, int64_t bytes)
{
	int64_t sum = atomic_fetch_add(&fs->metadata_bytes, bytes) + bytes;

	if (bytes <= 0 || sum <= fs->metadata_max)
		return 0;
	atomic_fetch_sub(&fs->metadata_bytes, bytes);
	return -ENOSPC;
}
