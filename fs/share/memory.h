/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tokens and leases in memory that outlives the daemon, beside the connections, which the keeper
 * holds: who shares a file does not notice that its daemon was replaced. NULL is a daemon without a
 * keeper: nothing is noted then. Tokens are written under the token table's lock, leases by the
 * share thread. */
#ifndef FS_SHARE_MEMORY_H
#define FS_SHARE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct fdstore;
struct share_memory;

struct share_note_token {
	uint64_t ino;
	/* CLOCK_MONOTONIC, seconds; of the daemon that issued it: with the next one its time begins
	 * again. */
	int64_t expires;
	uid_t uid;
	enum gpumem_access access;
	uint8_t bytes[GPUMEM_TOKEN_BYTES];
};

struct share_note_lease {
	uint64_t connection, number;
	uint64_t ino; /* 0: of a daemon whose private copies were no files */
	int64_t since;
	uint32_t access; /* enum gpumem_access, and SHARE_NOTE_PRIVATE */
	uint32_t kind;	 /* enum file_lease_kind */
};

/* The file is a copy for this lease alone. */
#define SHARE_NOTE_PRIVATE 4U

/* What an earlier daemon noted, or a new one, held from then on: 0 with NULL where there is no
 * keeper, or -errno. */
int share_memory_open(struct fdstore *fdstore, struct share_memory **memory);
void share_memory_close(struct share_memory *memory);

#define SHARE_NO_SLOT UINT32_MAX

/* Each returns a slot to forget it by, or SHARE_NO_SLOT where there is no room (or no memory). */
uint32_t share_memory_token(struct share_memory *memory, const struct share_note_token *token);
/* token: share_message.h, share_request_mark. */
uint32_t share_memory_lease(struct share_memory *memory, const struct share_note_lease *lease,
			    uint32_t token);
void share_memory_forget_token(struct share_memory *memory, uint32_t slot);
void share_memory_forget_lease(struct share_memory *memory, uint32_t slot);

/* The lease was dropped. */
void share_memory_drop(struct share_memory *memory, uint32_t slot, uint32_t kind);
/* The client has been answered: a lease is not, until this is said. */
void share_memory_answered(struct share_memory *memory, uint32_t slot);

/* Of a lease: the token that it was given for, 0 where an earlier daemon did not note that. */
struct share_note_request {
	bool answered;
	uint32_t token;
};

/* The next at or after *slot, and *slot behind it: false past the last. */
bool share_memory_next_token(struct share_memory *memory, uint32_t *slot,
			     struct share_note_token *token);
bool share_memory_next_lease(struct share_memory *memory, uint32_t *slot,
			     struct share_note_lease *lease, struct share_note_request *request);

#endif
