/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Notices for processes that listen: other processes of their user ask them to park files, and the
 * daemon tells them that a GPU is full of leased files. No process has to act on a notice, and no
 * notice waits for a process: a full socket loses the notice. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "fs/core/caller.h"
#include "fs/core/worker.h"
#include "fs/share/internal.h"
#include "fs/share/viewer.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

/* The share's lock is given up after this many listeners: a user may have thousands. */
#define LISTENERS_AT_ONCE 64

static struct share_process process_of(const struct share_connection *connection)
{
	return (struct share_process){.pid = connection->pid, .uid = connection->uid};
}

/* Under the share's lock. */
static void listener_forgo(struct share *share, struct share_listener *listener)
{
	if (listener->chosen)
		HASH_DEL(share->recall_listeners, listener);
	listener->chosen = false;
}

/* Under the share's lock: of a process with several listeners, the last one hears recalls. Without
 * memory for that the process gets no delegations. */
static void listener_choose(struct share *share, struct share_listener *listener)
{
	struct share_listener *earlier = NULL;

	HASH_FIND(hh, share->recall_listeners, &listener->process, sizeof(listener->process),
		  earlier);
	if (earlier) {
		listener->late |= earlier->late;
		listener_forgo(share, earlier);
	}
	listener->chosen =
	    HASH_ADD_NEW(hh, share->recall_listeners, process, sizeof(listener->process), listener);
}

int share_listen(struct share *share, struct share_connection *connection, uint32_t flags)
{
	struct share_listener *new_listener = NULL;

	/* Only the owner of the connection sets the pointer. */
	if (!connection->listener) {
		new_listener = calloc(1, sizeof(*new_listener));
		if (!new_listener)
			return -ENOMEM;
	}
	scoped_lock(&share->lock);
	if (new_listener) {
		new_listener->connection = connection;
		new_listener->process = process_of(connection);
		new_listener->sequence = ++share->last_listener;
		DL_APPEND(share->listeners, new_listener);
		connection->listener = new_listener;
	}
	connection->listener->flags = flags;
	listener_forgo(share, connection->listener);
	if (flags & GPUMEM_LISTEN_RECALL)
		listener_choose(share, connection->listener);
	connection->deadline = 0;
	persist_connection_listens(share->persist, connection->slot, flags);
	return 0;
}

void share_unlisten(struct share *share, struct share_connection *connection)
{
	scoped_lock(&share->lock);
	if (!connection->listener)
		return;
	DL_DELETE(share->listeners, connection->listener);
	listener_forgo(share, connection->listener);
	for (unsigned i = 0; i < SHARE_NOTICES && !connection->listener->cut; i++)
		if (!connection->listener->notices[i].answered &&
		    !connection->listener->notices[i].unawaited)
			delegation_answered(share, connection->listener->notices[i].number);
	free(connection->listener);
	connection->listener = NULL;
}

/* Under the share's lock. */
static struct share_notice *notice_find(struct share_listener *listener, uint32_t number)
{
	for (unsigned i = 0; i < SHARE_NOTICES; i++)
		if (number && listener->notices[i].number == number)
			return &listener->notices[i];
	return NULL;
}

/* A notice that the daemon does not know any more, or that an earlier daemon sent, is no error. */
void share_noticed(struct share *share, struct share_connection *connection,
		   const struct share_request *request)
{
	scoped_lock(&share->lock);
	struct share_notice *notice =
	    connection->listener ? notice_find(connection->listener, request->number) : NULL;

	if (!notice || notice->answered)
		return;
	notice->answered = true;
	connection->listener->late = false;
	if (!notice->unawaited)
		delegation_answered(share, notice->number);
	notice->error = request->error;
	notice->files = request->files;
}

/* Under the share's lock: the first listener behind a sequence, or NULL. */
static struct share_listener *listener_after(const struct share *share, uint64_t sequence)
{
	struct share_listener *at = share->listeners;

	while (at && at->sequence <= sequence)
		at = at->next;
	return at;
}

/* Whether a process with this user may ask the listener for anything, and see its answers. */
static bool listener_is_for(const struct share_listener *listener, uid_t uid)
{
	return listener->connection->uid == uid || user_is_privileged(uid);
}

/* Under the share's lock. */
static void notice_remember(struct share_listener *listener, uint32_t number)
{
	listener->notices[listener->sent++ % SHARE_NOTICES] =
	    (struct share_notice){.number = number};
}

/* Under the share's lock. */
static bool notice_send(struct share_listener *listener, uint32_t number,
			const struct gpumem_msg_notice *notice)
{
	if (share_send_notice(listener->connection, number, notice))
		return false;
	if (number)
		notice_remember(listener, number);
	return true;
}

/* A notice, and the listeners that are sent the notice. */
struct telling {
	const struct gpumem_msg_notice *notice;
	uint32_t number;      /* 0: no answer is expected */
	uint32_t flag;	      /* enum gpumem_listen_flags */
	uid_t uid;	      /* whose process asks; 0 for the daemon itself */
	pid_t pid;	      /* 0: each */
	uint64_t first, last; /* sequences: after the first, up to the last */
	uint32_t sent;
};

/* Under the share's lock: whether the listener's process may have the lease that ended. A process
 * may have changed its user after the lease. Those that the daemon's PID namespace does not show
 * have the number 0, each. */
static bool listener_is_holder(const struct telling *telling, const struct share_listener *listener)
{
	return telling->pid ? listener->connection->pid == telling->pid
			    : listener->connection->uid == telling->uid;
}

/* Under the share's lock. */
static bool listener_is_meant(const struct telling *telling, const struct share_listener *listener)
{
	if (!(listener->flags & telling->flag) || listener->connection->ending)
		return false;
	if (telling->flag == GPUMEM_LISTEN_END)
		return listener_is_holder(telling, listener);
	return (!telling->pid || telling->pid == listener->connection->pid) &&
	       listener_is_for(listener, telling->uid);
}

/* Under the share's lock. A process that missed the end of a file's memory must ask, and does when
 * it connects again. */
static void listener_tell(struct telling *telling, struct share_listener *listener)
{
	if (notice_send(listener, telling->number, telling->notice))
		telling->sent++;
	else if (telling->flag == GPUMEM_LISTEN_END)
		shutdown(listener->connection->fd, SHUT_RDWR);
}

/* False: all listeners were told. */
static bool listeners_tell_some(struct share *share, struct telling *telling)
{
	scoped_lock(&share->lock);
	struct share_listener *at = listener_after(share, telling->first);

	for (unsigned i = 0; at && at->sequence <= telling->last; i++, at = at->next) {
		if (i == LISTENERS_AT_ONCE)
			return true;
		telling->first = at->sequence;
		if (listener_is_meant(telling, at))
			listener_tell(telling, at);
	}
	return false;
}

static struct share_listener *listener_of(const struct share *share,
					  const struct share_connection *connection)
{
	const struct share_process process = process_of(connection);
	struct share_listener *found = NULL;

	HASH_FIND(hh, share->recall_listeners, &process, sizeof(process), found);
	return found && !found->connection->ending ? found : NULL;
}

bool share_hears_recalls(const struct share *share, const struct share_connection *connection)
{
	const struct share_listener *listener = listener_of(share, connection);

	return listener && !listener->late;
}

uint32_t share_notice_number(struct share *share)
{
	share->last_notice += share->last_notice == UINT32_MAX ? 2 : 1;
	return share->last_notice;
}

bool share_tell_process(struct share *share, const struct share_connection *connection,
			uint32_t number, const struct gpumem_msg_notice *notice)
{
	struct share_listener *listener = listener_of(share, connection);

	/* A process with several leases of the file answers once. */
	if (!listener || notice_find(listener, number))
		return false;
	if (!notice_send(listener, number, notice)) {
		listener->cut = true;
		shutdown(listener->connection->fd, SHUT_RDWR);
		notice_remember(listener, number);
	}
	/* A process that is stopped holds up the first recall alone. */
	notice_find(listener, number)->unawaited = listener->late;
	return !listener->late;
}

void share_recall_is_late(struct share *share, uint32_t number)
{
	for (struct share_listener *at = share->recall_listeners; at; at = at->hh.next) {
		const struct share_notice *notice = notice_find(at, number);

		if (notice && !notice->answered)
			at->late = true;
	}
}

static int notify_check(const struct gpumem_notify *notify)
{
	if (notify->version != GPUMEM_PROTOCOL_VERSION)
		return -EOPNOTSUPP;
	if (notify->what != GPUMEM_NOTICE_PARK && notify->what != GPUMEM_NOTICE_UNPARK)
		return -EINVAL;
	return notify->flags & ~(uint32_t)GPUMEM_NOTICE_NOW || notify->pid < 0 ? -EINVAL : 0;
}

int share_notify(struct share *share, uid_t uid, const struct inode *inode,
		 struct gpumem_notify *notify)
{
	const struct gpumem_msg_notice notice = {
	    .what = notify->what, .flags = notify->flags, .inode = inode ? inode->ino : 0};
	struct telling telling = {
	    .notice = &notice, .flag = GPUMEM_LISTEN_PARK, .uid = uid, .pid = notify->pid};
	int error = notify_check(notify);

	if (error)
		return error;
	pthread_mutex_lock(&share->lock);
	telling.number = share_notice_number(share);
	telling.last = share->last_listener;
	pthread_mutex_unlock(&share->lock);
	while (listeners_tell_some(share, &telling) && !worker_is_interrupted())
		;
	notify->number = telling.number;
	notify->sent = telling.sent;
	if (!telling.sent && worker_is_interrupted())
		return -EINTR;
	/* A process of another user and no process have the same answer: no user learns from the
	 * daemon which processes of others have files. */
	return telling.sent ? 0 : -ESRCH;
}

void share_notified(struct share *share, uid_t uid, struct gpumem_notified *notified)
{
	struct gpumem_notified found = {.number = notified->number, .cursor = UINT64_MAX};

	scoped_lock(&share->lock);
	for (struct share_listener *at = listener_after(share, notified->cursor); at;
	     at = at->next) {
		const struct share_notice *notice =
		    listener_is_for(at, uid) ? notice_find(at, notified->number) : NULL;

		if (!notice)
			continue;
		found.cursor = at->sequence;
		found.pid = at->connection->pid;
		found.state = notice->answered ? GPUMEM_NOTIFIED_ANSWERED : GPUMEM_NOTIFIED_WAITS;
		found.error = notice->error;
		found.files = notice->files;
		break;
	}
	*notified = found;
}

void share_want_memory(void *pointer, const struct volume *volume, uint64_t bytes)
{
	struct share *share = pointer;
	const struct gpumem_msg_notice notice = {
	    .what = GPUMEM_NOTICE_MEMORY, .bytes = bytes, .device = volume->device->index};
	struct telling telling = {
	    .notice = &notice, .flag = GPUMEM_LISTEN_MEMORY, .last = UINT64_MAX};

	if (!lease_list_sums(lease_list_of(share->fs), volume->index).leases)
		return;
	while (listeners_tell_some(share, &telling))
		;
}

/* How many leases are looked at between two tests of the share's lock. */
#define HOLDERS_AT_ONCE 64

/* Of so many processes with leases in turns each is told once. */
#define TOLD_REMEMBERED 64

struct end_telling {
	struct share *share;
	const struct inode *inode;
	struct share_process told[TOLD_REMEMBERED];
	unsigned n_told;
};

/* Whether the process was told, which is noted otherwise. */
static bool process_is_told(struct end_telling *end, struct share_process process)
{
	for (unsigned i = 0; i < end->n_told && i < TOLD_REMEMBERED; i++)
		if (end->told[i].pid == process.pid && end->told[i].uid == process.uid)
			return true;
	end->told[end->n_told++ % TOLD_REMEMBERED] = process;
	return false;
}

static void holder_tell(struct end_telling *end, const struct lease_entry *lease)
{
	const struct gpumem_msg_notice notice = {.what = GPUMEM_NOTICE_END,
						 .inode = end->inode->ino};
	struct telling telling = {.notice = &notice,
				  .flag = GPUMEM_LISTEN_END,
				  .uid = lease->uid,
				  .pid = lease->pid,
				  .last = UINT64_MAX};

	if (lease->file != end->inode ||
	    process_is_told(end, (struct share_process){.pid = lease->pid, .uid = lease->uid}))
		return;
	while (listeners_tell_some(end->share, &telling))
		;
}

static bool any_hears_ends(struct share *share)
{
	const struct share_listener *at;

	scoped_lock(&share->lock);
	DL_FOREACH (share->listeners, at)
		if (at->flags & GPUMEM_LISTEN_END)
			return true;
	return false;
}

void share_tell_end(struct fs *fs, const struct inode *inode)
{
	const struct viewer all = {.sees_all = true};
	struct end_telling end = {.share = share_of(fs), .inode = inode};
	struct lease_entry found[HOLDERS_AT_ONCE];
	struct lease_place place = {0};
	unsigned n;

	if (!end.share || !any_hears_ends(end.share))
		return;
	while ((n = lease_list_next(lease_list_of(fs), &place, &all, found, HOLDERS_AT_ONCE)))
		for (unsigned i = 0; i < n; i++) {
			holder_tell(&end, &found[i]);
			inode_put(fs, found[i].inode, 1);
			inode_put(fs, found[i].file, 1);
		}
	lease_list_leave(lease_list_of(fs), &place);
}
