/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/token.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/share/persist.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/user_limits.h"

struct token {
	UT_hash_handle hh;
	struct token *previous, *next; /* by age */
	struct inode *inode;
	int64_t expires; /* CLOCK_MONOTONIC, seconds */
	uid_t uid;
	enum gpumem_access access;
	uint32_t slot; /* in the table's persistent memory */
	uint8_t bytes[GPUMEM_TOKEN_BYTES];
};

void token_table_init(struct token_table *table)
{
	*table = (struct token_table){0};
	pthread_mutex_init(&table->lock, NULL);
}

/* All tokens live equally long, so expired tokens are the first of the list. */
static struct token *tokens_take_expired(struct token_table *table, int64_t than)
{
	struct token *old = NULL, *token;

	while ((token = table->oldest) && token->expires < than) {
		HASH_DEL(table->by_bytes, token);
		DL_DELETE2(table->oldest, token, previous, next);
		persist_token_remove(table->persist, token->slot);
		table->count--;
		token->next = old;
		old = token;
	}
	return old;
}

/* Under no lock: the last reference frees an inode. */
static void tokens_free(struct fs *fs, struct token *token)
{
	while (token) {
		struct token *next = token->next;

		inode_put(fs, token->inode, 1);
		user_limits_give(fs, token->uid, USER_TOKENS, 1);
		free(token);
		token = next;
	}
}

static void tokens_expire(struct fs *fs, struct token_table *table, int64_t than)
{
	pthread_mutex_lock(&table->lock);
	struct token *old = tokens_take_expired(table, than);

	pthread_mutex_unlock(&table->lock);
	tokens_free(fs, old);
}

void token_expire(struct fs *fs, struct token_table *table)
{
	tokens_expire(fs, table, clock_seconds());
}

void token_table_destroy(struct fs *fs, struct token_table *table)
{
	tokens_expire(fs, table, INT64_MAX);
	pthread_mutex_destroy(&table->lock);
}

static int token_add(struct token_table *table, struct token *token)
{
	if (!HASH_ADD_NEW(hh, table->by_bytes, bytes, sizeof(token->bytes), token))
		return -ENOMEM;
	DL_APPEND2(table->oldest, token, previous, next);
	table->count++;
	return 0;
}

/* A token without a slot is lost with this daemon. */
static void token_persist(struct token_table *table, struct token *token)
{
	struct persist_token stored = {
	    .ino = token->inode->ino,
	    .uid = token->uid,
	    .access = token->access,
	};

	memcpy(stored.bytes, token->bytes, sizeof(stored.bytes));
	token->slot = persist_token_add(table->persist, &stored);
}

int token_issue(struct fs *fs, struct token_table *table, struct inode *inode, uid_t uid,
		enum gpumem_access access, uint8_t bytes[GPUMEM_TOKEN_BYTES])
{
	token_expire(fs, table);
	int error = user_limits_take(fs, uid, USER_TOKENS, 1);

	if (error)
		return error;
	struct token *token = calloc(1, sizeof(*token));

	if (!token) {
		user_limits_give(fs, uid, USER_TOKENS, 1);
		return -ENOMEM;
	}
	token->inode = inode;
	token->uid = uid;
	token->access = access;
	token->expires = clock_seconds() + GPUMEM_TOKEN_SECONDS;
	if (getrandom(token->bytes, sizeof(token->bytes), 0) != sizeof(token->bytes)) {
		user_limits_give(fs, uid, USER_TOKENS, 1);
		free(token);
		return -EIO;
	}
	memcpy(bytes, token->bytes, sizeof(token->bytes));
	/* Before the token can be redeemed. */
	inode_ref(inode);
	pthread_mutex_lock(&table->lock);
	error = token_add(table, token);
	if (!error)
		token_persist(table, token);
	pthread_mutex_unlock(&table->lock);
	if (error)
		tokens_free(fs, token);
	return error;
}

int token_redeem(struct fs *fs, struct token_table *table, const uint8_t bytes[GPUMEM_TOKEN_BYTES],
		 uid_t uid, struct token_redeemed *redeemed)
{
	struct token *token = NULL;

	token_expire(fs, table);
	pthread_mutex_lock(&table->lock);
	HASH_FIND(hh, table->by_bytes, bytes, GPUMEM_TOKEN_BYTES, token);
	if (token && token->uid == uid) {
		HASH_DEL(table->by_bytes, token);
		DL_DELETE2(table->oldest, token, previous, next);
		table->count--;
	} else {
		token = NULL;
	}
	pthread_mutex_unlock(&table->lock);
	if (!token)
		return -EACCES;
	*redeemed = (struct token_redeemed){
	    .inode = token->inode, .access = token->access, .slot = token->slot};
	user_limits_give(fs, uid, USER_TOKENS, 1);
	free(token);
	return 0;
}

void token_answered(struct token_table *table, uint32_t slot)
{
	scoped_lock(&table->lock);
	persist_token_remove(table->persist, slot);
}

static void token_restore_slot(struct fs *fs, struct token_table *table, uint32_t slot,
			       const struct persist_token *stored)
{
	struct inode *inode = inode_table_get(fs->inodes, stored->ino);
	struct token *token = inode ? calloc(1, sizeof(*token)) : NULL;

	if (!token || user_limits_restore(fs, stored->uid, USER_TOKENS, 1)) {
		free(token);
		if (inode)
			inode_put(fs, inode, 1);
		persist_token_remove(table->persist, slot);
		return;
	}
	token->inode = inode;
	token->uid = stored->uid;
	token->access = stored->access;
	/* No client could show the token while there was no daemon, so its time begins again. Slots
	 * are not in the order of age, so all restored tokens get the same time. */
	token->expires = clock_seconds() + GPUMEM_TOKEN_SECONDS;
	token->slot = slot;
	memcpy(token->bytes, stored->bytes, sizeof(token->bytes));
	pthread_mutex_lock(&table->lock);
	int error = token_add(table, token);

	pthread_mutex_unlock(&table->lock);
	if (error)
		tokens_free(fs, token);
}

void token_restore(struct fs *fs, struct token_table *table)
{
	const struct persist_token *stored;
	uint32_t slot = 0;

	while ((stored = persist_token_next(table->persist, &slot)))
		token_restore_slot(fs, table, slot - 1, stored);
}
