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
struct sorted_connections {
	struct share_connection **at;
	size_t count;
};

static int connections_compare(const void *a, const void *b)
{
	const struct share_connection *const *one = a, *const *other = b;
	uint64_t first = (*one)->number, second = (*other)->number;

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
		sorted->at[sorted->count++] = connection;
	}
	qsort(sorted->at, sorted->count, sizeof(sorted->at[0]), connections_compare);
	return 0;
}

static struct share_connection *connection_find(const struct sorted_connections *sorted,
						uint64_t number)
{
	const struct share_connection wanted = {.number = number}, *key = &wanted;
	struct share_connection **found =
	    bsearch(&key, sorted->at, sorted->count, sizeof(sorted->at[0]), connections_compare);

	return found ? *found : NULL;
}

/* The file counts each as one that holds. */
static void file_restore_kind(struct fs *fs, struct inode *inode, enum file_lease_kind kind)
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
static struct inode *file_restore(struct share *share, const struct share_note_lease *note)
{
	struct inode *inode = inode_table_get(share->fs->inodes, note->ino);
	struct inode_call call;

	if (!inode)
		return NULL;
	if (unclaimed_lease_adopt(share->fs, inode)) {
		inode_put(share->fs, inode, 1); /* it came with a reference */
		file_restore_kind(share->fs, inode, note->kind);
		return inode;
	}
	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	if (inode_lease_get(share->fs, inode) == 0) {
		/* The lease was given: each export to come is looked at anew. */
		if (file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT) == 0) {
			file_restore_kind(share->fs, inode, note->kind);
			return inode;
		}
		inode_lease_put(share->fs, inode, 1);
	}
	inode_put(share->fs, inode, 1);
	return NULL;
}

/* False: whose it was, or what it was of, is gone. */
static bool lease_restore(struct share *share, const struct sorted_connections *sorted,
			  const struct share_note_lease *note, uint32_t slot,
			  const struct share_note_request *request)
{
	struct share_connection *connection = connection_find(sorted, note->connection);
	struct inode *inode = connection && note->ino ? file_restore(share, note) : NULL;
	struct share_lease *lease;

	if (!inode)
		return false;
	if (share_lease_restore(share, connection, note, slot, inode, &lease)) {
		share_file_unlease(share, inode, note->kind);
		return false;
	}
	lease->token = request->token;
	if (!request->answered)
		connection->pending_reply = lease;
	return true;
}

static int leases_restore(struct share *share)
{
	struct share_note_lease note;
	struct sorted_connections sorted;
	uint32_t slot = 0;
	struct share_note_request request;
	int error = connections_sort(share, &sorted);

	if (error)
		return error;
	while (share_memory_next_lease(share->memory, &slot, &note, &request))
		if (!lease_restore(share, &sorted, &note, slot - 1, &request))
			share_memory_forget_lease(share->memory, slot - 1);
	free(sorted.at);
	return 0;
}

int share_restore(struct share *share)
{
	if (!share->memory || fdstore_generation(share->fs->fdstore) == 1)
		return 0;
	int error = fdstore_each_of(share->fs->fdstore, FDSTORE_SOCKET, connection_restore, share);

	if (!error)
		error = leases_restore(share);
	if (error)
		return error;
	/* Whose connection is gone has ended while there was no daemon. */
	unclaimed_leases_end(share->fs);
	token_restore(share->fs, &share->tokens);
	return 0;
}
