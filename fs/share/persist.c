/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The slots (slots.h) of connections and leases in persistent memory. */
#include "fs/share/persist.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"
#include "fs/keeper/slots.h"
#include "fs/ledger/kinds.h"

#define PERSIST_MAGIC	0x53465047u /* "GPFS" */
#define PERSIST_VERSION 6
/* Daemons of version 3 stored wall-clock seconds, those of version 4 knew no PERSIST_LOADS, and
 * those of version 5 no PERSIST_PRODUCES. */
#define PERSIST_VERSION_MIN 3

/* The kernel allocates only the pages that were written. */
#define LEASE_SLOTS (1U << 20)

_Static_assert(LEDGER_CONNECTIONS_OF_ALL < CONNECTION_SLOTS && LEDGER_LEASES_OF_ALL < LEASE_SLOTS,
	       "slots are left for root");

struct connection_slot {
	_Atomic uint32_t state; /* a listening connection adds its flags to SLOT_FULL */
	uint8_t key[GPUMEM_KEY_BYTES];
};

struct lease_slot {
	_Atomic uint32_t state;
	struct persist_lease lease;
};

/* The layout of the memory, the same for all daemons of a mount. */
struct layout {
	struct region_head head;
	_Atomic uint32_t connections_end,
	    leases_end; /* behind the last slot that was ever filled */
	struct connection_slot connections[CONNECTION_SLOTS];
	struct lease_slot leases[LEASE_SLOTS];
};

struct persist {
	struct layout *layout;
	struct slots connections, leases;
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-sharing",
    .head = {.magic = PERSIST_MAGIC, .version = PERSIST_VERSION},
    .bytes = sizeof(struct layout),
};

/* Wall-clock seconds are below, until the year 2242, and nanoseconds since the machine started are
 * above, from its first seconds on. */
#define WALL_CLOCK_MAX (INT64_C(1) << 33)

/* A lease that began after now began before the clock was set back. */
int64_t persist_since(int64_t start, int64_t now)
{
	int64_t seconds = clock_epoch_seconds(now) - start;

	if (start < 0 || start > WALL_CLOCK_MAX)
		return start;
	return seconds > 0 ? now - seconds * CLOCK_SECOND : now;
}

bool persist_raise(struct persist *persist)
{
	struct layout *layout = persist ? persist->layout : NULL;
	const int64_t now = clock_ns();

	if (!layout || layout->head.version == region_kind.head.version)
		return false;
	for (uint32_t slot = 0; slot < LEASE_SLOTS && slot < layout->leases_end; slot++) {
		struct persist_lease *lease = &layout->leases[slot].lease;

		lease->since = persist_since(lease->since, now);
	}
	layout->head = region_kind.head;
	return true;
}

static int region_map(struct fdstore *fdstore, void **region)
{
	uint64_t id = fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_MEMORY);
	struct region_kind kind = region_kind;
	int error = region_open(fdstore, id, &kind, region);

	while (error == -EPROTO && kind.head.version-- > PERSIST_VERSION_MIN)
		error = region_open(fdstore, id, &kind, region);
	return error;
}

int persist_open(struct fdstore *fdstore, struct persist **opened)
{
	*opened = NULL;
	if (!fdstore)
		return 0;
	struct persist *persist = calloc(1, sizeof(*persist));
	void *region;

	if (!persist)
		return -ENOMEM;
	int error = region_map(fdstore, &region);

	if (error) {
		free(persist);
		return error;
	}
	struct layout *layout = region;

	persist->layout = layout;
	persist->connections = (struct slots){.first = (char *)layout->connections,
					      .stride = sizeof(struct connection_slot),
					      .offset = offsetof(struct connection_slot, key),
					      .count = CONNECTION_SLOTS,
					      .end = &layout->connections_end};
	persist->leases = (struct slots){.first = (char *)layout->leases,
					 .stride = sizeof(struct lease_slot),
					 .offset = offsetof(struct lease_slot, lease),
					 .count = LEASE_SLOTS,
					 .end = &layout->leases_end};
	*opened = persist;
	return 0;
}

void persist_close(struct persist *persist)
{
	if (!persist)
		return;
	munmap(persist->layout, sizeof(*persist->layout));
	free(persist);
}

uint32_t persist_connection_add(struct persist *persist, const uint8_t key[GPUMEM_KEY_BYTES])
{
	return persist ? slot_fill(&persist->connections, key, GPUMEM_KEY_BYTES) : PERSIST_NO_SLOT;
}

void persist_connection_listens(struct persist *persist, uint32_t slot, uint32_t flags)
{
	if (persist && slot < CONNECTION_SLOTS)
		atomic_store(slot_state(&persist->connections, slot), SLOT_FULL + flags);
}

uint32_t persist_lease_add(struct persist *persist, const struct persist_lease *lease)
{
	return persist ? slot_fill(&persist->leases, lease, sizeof(*lease)) : PERSIST_NO_SLOT;
}

void persist_connection_remove(struct persist *persist, uint32_t slot)
{
	if (persist)
		slot_empty(&persist->connections, slot);
}

void persist_lease_remove(struct persist *persist, uint32_t slot)
{
	if (persist)
		slot_empty(&persist->leases, slot);
}

void persist_lease_set_kind(struct persist *persist, uint32_t slot, uint32_t kind)
{
	if (persist && slot < LEASE_SLOTS)
		persist->layout->leases[slot].lease.kind = kind;
}

struct slots *persist_connection_slots(struct persist *persist)
{
	return &persist->connections;
}

struct slots *persist_lease_slots(struct persist *persist)
{
	return &persist->leases;
}
