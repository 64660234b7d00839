/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/worker.h"
#include "fs/holders/host_out.h"
#include "fs/holders/inode_lease.h"
#include "fs/ledger/ledger.h"
#include "fs/share/copy.h"
#include "fs/share/internal.h"
#include "fs/share/lease_list.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_hooks.h"

/* How often a lease is tried on a file that moves between volumes meanwhile. */
#define LEASE_TRIES 8

/* Under the share's lock. 0 or -ENOMEM. */
static int lease_add(struct share_connection *connection, struct share_lease *lease)
{
	if (!HASH_ADD_NEW(hh, connection->leases, number, sizeof(lease->number), lease))
		return -ENOMEM;
	connection->deadline = 0;
	return 0;
}

static uint32_t lease_persist_flags(const struct share_lease *lease)
{
	if (lease->private)
		return PERSIST_PRIVATE;
	return (lease->access == GPUMEM_ACCESS_WRITE && !lease->unseen ? PERSIST_TIMED : 0) |
	       (lease->loads ? PERSIST_LOADS : 0) | (lease->delegated ? PERSIST_DELEGATED : 0) |
	       (lease->produces ? PERSIST_PRODUCES : 0);
}

/* False where the persistent memory has no room. */
static bool lease_persist(struct share *share, struct share_connection *connection,
			  struct share_lease *lease)
{
	struct persist_lease stored = {
	    .connection = connection->slot,
	    .number = lease->number,
	    .ino = lease->inode->ino,
	    .since = lease->since,
	    .access = lease->access | lease_persist_flags(lease),
	    .kind = atomic_load(&lease->kind),
	    .request = lease->request,
	};

	lease->slot = persist_lease_add(share->persist, &stored);
	return !share->persist || lease->slot != PERSIST_NO_SLOT;
}

/* Under the share's lock: adds a lease, which may get a delegation. 0, -ENOMEM, or -EINPROGRESS
 * with FILE_NO_WAIT. */
static int lease_count(struct share *share, struct share_connection *connection,
		       struct share_lease *lease, enum file_wait wait)
{
	int error = lease_add(connection, lease);

	if (error)
		return error;
	error = delegation_lease_add(share, connection, lease, wait);
	if (error)
		HASH_DEL(connection->leases, lease);
	return error;
}

/* Under the share's lock: forgets a lease that was counted. */
static void lease_unregister(struct share *share, struct share_connection *connection,
			     struct share_lease *lease)
{
	HASH_DEL(connection->leases, lease);
	delegation_lease_remove(share, lease);
}

/* Under the share's lock. 0, -ENOMEM, or -EINPROGRESS with FILE_NO_WAIT. */
static int lease_register(struct share *share, struct share_connection *connection,
			  struct share_lease *lease, enum file_wait wait)
{
	/* First, because the stored flags tell of the delegation. */
	int error = lease_count(share, connection, lease, wait);

	if (error)
		return error;
	if (lease_persist(share, connection, lease))
		return 0;
	lease_unregister(share, connection, lease);
	return -ENOMEM;
}

/* Under no lock: the caller owns the connection, so the lease stays. */
static void lease_publish(struct share *share, const struct share_connection *connection,
			  struct share_lease *lease)
{
	lease->listed = (struct lease_entry){
	    .inode = lease->inode,
	    .file = lease->file ? lease->file : lease->inode,
	    .pid = connection->pid,
	    .uid = connection->uid,
	    .access = lease->access,
	    .private = lease->private,
	    .produces = lease->produces,
	    .since = lease->since,
	};
	lease_list_add(lease_list_of(share->fs), &lease->listed);
}

static int lease_new(struct share *share, struct share_connection *connection,
		     const struct lease_params *params, enum file_lease_kind kind,
		     struct share_lease **new_lease)
{
	int error = ledger_take(share->fs, connection->uid, LEDGER_LEASES, 1);

	if (error)
		return error;
	struct share_lease *lease = calloc(1, sizeof(*lease));

	error = -ENOMEM;
	if (!lease)
		goto give;
	lease->inode = params->inode;
	lease->access = params->access;
	lease->private = params->file != NULL;
	lease->unseen = params->access == GPUMEM_ACCESS_WRITE && !lease->private &&
			params->times == SHARE_TIMES_UNSEEN;
	lease->loads = params->loads;
	lease->produces = params->produces;
	lease->file = params->file;
	lease->since = clock_ns();
	lease->request = params->request;
	if (connection->uid != atomic_load(&params->inode->uid))
		file_set_unclean(params->inode->file);
	atomic_init(&lease->kind, kind);
	pthread_mutex_lock(&share->lock);
	lease->number = ++share->last_lease;
	error = lease_register(share, connection, lease, params->wait);
	pthread_mutex_unlock(&share->lock);
	if (error)
		goto give;
	inode_ref(lease->inode);
	if (lease->file)
		inode_ref(lease->file);
	lease_publish(share, connection, lease);
	*new_lease = lease;
	return 0;

give:
	free(lease);
	ledger_give(share->fs, connection->uid, LEDGER_LEASES, 1);
	return error;
}

int share_lease_restore(struct share *share, struct share_connection *connection,
			const struct persist_lease *stored, uint32_t slot, struct inode *inode)
{
	struct share_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return -ENOMEM;
	*lease = (struct share_lease){
	    .number = stored->number,
	    .inode = inode,
	    .access = stored->access & ~PERSIST_FLAGS,
	    .private = stored->access & PERSIST_PRIVATE,
	    .unseen = persist_lease_is_unseen(stored),
	    .loads = stored->access & PERSIST_LOADS,
	    .produces = stored->access & PERSIST_PRODUCES,
	    .delegated = stored->access & PERSIST_DELEGATED,
	    .since = stored->since,
	    .slot = slot,
	    .request = stored->request,
	    .kind = stored->kind,
	};
	if (lease->number > share->last_lease)
		share->last_lease = lease->number;
	int error = ledger_restore(share->fs, connection->uid, LEDGER_LEASES, 1);

	if (error) {
		free(lease);
		return error;
	}
	pthread_mutex_lock(&share->lock);
	error = lease_count(share, connection, lease, FILE_MAY_WAIT);
	pthread_mutex_unlock(&share->lock);
	if (error) {
		ledger_give(share->fs, connection->uid, LEDGER_LEASES, 1);
		free(lease);
		return error;
	}
	if (stored->kind != FILE_LEASE_DROPPED)
		lease_publish(share, connection, lease);
	if (lease->unseen)
		inode_unseen_begin(inode);
	/* An earlier program stored no receivers. */
	share_note_receiver(share, connection, inode);
	return 0;
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

/* Ends the count of a lease, and the hold on the file. May wait for a file that keeps no memory for
 * the lease. */
static void lease_undo(struct share *share, struct inode *inode, enum file_lease_kind kind)
{
	file_lease_end(inode->file, kind);
	host_out_update_accounting(share->fs, inode);
	inode_lease_put(share->fs, inode, 1);
}

/* The file goes on without this sharer. */
void share_file_unlease(struct share *share, struct inode *inode, enum file_lease_kind kind)
{
	lease_undo(share, inode, kind);
	inode_put(share->fs, inode, 1);
	observe_background(share->fs, "lease end");
}

static void lease_end(struct share *share, struct share_connection *connection,
		      struct share_lease *lease)
{
	pthread_mutex_lock(&share->lock);
	lease_unregister(share, connection, lease);
	pthread_mutex_unlock(&share->lock);
	lease_list_remove(lease_list_of(share->fs), &lease->listed);
	ledger_give(share->fs, connection->uid, LEDGER_LEASES, 1);
	uint64_t ino = lease->inode->ino;

	if (lease->unseen)
		inode_unseen_end(lease->inode);
	if (lease->produces)
		inode_notify_producer_ended(share->fs, lease->inode);
	/* Once removed from the list, the lease cannot be dropped any more. */
	share_file_unlease(share, lease->inode, atomic_load(&lease->kind));
	if (lease->unseen)
		share->changed(share->fs->states[FS_SESSION], ino);
	if (lease->file)
		inode_put(share->fs, lease->file, 1);
	pthread_mutex_lock(&share->lock);
	persist_lease_remove(share->persist, lease->slot);
	pthread_mutex_unlock(&share->lock);
	free(lease);
}

void share_leases_end(struct share *share, struct share_connection *connection)
{
	struct share_lease *lease, *next;

	HASH_ITER (hh, connection->leases, lease, next) {
		/* The process, or another one with the connection, may go on with the memory. */
		file_set_unclean(lease->inode->file);
		lease_end(share, connection, lease);
	}
}

/* A request that must not wait gets no copier, as a copy waits. */
static void lease_call_init(struct inode_call *call, struct share *share, struct inode *inode,
			    enum file_wait wait)
{
	inode_call_init(call, share->fs, inode,
			wait == FILE_MAY_WAIT ? worker_copier(share->fs) : NULL);
}

/* Leases the file after its object was replaced by an object with a tmpfs of its own. */
static int lease_begin_replaced(struct inode *inode, const struct file_call *call,
				const struct lease_params *params)
{
	if (params->wait == FILE_NO_WAIT)
		return -EINPROGRESS;
	inode_move_begin(inode);
	int error = file_replace_object(inode->file, call);

	inode_move_end(inode);
	if (error)
		return error;
	int kind = file_lease(inode->file, call, share_access(inode, params->access), params->wait);

	return kind == -EXDEV ? -EBUSY : kind;
}

/* Holds the file open and counts its lease: enum file_lease_kind, or -errno. */
static int lease_begin(struct share *share, const struct lease_params *params)
{
	struct inode *inode = params->inode;
	struct inode_call call;
	int error = inode_lease_get(share->fs, inode);

	if (error)
		return error;
	lease_call_init(&call, share, inode, params->wait);
	int kind =
	    file_lease(inode->file, &call.call, share_access(inode, params->access), params->wait);

	if (kind == -EXDEV)
		kind = lease_begin_replaced(inode, &call.call, params);
	if (kind < 0)
		inode_lease_put(share->fs, inode, 1);
	else
		host_out_update_accounting(share->fs, inode);
	return kind;
}

/* Before a layout is sent: the kernel may have attributes from before the lease, and the number of
 * blocks from before the file's holes were filled. */
static void lease_announce(struct share *share, const struct share_lease *lease, uint64_t allocated)
{
	if (!lease->private && (lease->unseen || file_allocated(lease->inode->file) != allocated))
		share->changed(share->fs->states[FS_SESSION], lease->inode->ino);
}

/* The kernel's pages do not show what the holder of the lease may store from now on. */
static void lease_recall(struct share *share, const struct share_lease *lease)
{
	if (delegation_lease_stores(lease))
		delegations_recall(share, lease->inode->ino);
}

/* Leases the memory of the file itself, with a reference of the lease's own. -EPERM: a reader may
 * not have that memory. */
static int lease_shared(struct share *share, struct share_connection *connection,
			const struct lease_params *params)
{
	struct share_lease *lease;
	uint64_t allocated = file_allocated(params->inode->file);
	int kind = lease_begin(share, params);

	if (kind < 0)
		return kind;
	int error = lease_new(share, connection, params, (enum file_lease_kind)kind, &lease);

	if (error) {
		lease_undo(share, params->inode, (enum file_lease_kind)kind);
		return error;
	}
	if (params->wait == FILE_MAY_WAIT)
		lease_recall(share, lease);
	if (lease->unseen)
		inode_unseen_begin(params->inode);
	lease_announce(share, lease, allocated);
	/* The lease is counted: the file stays on its volume, and the chunks exported from here on
	 * stay valid. */
	error = share_send_chunks(share, connection, lease, params->request, 0, params->wait);
	if (error && error != -EPIPE)
		lease_end(share, connection, lease);
	return error;
}

/* Leases a private copy for the reader. -ENOTSUP: the file is in host/, where readers need no copy.
 */
static int lease_private(struct share *share, struct share_connection *connection,
			 const struct lease_params *params)
{
	struct lease_params copy_params = {
	    .request = params->request, .access = GPUMEM_ACCESS_WRITE, .file = params->inode};
	int error = share_copy(share->fs, params->inode, connection->uid, &copy_params.inode);

	if (error)
		return error;
	error = lease_shared(share, connection, &copy_params);
	inode_put(share->fs, copy_params.inode, 1);
	return error;
}

/* Leases the file's memory, or a copy. The decision depends on the file's volume, and is taken
 * again where the file moved to another volume meanwhile. */
static int lease_grant(struct share *share, struct share_connection *connection,
		       const struct lease_params *params)
{
	for (unsigned attempt = 0; attempt < LEASE_TRIES; attempt++) {
		int error = lease_shared(share, connection, params);

		if (error != -EPERM)
			return error;
		if (params->wait == FILE_NO_WAIT)
			return -EINPROGRESS;
		error = lease_private(share, connection, params);
		if (error != -ENOTSUP)
			return error;
	}
	return -EBUSY;
}

/* Sends the chunks from first on, after the file may have grown. */
static int lease_send_more(struct share *share, struct share_connection *connection,
			   struct share_lease *lease, uint32_t number, uint32_t first,
			   enum file_wait wait)
{
	struct inode *inode = lease->inode;
	struct inode_call call;

	lease_call_init(&call, share, inode, wait);
	uint64_t allocated = file_allocated(inode->file);
	int error =
	    file_lease_more(inode->file, &call.call, share_access(inode, lease->access), wait);

	if (error)
		return error;
	lease_announce(share, lease, allocated);
	lease_list_measure(lease_list_of(share->fs), &lease->listed);
	return share_send_chunks(share, connection, lease, number, first, wait);
}

/* The lease that an earlier daemon made for the ask, or NULL. The file of a private copy is not
 * known any more. */
static struct share_lease *lease_of_ask(const struct share_connection *connection,
					const struct share_ask *ask)
{
	struct share_lease *lease, *next;

	HASH_ITER (hh, connection->leases, lease, next)
		if (lease->request == ask->ask.request &&
		    (lease->private || lease->inode == ask->inode))
			return lease;
	return NULL;
}

/* Answers an ask for which an earlier daemon has made the lease, perhaps for the second time: the
 * client ignores the second answer. If the lease was dropped, or the reader may no longer have the
 * file's memory, the file is leased again. */
static int lease_resume(struct share *share, struct share_connection *connection,
			struct share_lease *lease, const struct lease_params *params)
{
	lease_recall(share, lease);
	int error = lease_is_dropped(lease) ? -EPERM
					    : lease_send_more(share, connection, lease,
							      params->request, 0, params->wait);

	if (!error || error == -EPIPE)
		return error;
	lease_end(share, connection, lease);
	return error == -EPERM ? lease_grant(share, connection, params) : error;
}

/* Checked before memory is allocated and copied. Chunks that processes keep are charged whatever
 * the limits are, to the owner of the file: so the owner's files are leased no more. */
static int lease_check_limits(struct share *share, const struct share_connection *connection,
			      const struct inode *inode)
{
	if (connection->leases && HASH_COUNT(connection->leases) >= GPUMEM_LEASES_MAX)
		return -EMFILE;
	return ledger_check(share->fs, connection->uid, LEDGER_LEASES)
		   ?: ledger_check(share->fs, atomic_load(&inode->uid), LEDGER_HELD_CHUNKS);
}

/* A file that is not leased after all has no other end. */
static int lease_adopted(struct share *share, struct share_connection *connection,
			 const struct share_ask *ask, struct lease_params *params)
{
	int error = share_adopt(share, connection, ask);

	if (error)
		return error;
	params->wait = FILE_MAY_WAIT; /* the file has its memory */
	error = lease_grant(share, connection, params);
	if (error && error != -EPIPE)
		inode_notify_producer_ended(share->fs, params->inode);
	return error;
}

int share_lease(struct share *share, struct share_connection *connection,
		const struct share_ask *ask, enum file_wait wait)
{
	struct lease_params params = {
	    .request = ask->ask.request,
	    .inode = ask->inode,
	    .access = ask->access,
	    .times = ask->times,
	    .loads = ask->loads,
	    .produces = ask->adopt && !ask->adopt->stays,
	    .wait = wait,
	};
	struct share_lease *earlier = ask->resent ? lease_of_ask(connection, ask) : NULL;

	if (earlier)
		return wait == FILE_NO_WAIT ? -EINPROGRESS
					    : lease_resume(share, connection, earlier, &params);
	if (wait == FILE_NO_WAIT && !ask->loads && delegations_wait(share, ask->inode->ino))
		return -EINPROGRESS;
	/* The user's leases of ended connections may still wait for their end in the queue. */
	if (wait == FILE_NO_WAIT && ledger_is_reached(share->fs, connection->uid, LEDGER_LEASES))
		return -EINPROGRESS;
	int error = lease_check_limits(share, connection, ask->inode);

	if (!error && ask->adopt && wait == FILE_NO_WAIT && !share_adopts_at_once(ask))
		return -EINPROGRESS;
	if (!error && ask->adopt)
		return lease_adopted(share, connection, ask, &params);
	return error ? error : lease_grant(share, connection, &params);
}

int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request, enum file_wait wait)
{
	struct share_lease *lease = lease_find(connection, request->lease);

	if (!lease || lease_is_dropped(lease))
		return -ENOENT;
	if (file_adopted_has_ended((lease->file ? lease->file : lease->inode)->file))
		return -ESTALE;
	return lease_send_more(share, connection, lease, request->number,
			       (uint32_t)request->first_chunk, wait);
}

int share_release(struct share *share, struct share_connection *connection,
		  const struct share_request *request, enum file_wait wait)
{
	struct share_lease *lease = lease_find(connection, request->lease);

	if (!lease)
		return -ENOENT;
	/* The end of a file's last lease may free all of its memory, which waits. */
	if (wait == FILE_NO_WAIT)
		return -EINPROGRESS;
	lease_end(share, connection, lease);
	return share_send_done(connection, request->number);
}
