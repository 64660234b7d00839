/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* One-time tokens: proof that a process could open a file, to be shown on another channel.
 * Thread-safe. */
#ifndef FS_SHARE_TOKEN_H
#define FS_SHARE_TOKEN_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct fs;
struct inode;
struct share_memory;
struct token;

struct token_table {
	pthread_mutex_t lock;
	struct token *by_bytes, *oldest;
	uint32_t count;
	struct share_memory *memory; /* where tokens are noted for the next daemon */
};

void token_table_init(struct token_table *table);
void token_table_destroy(struct fs *fs, struct token_table *table);

/* A token for the inode, which is referenced until the token is used or too old. */
int token_issue(struct fs *fs, struct token_table *table, struct inode *inode, uid_t uid,
		enum gpumem_access access, uint8_t bytes[GPUMEM_TOKEN_BYTES]);

/* What a token was for. */
struct token_redeemed {
	struct inode *inode; /* with a reference */
	enum gpumem_access access;
	uint32_t slot;
};

/* Uses the token up: 0, or -EACCES (unknown, used, too old, another user's: which of them is not
 * said). */
int token_redeem(struct fs *fs, struct token_table *table, const uint8_t bytes[GPUMEM_TOKEN_BYTES],
		 uid_t uid, struct token_redeemed *redeemed);

/* The client that showed the token has its answer: the next daemon need not know the token. */
void token_answered(struct token_table *table, uint32_t slot);

/* What the daemon before this one issued. */
void token_restore(struct fs *fs, struct token_table *table);

/* Drops what is too old. */
void token_expire(struct fs *fs, struct token_table *table);

#endif
