/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ledger/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/cacheline.h"
#include "common/hash.h"
#include "common/log.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"

/* The number of accounts at which accounts without counts are freed: a user namespace gives a user
 * any number of uids. */
#define SWEEP_AT_MIN 64

struct account {
	_Alignas(CACHELINE_ALIGN) _Atomic uint64_t counts[LEDGER_KINDS];
	/* Of a kind with warn_once; until the user gives something of the kind back. */
	atomic_bool warned[LEDGER_KINDS];
	UT_hash_handle hh;
	uid_t uid;
};

int ledger_new(struct ledger **new_ledger)
{
	struct ledger *ledger = cacheline_calloc(sizeof(*ledger));

	if (!ledger)
		return -ENOMEM;
	brlock_init(&ledger->accounts_lock);
	ledger->sweep_at = SWEEP_AT_MIN;
	*new_ledger = ledger;
	return 0;
}

static void account_free(struct ledger *ledger, struct account *account)
{
	HASH_DEL(ledger->by_uid, account);
	free(account);
	ledger->n_accounts--;
}

void ledger_free(struct ledger *ledger)
{
	struct account *account, *next;

	HASH_ITER (hh, ledger->by_uid, account, next)
		account_free(ledger, account);
	brlock_destroy(&ledger->accounts_lock);
	free(ledger);
}

/* accounts_lock is held, shared or exclusive. */
static struct account *account_find(const struct ledger *ledger, uid_t uid)
{
	struct account *account = NULL;

	HASH_FIND(hh, ledger->by_uid, &uid, sizeof(uid), account);
	return account;
}

static bool account_is_empty(const struct account *account)
{
	for (unsigned i = 0; i < LEDGER_KINDS; i++)
		if (atomic_load_explicit(&account->counts[i], memory_order_relaxed))
			return false;
	return true;
}

/* accounts_lock is held exclusively. */
static void accounts_sweep(struct ledger *ledger)
{
	struct account *account, *next;

	HASH_ITER (hh, ledger->by_uid, account, next)
		if (account_is_empty(account))
			account_free(ledger, account);
	ledger->sweep_at = ledger->n_accounts * 2;
	if (ledger->sweep_at < SWEEP_AT_MIN)
		ledger->sweep_at = SWEEP_AT_MIN;
}

/* accounts_lock is held exclusively. NULL: no memory. */
static struct account *account_find_or_new(struct ledger *ledger, uid_t uid)
{
	struct account *account = account_find(ledger, uid);

	if (account)
		return account;
	if (ledger->n_accounts >= ledger->sweep_at)
		accounts_sweep(ledger);
	account = cacheline_calloc(sizeof(*account));
	if (!account)
		return NULL;
	account->uid = uid;
	if (HASH_ADD_NEW(hh, ledger->by_uid, uid, sizeof(uid), account)) {
		ledger->n_accounts++;
		return account;
	}
	free(account);
	return NULL;
}

enum charge { CHARGE_WITHIN_LIMITS, CHARGE_ALWAYS };

static int count_raise(_Atomic uint64_t *count, uint64_t amount, uint64_t limit, int refusal)
{
	uint64_t has = atomic_load_explicit(count, memory_order_relaxed);

	/* A count that another thread has lowered ahead of its charge is below 0 for a moment. */
	if (limit == UINT64_MAX) {
		atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
		return 0;
	}
	do {
		if (has > limit || amount > limit - has)
			return refusal;
	} while (!atomic_compare_exchange_weak_explicit(
	    count, &has, has + amount, memory_order_relaxed, memory_order_relaxed));
	return 0;
}

static int error_of_all(const struct ledger_row *row)
{
	return row->error_of_all ?: -ENFILE;
}

static int account_charge(struct fs *fs, struct account *account, enum ledger_kind kind,
			  uint64_t amount, enum charge charge)
{
	const struct ledger_row *row = &ledger_rows[kind];
	bool privileged = user_is_privileged(account->uid);
	bool limited = charge == CHARGE_WITHIN_LIMITS && !privileged;
	uint64_t limit = limited ? ledger_limit(fs, kind) : UINT64_MAX;
	int error = count_raise(&account->counts[kind], amount, limit, row->error);

	if (error || privileged || !row->limit_of_all)
		return error;
	error = count_raise(&ledger_of(fs)->ordinary[kind], amount,
			    limited ? row->limit_of_all(fs) : UINT64_MAX, error_of_all(row));
	if (error)
		atomic_fetch_sub(&account->counts[kind], amount);
	return error;
}

/* Charges a user who may have no account yet. */
static int count_add(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount,
		     enum charge charge)
{
	struct ledger *ledger = ledger_of(fs);
	brlock_token token = brlock_read_lock(&ledger->accounts_lock);
	struct account *account = account_find(ledger, uid);
	int error = account ? account_charge(fs, account, kind, amount, charge) : 0;

	brlock_read_unlock(&ledger->accounts_lock, token);
	if (account)
		return error;
	brlock_write_lock(&ledger->accounts_lock);
	account = account_find_or_new(ledger, uid);
	error = account ? account_charge(fs, account, kind, amount, charge) : -ENOMEM;
	brlock_write_unlock(&ledger->accounts_lock);
	return error;
}

static void count_subtract(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	struct ledger *ledger = ledger_of(fs);
	brlock_token token = brlock_read_lock(&ledger->accounts_lock);
	struct account *account = account_find(ledger, uid);

	if (account) {
		atomic_fetch_sub_explicit(&account->counts[kind], amount, memory_order_relaxed);
		if (ledger_rows[kind].limit_of_all && !user_is_privileged(uid))
			atomic_fetch_sub(&ledger->ordinary[kind], amount);
		if (ledger_rows[kind].warn_once)
			atomic_store(&account->warned[kind], false);
	}
	brlock_read_unlock(&ledger->accounts_lock, token);
}

/* One line for a request that is refused piece by piece. */
static bool refusal_is_first(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	struct ledger *ledger = ledger_of(fs);
	brlock_token token = brlock_read_lock(&ledger->accounts_lock);
	struct account *account = ledger_rows[kind].warn_once ? account_find(ledger, uid) : NULL;
	bool first = !account || !atomic_exchange(&account->warned[kind], true);

	brlock_read_unlock(&ledger->accounts_lock, token);
	return first;
}

/* The current thread may serve a request of another user, or no request. */
static void refusal_log(const struct fs *fs, uid_t uid, enum ledger_kind kind, int error)
{
	struct log_caller previous = log_caller_change((struct log_caller){true, uid});
	const struct ledger_row *row = &ledger_rows[kind];

	if (error == row->error)
		log_warn("uid %u: refused: a user may have at most %" PRIu64 " %s%s", uid,
			 ledger_named(row, ledger_limit(fs, kind)), row->name, row->remedy);
	else
		log_warn("uid %u: refused: all users together may have at most %" PRIu64 " %s", uid,
			 ledger_named(row, ledger_limit_of_all(fs, kind)), row->name);
	log_caller_change(previous);
}

/* Of the memory for metadata, ordinary users leave one part in this many to root. */
#define METADATA_FOR_ROOT 16

static int64_t metadata_most(const struct fs *fs, uid_t uid)
{
	int64_t limit = ledger_of(fs)->metadata_max;

	return user_is_privileged(uid) ? limit : limit - limit / METADATA_FOR_ROOT;
}

static int metadata_raise(struct fs *fs, uid_t uid, uint64_t bytes)
{
	int64_t sum =
	    atomic_fetch_add(&ledger_of(fs)->metadata_bytes, (int64_t)bytes) + (int64_t)bytes;

	if (sum <= metadata_most(fs, uid))
		return 0;
	atomic_fetch_sub(&ledger_of(fs)->metadata_bytes, (int64_t)bytes);
	return -ENOSPC;
}

static int count_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	int error = count_add(fs, uid, kind, amount, CHARGE_WITHIN_LIMITS);

	if (error && error != -ENOMEM && refusal_is_first(fs, uid, kind))
		refusal_log(fs, uid, kind, error);
	return error;
}

static uint64_t metadata_of(enum ledger_kind kind, uint64_t amount)
{
	return kind == LEDGER_METADATA ? amount : amount * ledger_rows[kind].cost;
}

int ledger_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	uint64_t bytes = metadata_of(kind, amount);
	int error = bytes ? metadata_raise(fs, uid, bytes) : 0;

	if (error)
		return error;
	error = bytes ? count_take(fs, uid, LEDGER_METADATA, bytes) : 0;
	if (error)
		goto lower;
	error = kind == LEDGER_METADATA ? 0 : count_take(fs, uid, kind, amount);
	if (!error)
		return 0;
	if (bytes)
		count_subtract(fs, uid, LEDGER_METADATA, bytes);
lower:
	atomic_fetch_sub(&ledger_of(fs)->metadata_bytes, (int64_t)bytes);
	return error;
}

int ledger_restore(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	uint64_t bytes = metadata_of(kind, amount);
	int error = bytes ? count_add(fs, uid, LEDGER_METADATA, bytes, CHARGE_ALWAYS) : 0;

	if (error)
		return error;
	if (kind != LEDGER_METADATA)
		error = count_add(fs, uid, kind, amount, CHARGE_ALWAYS);
	if (!error)
		atomic_fetch_add(&ledger_of(fs)->metadata_bytes, (int64_t)bytes);
	else if (bytes)
		count_subtract(fs, uid, LEDGER_METADATA, bytes);
	return error;
}

void ledger_give(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount)
{
	uint64_t bytes = metadata_of(kind, amount);

	if (kind != LEDGER_METADATA && amount)
		count_subtract(fs, uid, kind, amount);
	if (!bytes)
		return;
	count_subtract(fs, uid, LEDGER_METADATA, bytes);
	atomic_fetch_sub(&ledger_of(fs)->metadata_bytes, (int64_t)bytes);
}

int ledger_take_all(struct fs *fs, uid_t uid, const struct ledger_charge *charges, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct ledger_charge *charge = &charges[i];
		int error = charge->always ? ledger_restore(fs, uid, charge->kind, charge->amount)
					   : ledger_take(fs, uid, charge->kind, charge->amount);

		if (error) {
			ledger_give_all(fs, uid, charges, i);
			return error;
		}
	}
	return 0;
}

void ledger_give_all(struct fs *fs, uid_t uid, const struct ledger_charge *charges, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ledger_give(fs, uid, charges[i].kind, charges[i].amount);
}

uint64_t ledger_count(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	brlock_token token = brlock_read_lock(&ledger_of(fs)->accounts_lock);
	const struct account *account = account_find(ledger_of(fs), uid);
	uint64_t count = account ? atomic_load(&account->counts[kind]) : 0;

	brlock_read_unlock(&ledger_of(fs)->accounts_lock, token);
	return count;
}

static uint64_t difference(uint64_t limit, uint64_t has)
{
	return has < limit ? limit - has : 0;
}

static uint64_t room_of_one(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	return user_is_privileged(uid)
		   ? UINT64_MAX
		   : difference(ledger_limit(fs, kind), ledger_count(fs, uid, kind));
}

static uint64_t room_of_all(const struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	return user_is_privileged(uid) ? UINT64_MAX
				       : difference(ledger_limit_of_all(fs, kind),
						    atomic_load(&ledger_of(fs)->ordinary[kind]));
}

static int limit_check(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	const struct ledger_row *row = &ledger_rows[kind];

	if (!room_of_one(fs, uid, kind))
		return row->error;
	return room_of_all(fs, uid, kind) ? 0 : error_of_all(row);
}

bool ledger_is_reached(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	return limit_check(fs, uid, kind) != 0;
}

int ledger_check(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	int error = limit_check(fs, uid, kind);

	if (error)
		refusal_log(fs, uid, kind, error);
	return error;
}

uint64_t ledger_room(struct fs *fs, uid_t uid, enum ledger_kind kind)
{
	uint64_t room = room_of_one(fs, uid, kind), of_all = room_of_all(fs, uid, kind);

	if (kind == LEDGER_METADATA)
		of_all = difference((uint64_t)metadata_most(fs, uid),
				    (uint64_t)atomic_load(&ledger_of(fs)->metadata_bytes));
	return of_all < room ? of_all : room;
}

int ledger_list(struct fs *fs, struct ledger_account **list, size_t *count)
{
	struct ledger *ledger = ledger_of(fs);
	brlock_token token = brlock_read_lock(&ledger->accounts_lock);
	struct ledger_account *to = calloc(ledger->n_accounts + 1, sizeof(*to));
	const struct account *account;

	*list = to;
	for (account = ledger->by_uid; to && account; account = account->hh.next) {
		if (account_is_empty(account))
			continue;
		to->uid = account->uid;
		for (unsigned i = 0; i < LEDGER_KINDS; i++)
			to->counts[i] = atomic_load(&account->counts[i]);
		to++;
	}
	brlock_read_unlock(&ledger->accounts_lock, token);
	*count = to ? (size_t)(to - *list) : 0;
	return to ? 0 : -ENOMEM;
}
