/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ledger compared with a recount over all inodes. Call while no other thread changes files. */
#ifndef TESTS_UNIT_RECOUNT_H
#define TESTS_UNIT_RECOUNT_H

#include <stdlib.h>

#include "fs/ledger/ledger.h"
#include "fs/tree/inode_table.h"
#include "tests/unit/unit.h"

#define RECOUNT_USERS 64

struct recount {
	size_t n;
	struct ledger_account users[RECOUNT_USERS];
};

static inline uint64_t *recount_of(struct recount *recount, uid_t uid)
{
	size_t i = 0;

	while (i < recount->n && recount->users[i].uid != uid)
		i++;
	ck_assert_uint_lt(i, RECOUNT_USERS);
	recount->users[i].uid = uid;
	if (i == recount->n)
		recount->n++;
	return recount->users[i].counts;
}

static inline void recount_inode(struct recount *recount, struct inode *inode)
{
	uint64_t *counts = recount_of(recount, inode->uid);

	ck_assert_uint_eq(inode->metadata, inode_count_metadata(inode));
	counts[LEDGER_METADATA] += inode->metadata;
}

/* What inodes are charged for. Leases and texts cost metadata, too, and belong to no inode. */
static inline void recount_check(struct fs *fs)
{
	static const enum ledger_kind kinds[] = {LEDGER_METADATA};
	struct recount recount = {0};
	struct ledger_account *list;
	struct inode *inode;
	uint32_t slot = 0;
	size_t count;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		recount_inode(&recount, inode);
		inode_put(fs, inode, 1);
	}
	ck_assert_int_eq(ledger_list(fs, &list, &count), 0);
	for (size_t i = 0; i < count; i++) {
		uint64_t *counts = recount_of(&recount, list[i].uid);

		for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			ck_assert_uint_eq(list[i].counts[kinds[k]], counts[kinds[k]]);
	}
	ck_assert_uint_eq(count, recount.n);
	free(list);
}

#endif
