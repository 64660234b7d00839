/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sharers of a daemon before this one: their connections, which the keeper held, their leases and
 * their tokens, as they were noted. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "fs/core/worker.h"
#include "fs/keeper/fdstore.h"
#include "fs/share/internal.h"
#include "fs/tree/host_out.h"
#include "fs/tree/inode_lease.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/unclaimed_lease.h"

static int take_connection(uint64_t id, int fd, void *pointer)
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

/* The connections in the order of their numbers: users choose how many there are, and how many
 * leases. */
struct known_connection {
	struct share_connection *connection;
};

struct known {
	struct known_connection *at;
	size_t count;
};

static int by_number(const void *a, const void *b)
{
	const struct known_connection *one = a, *other = b;
	uint64_t first = one->connection->number, second = other->connection->number;

	return (first > second) - (first < second);
}

static int connections_sort(const struct share *share, struct known *known)
{
	struct share_connection *connection;
	size_t count;

	DL_COUNT2(share->connections, connection, count, next);
	*known = (struct known){.at = calloc(count + 1, sizeof(struct known_connection))};
	if (!known->at)
		return -ENOMEM;
	DL_FOREACH2(share->connections, connection, next)
	{
		known->at[known->count++].connection = connection;
	}
	qsort(known->at, known->count, sizeof(known->at[0]), by_number);
	return 0;
}

static struct share_connection *connection_find(const struct known *known, uint64_t number)
{
	struct share_connection wanted = {.number = number};
	struct known_connection key = {&wanted};
	struct known_connection *found =
	    bsearch(&key, known->at, known->count, sizeof(known->at[0]), by_number);

	return found ? found->connection : NULL;
}

/* The file counts each as one that holds. */
static void set_kind(struct fs *fs, struct inode *inode, enum file_lease_kind kind)
{
	file_set_handed_out(inode->file);
	if (kind == FILE_LEASE_LOOSE)
		file_lease_loosen(inode->file);
	else if (kind == FILE_LEASE_DROPPED)
		file_lease_drop(inode->file, FILE_LEASE_HOLDS);
	host_out_update_accounting(fs, inode);
}

/* The file as its sharer had it: held and leased, as the file knows, or as it would know had the
 * daemon before this one not been killed between the two. NULL: it is gone. */
static struct inode *take_file(struct share *share, const struct share_note_lease *noted)
{
	struct inode *inode = inode_table_get(share->fs->inodes, noted->ino);
	struct inode_call call;

	if (!inode)
		return NULL;
	if (unclaimed_lease_adopt(share->fs, inode)) {
		inode_put(share->fs, inode, 1); /* it came with a reference */
		set_kind(share->fs, inode, noted->kind);
		return inode;
	}
	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	if (inode_lease_get(share->fs, inode) == 0) {
		/* The lease was given: each export to come is looked at anew. */
		if (file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT) == 0) {
			set_kind(share->fs, inode, noted->kind);
			return inode;
		}
		inode_lease_put(share->fs, inode, 1);
	}
	inode_put(share->fs, inode, 1);
	return NULL;
}

/* False: whose it was, or what it was of, is gone. */
static bool take_lease(struct share *share, const struct known *known,
		       const struct share_note_lease *noted, uint32_t slot,
		       const struct share_note_request *request)
{
	struct share_connection *connection = connection_find(known, noted->connection);
	struct inode *inode = connection && noted->ino ? take_file(share, noted) : NULL;
	struct share_lease *lease;

	if (!inode)
		return false;
	if (share_lease_restore(share, connection, noted, slot, inode, &lease)) {
		share_let_go(share, inode, noted->kind);
		return false;
	}
	lease->token = request->token;
	if (!request->answered)
		connection->unanswered = lease;
	return true;
}

static int take_leases(struct share *share)
{
	struct share_note_lease noted;
	struct known known;
	uint32_t slot = 0;
	struct share_note_request request;
	int error = connections_sort(share, &known);

	if (error)
		return error;
	while (share_memory_next_lease(share->memory, &slot, &noted, &request))
		if (!take_lease(share, &known, &noted, slot - 1, &request))
			share_memory_forget_lease(share->memory, slot - 1);
	free(known.at);
	return 0;
}

int share_restore(struct share *share)
{
	if (!share->memory || fdstore_generation(share->fs->fdstore) == 1)
		return 0;
	int error = fdstore_each_of(share->fs->fdstore, FDSTORE_SOCKET, take_connection, share);

	if (!error)
		error = take_leases(share);
	if (error)
		return error;
	/* Whose connection is gone has ended while there was no daemon. */
	unclaimed_leases_end(share->fs);
	token_restore(share->fs, &share->tokens);
	return 0;
}
