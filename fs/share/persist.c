/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The slots (slots.h) of connections and leases in persistent memory, and the restore of an earlier
 * daemon's sharers: their connections, whose sockets the keeper held, and their leases. */
#include "fs/share/persist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/worker.h"
#include "fs/holders/host_out.h"
#include "fs/holders/inode_lease.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"
#include "fs/keeper/slots.h"
#include "fs/ledger/kinds.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"

#define PERSIST_MAGIC	0x53465047u /* "GPFS" */
#define PERSIST_VERSION 5
/* Daemons of version 3 stored wall-clock seconds, and those of version 4 knew no PERSIST_LOADS. */
#define PERSIST_VERSION_MIN 3

/* The kernel allocates only the pages that were written. */
#define CONNECTION_SLOTS (1U << 16)
#define LEASE_SLOTS	 (1U << 20)

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

/* The start of a lease that a daemon of either version stored. A lease that began after now began
 * before the clock was set back. */
static int64_t since_convert(int64_t start, int64_t now)
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

		lease->since = since_convert(lease->since, now);
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

/* A connection without a slot was not served yet, or had ended. */
static int connection_restore(uint64_t id, int fd, void *pointer)
{
	struct share *share = pointer;
	const struct slots *slots = &share->persist->connections;
	uint64_t number = fdstore_number(id), slot = number - FDSTORE_SHARE_CONNECTIONS;

	if (number < FDSTORE_SHARE_CONNECTIONS)
		return 0;
	uint32_t state = slot < slots->count ? *slot_state(slots, (uint32_t)slot) : SLOT_EMPTY;
	bool is_known = state != SLOT_EMPTY;
	int own_fd = is_known ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

	if (is_known && own_fd < 0)
		return -errno;
	if (is_known &&
	    share_connection_add(share, own_fd, (uint32_t)slot, slot_content(slots, (uint32_t)slot),
				 is_known ? state - SLOT_FULL : 0) == 0)
		return 0;
	if (own_fd >= 0)
		close(own_fd);
	fdstore_drop(share->fs->fdstore, id);
	return 0;
}

/* The restored connections, by their slots. */
struct restored {
	struct share_connection *by_slot[CONNECTION_SLOTS];
};

/* Empties the slots of connections that closed while there was no daemon. */
static void connection_slots_sweep(struct share *share, struct restored *restored)
{
	struct share_connection *connection;
	uint32_t slot = 0;

	DL_FOREACH2(share->connections, connection, next)
	{
		restored->by_slot[connection->slot] = connection;
	}
	while (slot_next(&share->persist->connections, &slot))
		if (!restored->by_slot[slot - 1])
			slot_empty(&share->persist->connections, slot - 1);
}

/* The file counts every restored lease as FILE_LEASE_HOLDS at first. */
static void file_restore_kind(struct fs *fs, struct inode *inode, enum file_lease_kind kind)
{
	if (kind == FILE_LEASE_LOOSE)
		file_lease_loosen(inode->file);
	else if (kind == FILE_LEASE_DROPPED)
		file_lease_drop(inode->file, FILE_LEASE_HOLDS);
	host_out_update_accounting(fs, inode);
}

/* The file of a lease, held open and with the lease counted. The earlier daemon may have been
 * killed between storing the lease and counting the lease in the journal: then the file is held
 * open and the lease is counted now. NULL: the file is gone. */
static struct inode *file_restore(struct share *share, const struct persist_lease *stored)
{
	struct inode *inode = inode_table_get(share->fs->inodes, stored->ino);
	struct inode_call call;

	if (!inode)
		return NULL;
	if (unclaimed_lease_adopt(share->fs, inode)) {
		inode_put(share->fs, inode, 1); /* the unclaimed lease had a reference */
		file_restore_kind(share->fs, inode, stored->kind);
		return inode;
	}
	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	if (inode_lease_get(share->fs, inode) == 0) {
		/* With FILE_SHARE_WRITE no file refuses: later exports check the access. */
		if (file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT) == 0) {
			file_restore_kind(share->fs, inode, stored->kind);
			return inode;
		}
		inode_lease_put(share->fs, inode, 1);
	}
	inode_put(share->fs, inode, 1);
	return NULL;
}

/* A holder that has gone may have stored before, and mtime moves for these stores now. */
static void gone_lease_settle(struct share *share, const struct persist_lease *stored)
{
	struct inode *inode = persist_lease_is_unseen(stored)
				  ? inode_table_get(share->fs->inodes, stored->ino)
				  : NULL;

	if (!inode)
		return;
	inode_unseen_begin(inode);
	inode_unseen_end(inode);
	inode_put(share->fs, inode, 1);
}

/* False: the connection or the file is gone. */
static bool lease_restore(struct share *share, const struct restored *restored,
			  const struct persist_lease *stored, uint32_t slot)
{
	struct share_connection *connection =
	    stored->connection < CONNECTION_SLOTS ? restored->by_slot[stored->connection] : NULL;
	struct inode *inode = connection ? file_restore(share, stored) : NULL;
	struct persist_lease lease = *stored;

	if (!connection)
		gone_lease_settle(share, stored);
	if (!inode)
		return false;
	lease.since = since_convert(stored->since, clock_ns());
	if (share_lease_restore(share, connection, &lease, slot, inode) == 0)
		return true;
	share_file_unlease(share, inode, stored->kind);
	return false;
}

static void leases_restore(struct share *share, const struct restored *restored)
{
	struct slots *slots = &share->persist->leases;
	const struct persist_lease *stored;
	uint32_t slot = 0;

	while ((stored = slot_next(slots, &slot)))
		if (!lease_restore(share, restored, stored, slot - 1))
			slot_empty(slots, slot - 1);
}

int share_restore(struct share *share)
{
	if (!share->persist || fdstore_generation(share->fs->fdstore) == 1)
		return 0;
	int error = fdstore_each_of(share->fs->fdstore, FDSTORE_SOCKET, connection_restore, share);
	AUTO_FREE struct restored *restored = calloc(1, sizeof(*restored));

	if (!error && !restored)
		error = -ENOMEM;
	if (error)
		return error;
	connection_slots_sweep(share, restored);
	leases_restore(share, restored);
	/* The rest were leases of connections that closed while there was no daemon. */
	unclaimed_leases_end(share->fs);
	return 0;
}
