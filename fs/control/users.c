/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/users: what each user is charged for, as JSON. gpumem(7) documents the keys. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/control/texts.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"

#define USERS_SCHEMA 1

static int by_uid(const void *a, const void *b)
{
	const struct ledger_account *one = a, *other = b;

	return one->uid < other->uid ? -1 : one->uid > other->uid;
}

static void write_kind(struct fs *fs, const struct ledger_account *account, enum ledger_kind kind,
		       FILE *out)
{
	const struct ledger_row *row = &ledger_rows[kind];
	uint64_t limit = ledger_limit(fs, kind), count = account->counts[kind];

	/* Below 0 for a moment: bytes of a file that were given back before they were taken. */
	fprintf(out, ", \"%s\": {\"used\": %" PRIu64 ", \"limit\": ", row->key,
		count > INT64_MAX ? 0 : ledger_named(row, count));
	if (limit == UINT64_MAX || user_is_privileged(account->uid))
		fputs("null}", out);
	else
		fprintf(out, "%" PRIu64 "}", ledger_named(row, limit));
}

static void write_user(struct fs *fs, const struct ledger_account *account, FILE *out)
{
	fprintf(out, "{\"uid\": %u", account->uid);
	for (unsigned kind = 0; kind < LEDGER_KINDS; kind++)
		write_kind(fs, account, (enum ledger_kind)kind, out);
	fputc('}', out);
}

static void write_users(struct fs *fs, const struct ledger_account *accounts, size_t count,
			FILE *out)
{
	fprintf(out, "{\n  \"schema\": %d,\n  \"users\": [", USERS_SCHEMA);
	for (size_t i = 0; i < count; i++) {
		fputs(i ? ",\n    " : "\n    ", out);
		write_user(fs, &accounts[i], out);
	}
	fputs("\n  ]\n}\n", out);
}

static int write_all(struct fs *fs, FILE *out)
{
	AUTO_FREE struct ledger_account *accounts = NULL;
	size_t count;
	int error = ledger_list(fs, &accounts, &count);

	if (error)
		return error;
	qsort(accounts, count, sizeof(*accounts), by_uid);
	write_users(fs, accounts, count, out);
	return 0;
}

int control_users(struct fs *fs, uid_t uid, FILE *out)
{
	struct ledger_account own = {.uid = uid};

	if (user_is_privileged(uid))
		return write_all(fs, out);
	for (unsigned kind = 0; kind < LEDGER_KINDS; kind++)
		own.counts[kind] = ledger_count(fs, uid, (enum ledger_kind)kind);
	write_users(fs, &own, 1, out);
	return 0;
}
