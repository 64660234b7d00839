/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tokens and leases in memory that outlives the daemon. The keeper holds this memory and the
 * connections, so that processes which share a file do not notice a new daemon. A struct persist of
 * NULL means a daemon without a keeper, which stores no tokens or leases. The token table's lock
 * protects the tokens, the share's lock the leases. */
#ifndef FS_SHARE_PERSIST_H
#define FS_SHARE_PERSIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct fdstore;
struct persist;

struct persist_token {
	uint64_t ino;
	uid_t uid;
	enum gpumem_access access;
	uint8_t bytes[GPUMEM_TOKEN_BYTES];
};

struct persist_lease {
	uint64_t connection, number;
	uint64_t ino;
	int64_t since;
	uint32_t access; /* enum gpumem_access, and PERSIST_PRIVATE */
	uint32_t kind;	 /* enum file_lease_kind */
	uint32_t token;	 /* wire.h, share_request_mark */
};

/* The file is a copy for this lease alone. */
#define PERSIST_PRIVATE 4U

/* Maps the memory of an earlier daemon, or makes new memory: 0, with NULL where there is no keeper,
 * or -errno. */
int persist_open(struct fdstore *fdstore, struct persist **persist);
void persist_close(struct persist *persist);

#define PERSIST_NO_SLOT UINT32_MAX

/* The slot of the copy, or PERSIST_NO_SLOT without room or without a keeper. */
uint32_t persist_token_add(struct persist *persist, const struct persist_token *token);
uint32_t persist_lease_add(struct persist *persist, const struct persist_lease *lease);
void persist_token_remove(struct persist *persist, uint32_t slot);
void persist_lease_remove(struct persist *persist, uint32_t slot);

void persist_lease_set_kind(struct persist *persist, uint32_t slot, uint32_t kind);
/* The client has the answer to its request for the lease. */
void persist_lease_set_answered(struct persist *persist, uint32_t slot);

/* The next token or lease at or after *slot, which becomes the slot behind the result; NULL past
 * the last. */
const struct persist_token *persist_token_next(struct persist *persist, uint32_t *slot);
const struct persist_lease *persist_lease_next(struct persist *persist, uint32_t *slot,
					       bool *answered);

#endif
