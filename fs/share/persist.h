/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Connections and leases in memory that outlives the daemon. The keeper holds this memory and the
 * sockets of the connections, so that processes which share a file do not notice a new daemon. A
 * struct persist of NULL means a daemon without a keeper, which stores nothing. The share's lock
 * protects all slots. */
#ifndef FS_SHARE_PERSIST_H
#define FS_SHARE_PERSIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"
#include "fs/keeper/slots.h"

struct fdstore;
struct persist;

struct persist_lease {
	uint64_t number;
	uint64_t ino;
	int64_t since;	     /* clock_ns, the same for all daemons until the machine restarts */
	uint32_t connection; /* its slot */
	uint32_t request;    /* the number of the request for the lease */
	uint32_t access;     /* enum gpumem_access, and the flags below */
	uint32_t kind;	     /* enum file_lease_kind */
};

/* The file is a copy for this lease alone. */
#define PERSIST_PRIVATE 4U
/* SHARE_TIMES_TOLD. */
#define PERSIST_TIMED 8U
/* Of GPUMEM_IOC_LEASE_LOADS, and with a read delegation. */
#define PERSIST_LOADS	  16U
#define PERSIST_DELEGATED 32U
/* Of GPUMEM_IOC_ADOPT: the file ends with the lease. */
#define PERSIST_PRODUCES 64U
#define PERSIST_FLAGS                                                                              \
	(PERSIST_PRIVATE | PERSIST_TIMED | PERSIST_LOADS | PERSIST_DELEGATED | PERSIST_PRODUCES)

/* Whether the lease's holder may store into the file without the daemon's knowledge. */
static inline bool persist_lease_is_unseen(const struct persist_lease *lease)
{
	return (lease->access & ~(PERSIST_LOADS | PERSIST_DELEGATED | PERSIST_PRODUCES)) ==
	       GPUMEM_ACCESS_WRITE;
}

/* Maps the memory of an earlier daemon, or makes new memory: 0, with NULL where there is no keeper,
 * or -errno. */
int persist_open(struct fdstore *fdstore, struct persist **persist);
/* Memory of an earlier version stays readable for the earlier program, which goes on if this daemon
 * ends before it serves. From here on the memory has this program's version: false if it had
 * before. Under the share's lock. NULL is fine. */
bool persist_raise(struct persist *persist);
void persist_close(struct persist *persist);

#define PERSIST_NO_SLOT SLOT_NONE
/* The kernel allocates only the pages that were written. */
#define CONNECTION_SLOTS (1U << 16)

/* The slot of the copy, or PERSIST_NO_SLOT without room or without a keeper. */
uint32_t persist_connection_add(struct persist *persist, const uint8_t key[GPUMEM_KEY_BYTES]);
uint32_t persist_lease_add(struct persist *persist, const struct persist_lease *lease);
/* flags: enum gpumem_listen_flags. */
void persist_connection_listens(struct persist *persist, uint32_t slot, uint32_t flags);
void persist_connection_remove(struct persist *persist, uint32_t slot);
void persist_lease_remove(struct persist *persist, uint32_t slot);

void persist_lease_set_kind(struct persist *persist, uint32_t slot, uint32_t kind);

/* For the restore: slots of uint8_t[GPUMEM_KEY_BYTES], at most CONNECTION_SLOTS, whose state
 * tells what the connection listens for; and slots of struct persist_lease. */
struct slots *persist_connection_slots(struct persist *persist);
struct slots *persist_lease_slots(struct persist *persist);
/* When a lease began by clock_ns, of the start that a daemon of any version stored. */
int64_t persist_since(int64_t start, int64_t now);

#endif
