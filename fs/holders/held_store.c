/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/holders/held_store.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"
#include "fs/ledger/kinds.h"

#define HELD_MAGIC   0x48465047u /* "GPFH" */
#define HELD_VERSION 1

/* The kernel allocates only the pages that were written. */
#define RECEIPT_SLOTS (1U << 22)
#define CHUNK_SLOTS   (1U << 20)

_Static_assert(LEDGER_CONNECTIONS_OF_ALL < HELD_PROCESSES &&
		   LEDGER_HELD_CHUNKS_OF_ALL < CHUNK_SLOTS,
	       "slots are left for root");

struct process_slot {
	_Atomic uint32_t state;
	struct held_process content;
};

struct receipt_slot {
	_Atomic uint32_t state;
	struct held_receipt content;
};

struct chunk_slot {
	_Atomic uint32_t state;
	struct held_image content;
};

/* The layout of the memory, the same for all daemons of a mount. */
struct held_layout {
	struct region_head head;
	_Atomic uint32_t ends[HELD_KINDS];
	uint32_t reserved;
	struct process_slot processes[HELD_PROCESSES];
	struct receipt_slot receipts[RECEIPT_SLOTS];
	struct chunk_slot chunks[CHUNK_SLOTS];
};

struct held_store {
	struct held_layout *layout;
	struct slots slots[HELD_KINDS];
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-held",
    .head = {.magic = HELD_MAGIC, .version = HELD_VERSION},
    .bytes = sizeof(struct held_layout),
};

static const size_t content_bytes[] = {
    [HELD_PROCESS] = sizeof(struct held_process),
    [HELD_RECEIPT] = sizeof(struct held_receipt),
    [HELD_CHUNK] = sizeof(struct held_image),
};

/* The slots of an array of the layout. */
#define SLOTS(layout, array, kind)                                                                 \
	((struct slots){.first = (char *)(layout)->array,                                          \
			.stride = sizeof((layout)->array[0]),                                      \
			.offset = offsetof(__typeof__((layout)->array[0]), content),               \
			.count = sizeof((layout)->array) / sizeof((layout)->array[0]),             \
			.end = &(layout)->ends[kind]})

uint64_t held_store_pidfd_id(uint32_t slot)
{
	return fdstore_id(FDSTORE_PROCESS, (uint64_t)FDSTORE_PROCESSES + slot);
}

int held_store_open(struct fdstore *fdstore, struct held_store **opened)
{
	uint64_t id = fdstore_id(FDSTORE_PROCESS, FDSTORE_PROCESS_MEMORY);
	void *region;

	*opened = NULL;
	if (!fdstore)
		return 0;
	struct held_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	int error = region_open(fdstore, id, &region_kind, &region);

	if (error) {
		free(store);
		return error;
	}
	store->layout = region;
	store->slots[HELD_PROCESS] = SLOTS(store->layout, processes, HELD_PROCESS);
	store->slots[HELD_RECEIPT] = SLOTS(store->layout, receipts, HELD_RECEIPT);
	store->slots[HELD_CHUNK] = SLOTS(store->layout, chunks, HELD_CHUNK);
	*opened = store;
	return 0;
}

void held_store_close(struct held_store *store)
{
	if (!store)
		return;
	munmap(store->layout, sizeof(*store->layout));
	free(store);
}

uint32_t held_store_add(struct held_store *store, enum held_kind kind, const void *content)
{
	return store ? slot_fill(&store->slots[kind], content, content_bytes[kind]) : SLOT_NONE;
}

void held_store_remove(struct held_store *store, enum held_kind kind, uint32_t slot)
{
	if (store)
		slot_empty(&store->slots[kind], slot);
}

void held_store_give(struct held_store *store, uint32_t slot, uint64_t ino, uint64_t sequence)
{
	if (!store || slot == SLOT_NONE)
		return;
	struct held_image *image = slot_content(&store->slots[HELD_CHUNK], slot);

	/* With the former sequence, receipts of the new file would be too late to keep the chunk.
	 */
	__atomic_store_n(&image->sequence, sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&image->ino, ino, __ATOMIC_RELEASE);
}

const void *held_store_next(const struct held_store *store, enum held_kind kind, uint32_t *slot)
{
	return store ? slot_next(&store->slots[kind], slot) : NULL;
}
