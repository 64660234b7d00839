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
#include "fs/share/viewer.h"

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
	uint64_t unit = row->unit ? row->unit : 1, limit = ledger_limit(fs, kind);

	fprintf(out, ", \"%s\": {\"used\": %" PRIu64 ", \"limit\": ", row->key,
		(account->counts[kind] + unit - 1) / unit);
	if (limit == UINT64_MAX || user_is_privileged(account->uid))
		fputs("null}", out);
	else
		fprintf(out, "%" PRIu64 "}", limit / unit);
}

static void write_user(struct fs *fs, const struct ledger_account *account, FILE *out)
{
	fprintf(out, "{\"uid\": %u", account->uid);
	for (unsigned kind = 0; kind < LEDGER_KINDS; kind++)
		write_kind(fs, account, (enum ledger_kind)kind, out);
	fputc('}', out);
}

int control_users(struct fs *fs, uid_t uid, FILE *out)
{
	struct viewer viewer = viewer_of(uid);
	AUTO_FREE struct ledger_account *accounts = NULL;
	struct ledger_account own = {.uid = uid};
	const char *before = "\n    ";
	size_t count;
	int error = ledger_list(fs, &accounts, &count);

	if (error)
		return error;
	qsort(accounts, count, sizeof(*accounts), by_uid);
	fprintf(out, "{\n  \"schema\": %d,\n  \"users\": [", USERS_SCHEMA);
	for (size_t i = 0; i < count; i++) {
		if (accounts[i].uid == uid)
			own = accounts[i];
		if (!viewer.sees_all)
			continue;
		fputs(before, out);
		write_user(fs, &accounts[i], out);
		before = ",\n    ";
	}
	if (!viewer.sees_all) {
		fputs(before, out);
		write_user(fs, &own, out);
	}
	fputs("\n  ]\n}\n", out);
	return 0;
}
