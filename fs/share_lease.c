/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/defer.h"
#include "fs/hold.h"
#include "fs/host_out.h"
#include "fs/observe.h"
#include "fs/share_copy.h"
#include "fs/share_state.h"
#include "fs/worker.h"

/* How often a file that moves between volumes meanwhile is looked at again. */
#define LEASE_TRIES 8

struct share_ask {
	uint32_t number; /* of the request */
	struct inode *inode;
	enum gpumem_access access;
	struct inode *file; /* of which inode is a copy for this lease alone; NULL: inode is none */
};

static bool writes(enum gpumem_access access)
{
	return access == GPUMEM_ACCESS_WRITE;
}

/* What a lease with this access may be given of the file now. An fd of device memory can always be
 * written to, so a reader gets it only of a file that trusts readers. */
static enum file_share_access file_access(const struct inode *inode, enum gpumem_access access)
{
	struct attr_values attrs = atomic_load(&inode->attrs);

	if (writes(access))
		return FILE_SHARE_WRITE;
	return attrs.share == SHARE_TRUSTED ? FILE_SHARE_TRUSTED : FILE_SHARE_READ;
}

static uint32_t kind_of(const struct fs *fs, const struct volume *volume)
{
	if (!volume->device)
		return GPUMEM_KIND_HOST;
	return fs->backend->ops == &backend_host_ops ? GPUMEM_KIND_MEMFD : GPUMEM_KIND_DEVICE;
}

enum packets { ONE_PACKET, ANY_PACKETS };

/* Chunks of a file, and where it was when they were exported. */
struct batch {
	struct file_chunk chunks[GPUMEM_FDS_MAX];
	struct file_place place;
	int count; /* or -errno */
};

/* Each batch is a look of its own at what the lease may be given. */
static void batch_export(struct batch *batch, const struct share_lease *lease, uint32_t first)
{
	batch->count = file_export(lease->inode->file, file_access(lease->inode, lease->access),
				   first, batch->chunks, GPUMEM_FDS_MAX, &batch->place);
}

/* Sends the file's chunks from first on, in batches. Whether more follow is known by looking one
 * batch ahead; -EAGAIN where that is one too many. */
static int send_chunks(struct share *share, struct share_connection *connection,
		       const struct share_lease *lease, struct share_layout *layout, uint32_t first,
		       enum packets packets)
{
	struct batch batches[2], *batch = &batches[0], *next = &batches[1];

	layout->lease = lease->number;
	layout->flags = lease->private		? GPUMEM_LAYOUT_PRIVATE
			: writes(lease->access) ? 0
						: GPUMEM_LAYOUT_READ_ONLY;
	for (batch_export(batch, lease, first);; first += GPUMEM_FDS_MAX) {
		if (batch->count < 0)
			return batch->count;
		next->count = 0;
		if (batch->count == GPUMEM_FDS_MAX)
			batch_export(next, lease, first + GPUMEM_FDS_MAX);
		if (next->count > 0 && packets == ONE_PACKET) {
			file_chunks_close(next->chunks, (uint32_t)next->count);
			next->count = -EAGAIN;
		}
		if (next->count < 0) {
			file_chunks_close(batch->chunks, (uint32_t)batch->count);
			return next->count;
		}
		layout->place = batch->place;
		layout->kind = kind_of(share->fs, batch->place.volume);
		int error =
		    share_send_layout(connection, layout, first, batch->chunks,
				      (uint32_t)batch->count, next->count ? GPUMEM_LAYOUT_MORE : 0);
		if (error || !next->count) {
			file_chunks_close(next->chunks, (uint32_t)next->count);
			return error;
		}
		struct batch *sent = batch;

		batch = next;
		next = sent;
	}
}

/* Under the share's lock. 0 or -ENOMEM. */
static int lease_add(struct share_connection *connection, struct share_lease *lease)
{
	if (!HASH_ADD_NEW(hh, connection->leases, number, sizeof(lease->number), lease))
		return -ENOMEM;
	connection->deadline = 0;
	return 0;
}

/* False where there is a memory and no room in it. */
static bool lease_note(struct share *share, struct share_connection *connection,
		       struct share_lease *lease)
{
	struct share_note_lease note = {
	    .connection = connection->number,
	    .number = lease->number,
	    .ino = lease->inode->ino,
	    .since = lease->since,
	    .access = lease->access | (lease->private ? SHARE_NOTE_PRIVATE : 0),
	    .kind = atomic_load(&lease->kind),
	};

	lease->token = share_request_mark(&connection->request);
	lease->noted = share_memory_lease(share->memory, &note, lease->token);
	return !share->memory || lease->noted != SHARE_NO_SLOT;
}

/* Under the share's lock. 0 or -ENOMEM. */
static int lease_enter(struct share *share, struct share_connection *connection,
		       struct share_lease *lease)
{
	if (!lease_note(share, connection, lease))
		return -ENOMEM;
	int error = lease_add(connection, lease);

	if (error)
		share_memory_forget_lease(share->memory, lease->noted);
	return error;
}

/* Under no lock: the connection is in hand, so that the lease stays. */
static void lease_show(struct share *share, const struct share_connection *connection,
		       struct share_lease *lease)
{
	lease->listed = (struct lease_entry){
	    .inode = lease->inode,
	    .file = lease->file ? lease->file : lease->inode,
	    .pid = connection->pid,
	    .uid = connection->uid,
	    .access = lease->access,
	    .private = lease->private,
	    .since = lease->since,
	};
	lease_list_add(&share->fs->leases, &lease->listed);
}

static int lease_new(struct share *share, struct share_connection *connection,
		     const struct share_ask *ask, enum file_lease_kind kind,
		     struct share_lease **made)
{
	int error = user_limits_take(share->fs, connection->uid, USER_LEASES, 1);

	if (error)
		return error;
	struct share_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		goto give;
	lease->inode = ask->inode;
	lease->access = ask->access;
	lease->private = ask->file != NULL;
	lease->file = ask->file;
	lease->since = time(NULL);
	atomic_init(&lease->kind, kind);
	pthread_mutex_lock(&share->lock);
	lease->number = ++share->last_lease;
	error = lease_enter(share, connection, lease);
	pthread_mutex_unlock(&share->lock);
	if (error)
		goto give;
	if (lease->file)
		inode_ref(lease->file);
	lease_show(share, connection, lease);
	connection->unanswered = lease;
	*made = lease;
	return 0;

give:
	free(lease);
	user_limits_give(share->fs, connection->uid, USER_LEASES, 1);
	return -ENOMEM;
}

int share_lease_restore(struct share *share, struct share_connection *connection,
			const struct share_note_lease *noted, uint32_t slot, struct inode *inode,
			struct share_lease **restored)
{
	struct share_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return -ENOMEM;
	*lease = (struct share_lease){
	    .number = noted->number,
	    .inode = inode,
	    .access = noted->access & ~SHARE_NOTE_PRIVATE,
	    .private = noted->access & SHARE_NOTE_PRIVATE,
	    .since = noted->since,
	    .noted = slot,
	    .kind = noted->kind,
	};
	if (lease->number > share->last_lease)
		share->last_lease = lease->number;
	int error = user_limits_restore(share->fs, connection->uid, USER_LEASES, 1);

	if (error) {
		free(lease);
		return error;
	}
	pthread_mutex_lock(&share->lock);
	error = lease_add(connection, lease);
	pthread_mutex_unlock(&share->lock);
	if (error) {
		user_limits_give(share->fs, connection->uid, USER_LEASES, 1);
		free(lease);
		return error;
	}
	if (noted->kind != FILE_LEASE_DROPPED)
		lease_show(share, connection, lease);
	*restored = lease;
	return 0;
}

void share_answered(struct share *share, struct share_connection *connection)
{
	if (connection->unanswered)
		share_memory_answered(share->memory, connection->unanswered->noted);
	connection->unanswered = NULL;
	if (!connection->shown.inode)
		return;
	token_answered(&share->tokens, connection->shown.noted);
	inode_put(share->fs, connection->shown.inode, 1);
	connection->shown.inode = NULL;
}

static struct share_lease *lease_find(struct share_connection *connection, uint64_t number)
{
	struct share_lease *lease = NULL;

	HASH_FIND(hh, connection->leases, &number, sizeof(number), lease);
	return lease;
}

static bool lease_is_dropped(const struct share_lease *lease)
{
	return atomic_load(&lease->kind) == FILE_LEASE_DROPPED;
}

int share_lease_file(struct share_connection *connection, uint64_t number, struct inode **inode)
{
	struct share_lease *lease = lease_find(connection, number);

	if (!lease || lease_is_dropped(lease))
		return -ENOENT;
	inode_ref(lease->inode);
	*inode = lease->inode;
	return 0;
}

/* The file goes on without this sharer. */
void share_let_go(struct share *share, struct inode *inode, enum file_lease_kind kind)
{
	file_lease_end(inode->file, kind);
	host_out_settle(share->fs, inode);
	inode_unhold(share->fs, inode, 1);
	inode_put(share->fs, inode, 1);
	observe_unasked(share->fs, "lease end");
}

static void lease_end(struct share *share, struct share_connection *connection,
		      struct share_lease *lease)
{
	pthread_mutex_lock(&share->lock);
	HASH_DEL(connection->leases, lease);
	pthread_mutex_unlock(&share->lock);
	lease_list_remove(&share->fs->leases, &lease->listed);
	user_limits_give(share->fs, connection->uid, USER_LEASES, 1);
	/* Out of the list it is not dropped any more. */
	share_let_go(share, lease->inode, atomic_load(&lease->kind));
	if (lease->file)
		inode_put(share->fs, lease->file, 1);
	pthread_mutex_lock(&share->lock);
	share_memory_forget_lease(share->memory, lease->noted);
	pthread_mutex_unlock(&share->lock);
	if (connection->unanswered == lease)
		connection->unanswered = NULL;
	free(lease);
}

void share_leases_end(struct share *share, struct share_connection *connection)
{
	struct share_lease *lease, *next;

	HASH_ITER (hh, connection->leases, lease, next)
		lease_end(share, connection, lease);
}

/* The memory of the file itself, with a reference of the lease's own. -EPERM: a reader cannot have
 * it. */
static int lease_shared(struct share *share, struct share_connection *connection,
			const struct share_ask *ask, enum packets packets)
{
	struct share_layout layout = {.number = ask->number};
	struct inode *inode = ask->inode;
	struct inode_call call;
	int error = inode_hold(share->fs, inode);

	if (error)
		return error;
	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	int kind = file_lease(inode->file, &call.call, file_access(inode, ask->access));

	if (kind < 0) {
		inode_unhold(share->fs, inode, 1);
		return kind;
	}
	inode_ref(inode);
	host_out_settle(share->fs, inode);
	struct share_lease *lease;

	error = lease_new(share, connection, ask, (enum file_lease_kind)kind, &lease);
	if (error) {
		share_let_go(share, inode, (enum file_lease_kind)kind);
		return error;
	}
	/* The lease is counted: the file stays where it is, and the looks from here on are good. */
	error = send_chunks(share, connection, lease, &layout, 0, packets);
	if (error && error != -EPIPE)
		lease_end(share, connection, lease);
	return error;
}

/* A copy of the reader's own. -ENOTSUP: the file is in host/, and needs none. */
static int lease_private(struct share *share, struct share_connection *connection,
			 const struct share_ask *ask)
{
	struct share_ask own = {ask->number, NULL, GPUMEM_ACCESS_WRITE, ask->inode};
	int error = share_copy(share->fs, ask->inode, connection->uid, &own.inode);

	if (error)
		return error;
	error = lease_shared(share, connection, &own, ANY_PACKETS);
	inode_put(share->fs, own.inode, 1);
	return error;
}

/* The file's memory or a copy: which of them is decided where the file is looked at, and again
 * where it moved to another volume in between. */
static int lease_either(struct share *share, struct share_connection *connection,
			const struct share_ask *ask)
{
	for (unsigned tries = 0; tries < LEASE_TRIES; tries++) {
		int error = lease_shared(share, connection, ask, ANY_PACKETS);

		if (error != -EPERM)
			return error;
		error = lease_private(share, connection, ask);
		if (error != -ENOTSUP)
			return error;
	}
	return -EBUSY;
}

/* What came since, or all of it. */
static int lease_send_more(struct share *share, struct share_connection *connection,
			   struct share_lease *lease, const struct share_request *request)
{
	struct share_layout layout = {.number = request->number};
	struct inode *inode = lease->inode;
	struct inode_call call;

	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	int error = file_lease_more(inode->file, &call.call, file_access(inode, lease->access));

	if (error)
		return error;
	lease_list_measure(&share->fs->leases, &lease->listed);
	return send_chunks(share, connection, lease, &layout, (uint32_t)request->first_chunk,
			   ANY_PACKETS);
}

/* A daemon before this one got so far; the token was for that. A file whose memory this reader may
 * not have any more is leased anew. */
static int lease_again(struct share *share, struct share_connection *connection,
		       const struct share_request *request)
{
	struct share_lease *lease = connection->unanswered;
	struct share_ask ask = {request->number, lease->inode, lease->access, NULL};
	int error =
	    lease_is_dropped(lease) ? -ENOENT : lease_send_more(share, connection, lease, request);

	if (error != -EPERM)
		return error;
	inode_ref(ask.inode);
	lease_end(share, connection, lease);
	error = lease_either(share, connection, &ask);
	inode_put(share->fs, ask.inode, 1);
	return error;
}

/* Before memory is taken and copied for it. */
static int may_lease_more(struct share *share, const struct share_connection *connection)
{
	if (connection->leases && HASH_COUNT(connection->leases) >= GPUMEM_LEASES_MAX)
		return -EMFILE;
	return user_limits_check(share->fs, connection->uid, USER_LEASES);
}

int share_lease(struct share *share, struct share_connection *connection,
		const struct share_request *request)
{
	struct share_ask ask = {request->number, connection->shown.inode, connection->shown.access,
				NULL};

	if (connection->unanswered)
		return lease_again(share, connection, request);
	int error = may_lease_more(share, connection);

	if (!error)
		error = lease_either(share, connection, &ask);
	observe_unasked(share->fs, "lease");
	return error;
}

int share_lease_at_once(struct share *share, struct share_connection *connection,
			struct inode *inode, enum gpumem_access access, uint32_t number)
{
	struct share_ask ask = {number, inode, access, NULL};

	if (may_lease_more(share, connection))
		return -EMFILE;
	return lease_shared(share, connection, &ask, ONE_PACKET);
}

int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request)
{
	struct share_lease *lease = lease_find(connection, request->lease);

	if (!lease || lease_is_dropped(lease))
		return -ENOENT;
	if (lease->private)
		return -ENOTSUP; /* a private copy does not grow */
	return lease_send_more(share, connection, lease, request);
}

int share_release(struct share *share, struct share_connection *connection,
		  const struct share_request *request)
{
	struct share_lease *lease = lease_find(connection, request->lease);

	if (!lease)
		return -ENOENT;
	lease_end(share, connection, lease);
	return share_send_done(connection, request->number);
}
