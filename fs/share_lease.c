/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/defer.h"
#include "fs/hold.h"
#include "fs/observe.h"
#include "fs/share_state.h"
#include "fs/worker.h"

static bool writes(enum gpumem_access access)
{
	return access == GPUMEM_ACCESS_WRITE;
}

/* Whether the memory itself may be handed to an opener with this access: an fd of device memory can
 * always be written to, so a reader gets it only of a file that trusts readers. An object of host/
 * can be opened for reading alone. */
static bool may_share(struct inode *inode, enum gpumem_access access)
{
	struct attr_values attrs = atomic_load(&inode->attrs);

	return writes(access) || attrs.share == SHARE_TRUSTED || !file_volume(inode->file)->device;
}

static uint32_t kind_of(const struct fs *fs, const struct inode *inode)
{
	if (!file_volume(inode->file)->device)
		return GPUMEM_KIND_HOST;
	return fs->backend->ops == &backend_host_ops ? GPUMEM_KIND_MEMFD : GPUMEM_KIND_DEVICE;
}

/* Sends the batches of an array; what is not sent is closed. */
static int send_array(struct share_connection *connection, const struct share_layout *layout,
		      struct file_chunk *chunks, uint32_t count)
{
	uint32_t first = 0;
	int error;

	do {
		uint32_t left = count - first;
		uint32_t batch = left < GPUMEM_FDS_MAX ? left : GPUMEM_FDS_MAX;
		uint32_t flags = batch < left ? GPUMEM_LAYOUT_MORE : 0;

		error = share_send_layout(connection, layout, first, chunks + first, batch, flags);
		first += batch;
	} while (!error && first < count);
	file_chunks_close(chunks + first, count - first);
	return error;
}

enum packets { ONE_PACKET, ANY_PACKETS };

/* Sends the file's chunks from first on, in batches. Whether more follow is known by looking one
 * batch ahead; -EAGAIN where that is one too many. */
static int send_chunks(struct share_connection *connection, const struct share_layout *layout,
		       enum gpumem_access access, uint32_t first, enum packets packets)
{
	struct file_chunk batches[2][GPUMEM_FDS_MAX];
	enum file_share_access file_access = writes(access) ? FILE_SHARE_WRITE : FILE_SHARE_READ;
	struct file *file = layout->inode->file;
	unsigned turn = 0;
	int count = file_export(file, file_access, first, batches[0], GPUMEM_FDS_MAX);

	for (;;) {
		if (count < 0)
			return count;
		int ahead = count < GPUMEM_FDS_MAX
				? 0
				: file_export(file, file_access, first + (uint32_t)count,
					      batches[!turn], GPUMEM_FDS_MAX);
		if (ahead > 0 && packets == ONE_PACKET) {
			file_chunks_close(batches[!turn], (uint32_t)ahead);
			ahead = -EAGAIN;
		}
		if (ahead < 0) {
			file_chunks_close(batches[turn], (uint32_t)count);
			return ahead;
		}
		int error = share_send_layout(connection, layout, first, batches[turn],
					      (uint32_t)count, ahead ? GPUMEM_LAYOUT_MORE : 0);
		if (error || !ahead) {
			file_chunks_close(batches[!turn], (uint32_t)ahead);
			return error;
		}
		first += (uint32_t)count;
		count = ahead;
		turn = !turn;
	}
}

/* 0 or -ENOMEM. */
static int lease_add(struct share *share, struct share_connection *connection,
		     struct share_lease *lease)
{
	LOCKED(&share->lock);
	unsigned before = connection->leases ? HASH_COUNT(connection->leases) : 0;

	HASH_ADD(hh, connection->leases, number, sizeof(lease->number), lease);
	if (!connection->leases || HASH_COUNT(connection->leases) == before)
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
	    .ino = lease->inode ? lease->inode->ino : 0,
	    .since = lease->since,
	    .access = lease->access,
	};

	lease->noted = share_memory_lease(share->memory, &note);
	return !share->memory || lease->noted != SHARE_NO_SLOT;
}

static struct share_lease *lease_new(struct share *share, struct share_connection *connection,
				     struct inode *inode, enum gpumem_access access)
{
	struct share_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	lease->number = ++share->last_lease;
	lease->inode = inode;
	lease->access = access;
	lease->since = time(NULL);
	if (!lease_note(share, connection, lease) || lease_add(share, connection, lease)) {
		share_memory_forget_lease(share->memory, lease->noted);
		free(lease);
		return NULL;
	}
	connection->unanswered = lease;
	return lease;
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
	    .access = noted->access,
	    .since = noted->since,
	    .noted = slot,
	};
	if (lease->number > share->last_lease)
		share->last_lease = lease->number;
	int error = lease_add(share, connection, lease);

	if (error)
		free(lease);
	else
		*restored = lease;
	return error;
}

void share_answered(struct share *share, struct share_connection *connection)
{
	if (connection->unanswered)
		share_memory_answered(share->memory, connection->unanswered->noted);
	connection->unanswered = NULL;
	token_settle(&share->tokens);
}

static struct share_lease *lease_find(struct share_connection *connection, uint64_t number)
{
	struct share_lease *lease = NULL;

	HASH_FIND(hh, connection->leases, &number, sizeof(number), lease);
	return lease;
}

int share_lease_file(struct share_connection *connection, uint64_t number, struct inode **inode)
{
	struct share_lease *lease = lease_find(connection, number);

	if (!lease)
		return -ENOENT;
	if (!lease->inode)
		return -EOPNOTSUPP;
	inode_ref(lease->inode);
	*inode = lease->inode;
	return 0;
}

/* The file goes on without this sharer. */
void share_let_go(struct share *share, struct inode *inode)
{
	file_unlease(inode->file, 1);
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
	if (lease->inode)
		share_let_go(share, lease->inode);
	share_memory_forget_lease(share->memory, lease->noted);
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

/* The file's own memory. Takes the inode's reference over on success. */
static int lease_shared(struct share *share, struct share_connection *connection,
			struct share_layout *layout, enum gpumem_access access,
			enum packets packets)
{
	struct inode *inode = layout->inode;
	struct inode_call call;
	int error = inode_hold(share->fs, inode);

	if (error)
		return error;
	inode_call_init(&call, share->fs, inode, worker_copier(share->fs));
	error = file_lease(inode->file, &call.call);
	if (error) {
		inode_unhold(share->fs, inode, 1);
		return error;
	}
	struct share_lease *lease = lease_new(share, connection, inode, access);

	if (!lease) {
		inode_ref(inode);
		share_let_go(share, inode);
		return -ENOMEM;
	}
	layout->lease = lease->number;
	layout->flags = writes(access) ? 0 : GPUMEM_LAYOUT_READ_ONLY;
	inode_ref(inode); /* ours; the caller's is the caller's */
	error = send_chunks(connection, layout, access, 0, packets);
	if (error && error != -EPIPE)
		lease_end(share, connection, lease);
	return error;
}

static int lease_private(struct share *share, struct share_connection *connection,
			 struct share_layout *layout, enum gpumem_access access)
{
	struct file_chunk *chunks;
	struct inode_call call;
	uint32_t count;

	inode_call_init(&call, share->fs, layout->inode, worker_copier(share->fs));
	int error = file_export_copy(layout->inode->file, &call.call, &chunks, &count);

	if (error)
		return error;
	struct share_lease *lease = lease_new(share, connection, NULL, access);

	if (lease) {
		layout->lease = lease->number;
		layout->flags = GPUMEM_LAYOUT_PRIVATE;
		error = send_array(connection, layout, chunks, count);
	} else {
		file_chunks_close(chunks, count);
		error = -ENOMEM;
	}
	free(chunks);
	return error;
}

static struct share_layout layout_of(const struct share *share, const struct share_lease *lease,
				     const struct share_request *request)
{
	return (struct share_layout){
	    .number = request->number,
	    .lease = lease->number,
	    .inode = lease->inode,
	    .kind = kind_of(share->fs, lease->inode),
	    .flags = writes(lease->access) ? 0 : GPUMEM_LAYOUT_READ_ONLY,
	};
}

static int lease_again(struct share *share, struct share_connection *connection,
		       const struct share_request *request)
{
	const struct share_lease *lease = connection->unanswered;
	struct share_layout layout = layout_of(share, lease, request);
	struct inode_call call;

	inode_call_init(&call, share->fs, lease->inode, worker_copier(share->fs));
	int error = file_lease_more(lease->inode->file, &call.call);

	return error ? error : send_chunks(connection, &layout, lease->access, 0, ANY_PACKETS);
}

int share_lease(struct share *share, struct share_connection *connection,
		const struct share_request *request)
{
	struct share_layout layout = {.number = request->number};
	enum gpumem_access access;

	/* A daemon before this one got so far; the token was for that. A private copy went with
	 * it. */
	if (connection->unanswered && connection->unanswered->inode)
		return lease_again(share, connection, request);
	if (connection->unanswered)
		lease_end(share, connection, connection->unanswered);
	if (connection->leases && HASH_COUNT(connection->leases) >= GPUMEM_LEASES_MAX)
		return -EMFILE;
	int error = token_redeem(share->fs, &share->tokens, request->token, connection->uid,
				 &layout.inode, &access);
	if (error)
		return error;
	layout.kind = kind_of(share->fs, layout.inode);
	if (may_share(layout.inode, access))
		error = lease_shared(share, connection, &layout, access, ANY_PACKETS);
	else
		error = lease_private(share, connection, &layout, access);
	observe_unasked(share->fs, "lease");
	inode_put(share->fs, layout.inode, 1);
	return error;
}

int share_lease_at_once(struct share *share, struct share_connection *connection,
			struct inode *inode, enum gpumem_access access, uint32_t number)
{
	struct share_layout layout = {
	    .number = number, .inode = inode, .kind = kind_of(share->fs, inode)};

	if (connection->leases && HASH_COUNT(connection->leases) >= GPUMEM_LEASES_MAX)
		return -EMFILE;
	if (!may_share(inode, access))
		return -EAGAIN;
	return lease_shared(share, connection, &layout, access, ONE_PACKET);
}

int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request)
{
	struct share_lease *lease = lease_find(connection, request->lease);
	struct inode_call call;

	if (!lease)
		return -ENOENT;
	if (!lease->inode)
		return -ENOTSUP; /* a private copy does not grow */
	inode_call_init(&call, share->fs, lease->inode, worker_copier(share->fs));
	int error = file_lease_more(lease->inode->file, &call.call);

	if (error)
		return error;
	struct share_layout layout = layout_of(share, lease, request);

	return send_chunks(connection, &layout, lease->access, (uint32_t)request->first_chunk,
			   ANY_PACKETS);
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
