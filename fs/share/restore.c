/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The sharers of an earlier daemon: their connections, whose sockets the keeper held, and their
 * leases. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/worker.h"
#include "fs/holders/host_out.h"
#include "fs/holders/inode_lease.h"
#include "fs/keeper/fdstore.h"
#include "fs/share/internal.h"
#include "fs/share/persist.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_table.h"

/* A connection without a slot was not served yet, or had ended. */
static int connection_restore(uint64_t id, int fd, void *pointer)
{
	struct share *share = pointer;
	const struct slots *slots = persist_connection_slots(share->persist);
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
	while (slot_next(persist_connection_slots(share->persist), &slot))
		if (!restored->by_slot[slot - 1])
			slot_empty(persist_connection_slots(share->persist), slot - 1);
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
	bool unseen = persist_lease_is_unseen(stored), produced = stored->access & PERSIST_PRODUCES;
	struct inode *inode =
	    unseen || produced ? inode_table_get(share->fs->inodes, stored->ino) : NULL;

	if (!inode)
		return;
	if (unseen) {
		inode_unseen_begin(inode);
		inode_unseen_end(inode);
	}
	if (produced)
		inode_notify_producer_ended(share->fs, inode);
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
	lease.since = persist_since(stored->since, clock_ns());
	if (share_lease_restore(share, connection, &lease, slot, inode) == 0)
		return true;
	share_file_unlease(share, inode, stored->kind);
	return false;
}

static void leases_restore(struct share *share, const struct restored *restored)
{
	struct slots *slots = persist_lease_slots(share->persist);
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
