/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Receivers of descriptors and held chunks (holds.h) in memory that outlives the daemon. The keeper
 * holds this memory and a pidfd of each process. A store of NULL means a daemon without a keeper,
 * which stores nothing. The lock of struct holds protects all slots. */
#ifndef FS_HOLDERS_HELD_STORE_H
#define FS_HOLDERS_HELD_STORE_H

#include <stdint.h>

#include "fs/keeper/slots.h"

struct fdstore;
struct held_store;

enum held_kind { HELD_PROCESS, HELD_RECEIPT, HELD_CHUNK, HELD_KINDS };

/* A process that received descriptors. */
struct held_process {
	uint32_t pid, uid;
};

/* The process has received descriptors of chunks of the file. */
struct held_receipt {
	uint64_t ino, sequence;
	uint32_t process; /* its slot */
	uint32_t reserved;
};

/* A chunk that a file gave up: its account. */
struct held_image {
	uint64_t chunk, bytes; /* the chunk's id */
	uint64_t ino, sequence;
	uint64_t dir;	 /* the directory that is charged */
	uint64_t volume; /* the root of the volume */
	uint32_t place, uid;
};

/* How many processes may be stored. */
#define HELD_PROCESSES (1U << 16)

/* Maps the memory of an earlier daemon, or makes new memory: 0, with NULL where there is no keeper,
 * or -errno. */
int held_store_open(struct fdstore *fdstore, struct held_store **store);
void held_store_close(struct held_store *store);

/* The id of a process's pidfd at the keeper. */
uint64_t held_store_pidfd_id(uint32_t slot);
/* The slot of the copy of the kind's struct, or SLOT_NONE. */
uint32_t held_store_add(struct held_store *store, enum held_kind kind, const void *content);
void held_store_remove(struct held_store *store, enum held_kind kind, uint32_t slot);
/* A stored chunk is another file's. A daemon killed amidst leaves a chunk of the former file, which
 * that file's receipts keep. */
void held_store_give(struct held_store *store, uint32_t slot, uint64_t ino, uint64_t sequence);
/* The content of the first full slot from *slot on, or NULL; *slot is then the slot after. */
const void *held_store_next(const struct held_store *store, enum held_kind kind, uint32_t *slot);

#endif
