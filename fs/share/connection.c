/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of connections to the sharing socket, and the thread that owns each busy connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/holders/holds.h"
#include "fs/keeper/fdstore.h"
#include "fs/ledger/ledger.h"
#include "fs/share/internal.h"

/* The kernel reports a single event; each further event needs another call. */
static int connection_watch(struct share *share, struct share_connection *connection, int operation)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = connection};

	return epoll_ctl(share->epoll_fd, operation, connection->fd, &event) ? -errno : 0;
}

/* Before close(): events go on while the keeper has a duplicate of the descriptor. */
static void connection_unwatch(struct share *share, struct share_connection *connection)
{
	if (connection->fd >= 0)
		epoll_ctl(share->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
}

static struct share_connection *connection_make(struct share *share, int fd, uint32_t slot,
						const struct ucred *peer)
{
	struct share_connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return NULL;
	*connection = (struct share_connection){
	    .job = share->job,
	    .user = turns_user_get(turns_of(share->fs), peer->uid),
	    .fd = fd,
	    .pid = peer->pid,
	    .uid = peer->uid,
	    .trusted = share_trusts(peer->uid),
	    .slot = slot,
	    .deadline = clock_seconds() + GPUMEM_CONNECTION_SECONDS,
	};
	share_refuse_fds(fd, !connection->trusted);
	if (connection->user)
		return connection;
	free(connection);
	return NULL;
}

static int connection_list(struct share *share, struct share_connection *connection)
{
	int error = connection_watch(share, connection, EPOLL_CTL_ADD);

	if (error)
		return error;
	scoped_lock(&share->lock);
	if (!HASH_ADD_NEW(hh, share->by_key, key, sizeof(connection->key), connection)) {
		connection_unwatch(share, connection);
		return -ENOMEM;
	}
	DL_APPEND2(share->connections, connection, previous, next);
	return 0;
}

int share_connection_add(struct share *share, int fd, uint32_t slot,
			 const uint8_t key[GPUMEM_KEY_BYTES], uint32_t listen_flags)
{
	struct ucred peer;
	int error = runtime_peer(fd, &peer);

	if (error)
		return error;
	error = ledger_take(share->fs, peer.uid, LEDGER_CONNECTIONS, 1);

	if (error)
		return error;
	struct share_connection *connection = connection_make(share, fd, slot, &peer);

	error = -ENOMEM;
	if (connection) {
		memcpy(connection->key, key, sizeof(connection->key));
		error = listen_flags ? share_listen(share, connection, listen_flags) : 0;
	}
	if (connection && !error)
		error = connection_list(share, connection);
	if (!error)
		return 0;
	if (connection) {
		share_unlisten(share, connection);
		turns_user_put(turns_of(share->fs), connection->user);
	}
	free(connection);
	ledger_give(share->fs, peer.uid, LEDGER_CONNECTIONS, 1);
	return error;
}

static void slot_remove(struct share *share, uint32_t slot)
{
	scoped_lock(&share->lock);
	persist_connection_remove(share->persist, slot);
}

static int slot_add(struct share *share, const uint8_t key[GPUMEM_KEY_BYTES], uint32_t *slot)
{
	scoped_lock(&share->lock);
	*slot = persist_connection_add(share->persist, key);
	return share->persist && *slot == PERSIST_NO_SLOT ? -EMFILE : 0;
}

static uint64_t slot_id(uint32_t slot)
{
	return fdstore_id(FDSTORE_SOCKET, (uint64_t)FDSTORE_SHARE_CONNECTIONS + slot);
}

int share_connection_new(struct share *share, int fd)
{
	struct fdstore *fdstore = share->fs->fdstore;
	uint8_t key[GPUMEM_KEY_BYTES];
	uint32_t slot;

	if (getrandom(key, sizeof(key), 0) != sizeof(key))
		return -EIO;
	int error = slot_add(share, key, &slot);

	if (error)
		return error;
	/* Before the connection is served: the next daemon then answers requests that this daemon
	 * cannot. */
	error = fdstore_hold(fdstore, slot_id(slot), fd);
	if (!error)
		error = share_connection_add(share, fd, slot, key, 0);
	if (!error)
		return 0;
	fdstore_drop(fdstore, slot_id(slot));
	slot_remove(share, slot);
	return error;
}

bool share_connection_acquire(struct share *share, struct share_connection *connection)
{
	scoped_lock(&share->lock);
	connection->event_taken = true;
	if (connection->busy)
		return false;
	connection->busy = true;
	return true;
}

/* Under the share's lock. A connection of this user, or NULL. */
static struct share_connection *connection_find(const struct share *share, uid_t uid,
						const uint8_t key[GPUMEM_KEY_BYTES])
{
	struct share_connection *connection = NULL;

	HASH_FIND(hh, share->by_key, key, GPUMEM_KEY_BYTES, connection);
	return connection && connection->uid == uid && !connection->ending ? connection : NULL;
}

int share_connection_acquire_key(struct share *share, struct share_ask *ask,
				 struct share_connection **acquired)
{
	scoped_lock(&share->lock);
	struct share_connection *connection = connection_find(share, ask->uid, ask->ask.key);

	if (!connection)
		return -ESTALE;
	if (connection->waiting)
		return -EBUSY;
	if (connection->busy) {
		connection->waiting = ask;
		return -EINPROGRESS;
	}
	connection->busy = true;
	*acquired = connection;
	return 0;
}

int share_connection_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
			    uint64_t number, struct inode **inode)
{
	scoped_lock(&share->lock);
	struct share_connection *connection = connection_find(share, uid, key);

	return connection ? share_lease_file(connection, number, inode) : -ESTALE;
}

void share_connection_release(struct share *share, struct share_connection *connection)
{
	pthread_mutex_lock(&share->lock);
	bool ending = connection->ending;
	struct share_ask *waiting = ending ? NULL : connection->waiting;

	/* Under the lock: once the connection is not busy, the share thread may free it. */
	connection->busy = ending || waiting;
	if (!connection->busy && connection->event_taken)
		connection_watch(share, connection, EPOLL_CTL_MOD);
	if (!connection->busy)
		connection->event_taken = false;
	if (waiting) {
		connection->ask = waiting;
		connection->job.request = waiting->request;
		connection->waiting = NULL;
	}
	pthread_mutex_unlock(&share->lock);
	if (waiting)
		turns_add(turns_of(share->fs), connection->user, &connection->job);
	else if (ending)
		share_connection_free(share, connection);
}

static void connection_close(struct share *share, struct share_connection *connection)
{
	if (connection->fd < 0)
		return;
	connection_unwatch(share, connection);
	close(connection->fd);
	connection->fd = -1;
	fdstore_drop(share->fs->fdstore, slot_id(connection->slot));
}

/* The connection's key is not valid from here on. */
static void connection_set_ending(struct share *share, struct share_connection *connection)
{
	scoped_lock(&share->lock);
	connection->ending = true;
}

static void ask_refuse(struct share_ask *ask)
{
	if (ask)
		ask->complete(ask, -ESTALE);
}

void share_connection_free(struct share *share, struct share_connection *connection)
{
	connection_set_ending(share, connection);
	share_unlisten(share, connection);
	share_leases_end(share, connection);
	share_pieces_forget(share, connection);
	receiver_put(share->fs, connection->receiver);
	pthread_mutex_lock(&share->lock);
	HASH_DEL(share->by_key, connection);
	DL_DELETE2(share->connections, connection, previous, next);
	pthread_mutex_unlock(&share->lock);
	connection_close(share, connection);
	/* The slot, and with it the id at the keeper, is free for another connection from here on.
	 */
	slot_remove(share, connection->slot);
	turns_user_put(turns_of(share->fs), connection->user);
	ledger_give(share->fs, connection->uid, LEDGER_CONNECTIONS, 1);
	ask_refuse(connection->ask);
	ask_refuse(connection->waiting);
	free(connection);
}

void share_connection_end(struct share *share, struct share_connection *connection)
{
	connection_set_ending(share, connection);
	/* At once: an open connection keeps the mount from being unmounted. */
	connection_close(share, connection);
	connection->job.request = 0;
	if (connection->leases)
		turns_add(turns_of(share->fs), connection->user, &connection->job);
	else
		share_connection_free(share, connection);
}

/* Under the share's lock. Marks the connections that are to end; returns the idle connections among
 * them. */
static struct turns_job *connections_collect(struct share *share, int64_t cutoff)
{
	struct turns_job *jobs = NULL;
	struct share_connection *connection;

	DL_FOREACH2(share->connections, connection, next)
	{
		bool late =
		    connection->deadline && connection->deadline < cutoff && !connection->busy;

		if (connection->ending || (cutoff != SHARE_ALWAYS && !late))
			continue;
		connection->ending = true;
		/* From here on no event names the connection, whichever thread frees the memory. */
		connection_unwatch(share, connection);
		if (!connection->busy)
			DL_APPEND(jobs, &connection->job);
		connection->busy = true;
	}
	return jobs;
}

void share_connections_end(struct share *share, int64_t cutoff)
{
	pthread_mutex_lock(&share->lock);
	struct turns_job *jobs = connections_collect(share, cutoff);

	pthread_mutex_unlock(&share->lock);
	while (jobs) {
		struct turns_job *job = jobs;

		DL_DELETE(jobs, job);
		share_connection_end(share, (struct share_connection *)job);
	}
}
