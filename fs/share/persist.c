/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The slots of tokens and leases in persistent memory, and the restore of an earlier daemon's
 * sharers: their connections, which the keeper held, their leases and their tokens. */
#include "fs/share/persist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "fs/core/limits.h"
#include "fs/core/worker.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"
#include "fs/share/internal.h"
#include "fs/tree/host_out.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_lease.h"
#include "fs/tree/inode_table.h"

#define PERSIST_MAGIC 0x53465047u /* "GPFS" */

/* The kernel allocates only the pages that were written. */
#define TOKEN_SLOTS TOKENS_MAX
#define LEASE_SLOTS (1U << 20)

enum { SLOT_EMPTY, SLOT_FULL, SLOT_ANSWERED };

/* The state is stored last when a slot is filled, and first when a slot is emptied. */
struct token_slot {
	_Atomic uint32_t state;
	struct persist_token token;
};

struct lease_slot {
	_Atomic uint32_t state;
	struct persist_lease lease;
};

/* The layout of the memory, the same for all daemons of a mount. */
struct layout {
	struct region_head head;
	_Atomic uint32_t tokens_end, leases_end; /* behind the last slot that was ever filled */
	struct token_slot tokens[TOKEN_SLOTS];
	struct lease_slot leases[LEASE_SLOTS];
};

/* The slots of a kind: struct token_slot or struct lease_slot. */
struct slots {
	char *first;
	size_t stride; /* from slot to slot */
	size_t offset; /* of the content in a slot */
	uint32_t count;
	_Atomic uint32_t *end;
	uint32_t hint; /* the search for an empty slot begins here */
};

struct persist {
	struct layout *layout;
	struct slots tokens, leases;
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-sharing",
    .head = {.magic = PERSIST_MAGIC, .version = 2},
    .bytes = sizeof(struct layout),
};

int persist_open(struct fdstore *fdstore, struct persist **opened)
{
	*opened = NULL;
	if (!fdstore)
		return 0;
	struct persist *persist = calloc(1, sizeof(*persist));
	void *region;

	if (!persist)
		return -ENOMEM;
	int error = region_open(fdstore, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_MEMORY),
				&region_kind, &region);

	if (error) {
		free(persist);
		return error;
	}
	struct layout *layout = region;

	persist->layout = layout;
	persist->tokens = (struct slots){.first = (char *)layout->tokens,
					 .stride = sizeof(struct token_slot),
					 .offset = offsetof(struct token_slot, token),
					 .count = TOKEN_SLOTS,
					 .end = &layout->tokens_end};
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

static _Atomic uint32_t *slot_state(const struct slots *slots, uint32_t slot)
{
	return (_Atomic uint32_t *)(slots->first + slot * slots->stride);
}

static void *slot_content(const struct slots *slots, uint32_t slot)
{
	return slots->first + slot * slots->stride + slots->offset;
}

static uint32_t slot_fill(struct slots *slots, const void *content, size_t bytes)
{
	for (uint32_t tries = 0; tries < slots->count; tries++) {
		uint32_t slot = slots->hint++ % slots->count;
		_Atomic uint32_t *state = slot_state(slots, slot);

		if (*state != SLOT_EMPTY)
			continue;
		if (slot >= *slots->end)
			*slots->end = slot + 1;
		memcpy(slot_content(slots, slot), content, bytes);
		atomic_store(state, SLOT_FULL);
		return slot;
	}
	return PERSIST_NO_SLOT;
}

/* The lowest empty slot is filled next, so that a restore reads few slots. */
static void slot_empty(struct slots *slots, uint32_t slot)
{
	if (slot >= slots->count)
		return;
	atomic_store(slot_state(slots, slot), SLOT_EMPTY);
	if (slot < slots->hint)
		slots->hint = slot;
}

static const void *slot_next(const struct slots *slots, uint32_t *slot)
{
	while (*slot < slots->count && *slot < *slots->end) {
		uint32_t at = (*slot)++;

		if (*slot_state(slots, at) != SLOT_EMPTY)
			return slot_content(slots, at);
	}
	return NULL;
}

uint32_t persist_token_add(struct persist *persist, const struct persist_token *token)
{
	return persist ? slot_fill(&persist->tokens, token, sizeof(*token)) : PERSIST_NO_SLOT;
}

uint32_t persist_lease_add(struct persist *persist, const struct persist_lease *lease)
{
	return persist ? slot_fill(&persist->leases, lease, sizeof(*lease)) : PERSIST_NO_SLOT;
}

void persist_token_remove(struct persist *persist, uint32_t slot)
{
	if (persist)
		slot_empty(&persist->tokens, slot);
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

void persist_lease_set_answered(struct persist *persist, uint32_t slot)
{
	if (persist && slot < LEASE_SLOTS)
		atomic_store(&persist->layout->leases[slot].state, SLOT_ANSWERED);
}

const struct persist_token *persist_token_next(struct persist *persist, uint32_t *slot)
{
	return slot_next(&persist->tokens, slot);
}

const struct persist_lease *persist_lease_next(struct persist *persist, uint32_t *slot,
					       bool *answered)
{
	const struct persist_lease *lease = slot_next(&persist->leases, slot);

	*answered = lease && *slot_state(&persist->leases, *slot - 1) == SLOT_ANSWERED;
	return lease;
}

static int connection_restore(uint64_t id, int fd, void *pointer)
{
	struct share *share = pointer;
	uint64_t number = fdstore_number(id);

	if (number < FDSTORE_SHARE_CONNECTIONS)
		return 0;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (own < 0)
		return -errno;
	if (number > share->last_connection)
		share->last_connection = number;
	if (share_connection_add(share, own, number)) {
		close(own);
		fdstore_drop(share->fs->fdstore, id);
	}
	return 0;
}

/* Connections by their numbers, for a binary search: users choose how many connections and leases
 * there are. */
struct sorted_connection {
	struct share_connection *connection;
};

struct sorted_connections {
	struct sorted_connection *at;
	size_t count;
};

static int connections_compare(const void *a, const void *b)
{
	const struct sorted_connection *one = a, *other = b;
	uint64_t first = one->connection->number, second = other->connection->number;

	return (first > second) - (first < second);
}

static int connections_sort(const struct share *share, struct sorted_connections *sorted)
{
	struct share_connection *connection;
	size_t count;

	DL_COUNT2(share->connections, connection, count, next);
	*sorted = (struct sorted_connections){.at = calloc(count + 1, sizeof(sorted->at[0]))};
	if (!sorted->at)
		return -ENOMEM;
	DL_FOREACH2(share->connections, connection, next)
	{
		sorted->at[sorted->count++].connection = connection;
	}
	qsort(sorted->at, sorted->count, sizeof(sorted->at[0]), connections_compare);
	return 0;
}

static struct share_connection *connection_find(const struct sorted_connections *sorted,
						uint64_t number)
{
	struct share_connection wanted = {.number = number};
	const struct sorted_connection key = {.connection = &wanted};
	struct sorted_connection *found =
	    bsearch(&key, sorted->at, sorted->count, sizeof(sorted->at[0]), connections_compare);

	return found ? found->connection : NULL;
}

/* The file counts every restored lease as FILE_LEASE_HOLDS at first. */
static void file_restore_kind(struct fs *fs, struct inode *inode, enum file_lease_kind kind)
{
	file_set_handed_out(inode->file);
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

/* False: the connection or the file is gone. */
static bool lease_restore(struct share *share, const struct sorted_connections *sorted,
			  const struct persist_lease *stored, uint32_t slot, bool answered)
{
	struct share_connection *connection = connection_find(sorted, stored->connection);
	struct inode *inode = connection ? file_restore(share, stored) : NULL;
	struct share_lease *lease;

	if (!inode)
		return false;
	if (share_lease_restore(share, connection, stored, slot, inode, &lease)) {
		share_file_unlease(share, inode, stored->kind);
		return false;
	}
	if (!answered)
		connection->pending_reply = lease;
	return true;
}

static int leases_restore(struct share *share)
{
	const struct persist_lease *stored;
	struct sorted_connections sorted;
	uint32_t slot = 0;
	bool answered;
	int error = connections_sort(share, &sorted);

	if (error)
		return error;
	while ((stored = persist_lease_next(share->persist, &slot, &answered)))
		if (!lease_restore(share, &sorted, stored, slot - 1, answered))
			persist_lease_remove(share->persist, slot - 1);
	free(sorted.at);
	return 0;
}

int share_restore(struct share *share)
{
	if (!share->persist || fdstore_generation(share->fs->fdstore) == 1)
		return 0;
	int error = fdstore_each_of(share->fs->fdstore, FDSTORE_SOCKET, connection_restore, share);

	if (!error)
		error = leases_restore(share);
	if (error)
		return error;
	/* The rest were leases of connections that closed while there was no daemon. */
	unclaimed_leases_end(share->fs);
	token_restore(share->fs, &share->tokens);
	return 0;
}
