/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* One-time tokens: a process that has opened a file gets a token, and proves with the token on the
 * sharing socket that the open succeeded. Thread-safe. */
#ifndef FS_SHARE_TOKEN_H
#define FS_SHARE_TOKEN_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct fs;
struct inode;
struct persist;
struct token;

struct token_table {
	pthread_mutex_t lock;
	struct token *by_bytes, *oldest;
	uint32_t count;
	struct persist *persist; /* for the next daemon; NULL: no keeper */
};

void token_table_init(struct token_table *table);
void token_table_destroy(struct fs *fs, struct token_table *table);

/* A token for the inode; the table has a reference until the token is redeemed or expires. */
int token_issue(struct fs *fs, struct token_table *table, struct inode *inode, uid_t uid,
		enum gpumem_access access, uint8_t bytes[GPUMEM_TOKEN_BYTES]);

/* The file and access that a token stands for. */
struct token_redeemed {
	struct inode *inode; /* with a reference */
	enum gpumem_access access;
	uint32_t slot;
};

/* Uses the token up: 0, or -EACCES for an unknown, used or expired token and for another user's,
 * without a difference. */
int token_redeem(struct fs *fs, struct token_table *table, const uint8_t bytes[GPUMEM_TOKEN_BYTES],
		 uid_t uid, struct token_redeemed *redeemed);

/* The client that showed the token has its answer, so the next daemon does not need the token. */
void token_answered(struct token_table *table, uint32_t slot);

/* Takes over the tokens of an earlier daemon. */
void token_restore(struct fs *fs, struct token_table *table);

/* Frees expired tokens. */
void token_expire(struct fs *fs, struct token_table *table);

#endif
