/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Processes that receive descriptors of chunks, and which files' chunks they received. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/system/descriptors.h"
#include "fs/holders/internal.h"
#include "fs/keeper/fdstore.h"
#include "fs/ledger/ledger.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446
#endif

static bool pidfd_has_ended(int pidfd)
{
	struct pollfd process = {.fd = pidfd, .events = POLLIN};

	return poll(&process, 1, 0) != 0;
}

/* A pidfd of the process that made the connection, or -1: the kernel does not know the process any
 * more. Linux before 6.5 tells the number alone, which another process may have by now. */
static int peer_pidfd(int connection, pid_t pid)
{
	int pidfd = -1;
	socklen_t bytes = sizeof(pidfd);

	if (getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) < 0)
		pidfd = errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	pidfd = descriptor_unreserved(DESCRIPTOR_CONNECTION, pidfd);
	if (pidfd >= 0 && pidfd_has_ended(pidfd)) {
		close(pidfd);
		pidfd = -1;
	}
	return pidfd;
}

static void receipt_free(struct fs *fs, struct receipt *receipt)
{
	struct holds *holds = holds_of(fs);

	HASH_DEL(holds->by_key, receipt);
	DL_DELETE2(receipt->receiver->receipts, receipt, receiver_prev, receiver_next);
	DL_DELETE(receipt->file->receipts, receipt);
	held_store_remove(holds->store, HELD_RECEIPT, receipt->slot);
	ledger_give(fs, receipt->receiver->uid, LEDGER_RECEIPTS, 1);
	free(receipt);
}

void receipts_forget(struct fs *fs, struct held_file *file)
{
	while (file->receipts)
		receipt_free(fs, file->receipts);
	held_file_free(holds_of(fs), file);
}

/* The receiver has none of the memory any more. */
static void receiver_settle(struct fs *fs, struct receiver *receiver, struct held_chunk **ended)
{
	while (receiver->receipts) {
		struct held_file *file = receiver->receipts->file;

		receipt_free(fs, receiver->receipts);
		held_file_settle(fs, file, ended);
		if (!file->chunks && (!file->receipts || file->ended))
			receipts_forget(fs, file);
	}
}

static void receiver_free(struct fs *fs, struct receiver *receiver)
{
	ledger_give(fs, receiver->uid, LEDGER_PROCESSES, 1);
	free(receiver);
}

/* The process has ended. What is received later over its connections, which other processes may
 * have, is theirs until the connections end. */
static void receiver_end(struct fs *fs, struct receiver *receiver, struct held_chunk **ended)
{
	struct holds *holds = holds_of(fs);

	HASH_DEL(holds->by_process, receiver);
	/* Before close(): events go on while the keeper has a duplicate of the descriptor. */
	epoll_ctl(holds->epoll_fd, EPOLL_CTL_DEL, receiver->pidfd, NULL);
	close(receiver->pidfd);
	receiver->pidfd = -1;
	receiver_settle(fs, receiver, ended);
	held_store_remove(holds->store, HELD_PROCESS, receiver->slot);
	if (receiver->slot != SLOT_NONE)
		fdstore_drop(fs->fdstore, held_store_pidfd_id(receiver->slot));
	receiver->slot = SLOT_NONE;
	if (!receiver->connections)
		receiver_free(fs, receiver);
}

static void ended_free(struct fs *fs, struct held_chunk *ended)
{
	held_chunks_end(fs, ended);
	held_chunks_free(fs, ended);
}

/* A number that no other process has while this process lives. In a daemon that does not see the
 * process in its PID namespace, pid is 0; the inode of a pidfd is its own since Linux 6.9. */
static uint64_t process_key(struct holds *holds, int pidfd, pid_t pid)
{
	struct statfs fs;
	struct stat st;

	if (pid)
		return (uint64_t)pid;
	if (fstatfs(pidfd, &fs) == 0 && fs.f_type == PID_FS_MAGIC && fstat(pidfd, &st) == 0)
		return UINT64_C(1) << 63 | st.st_ino;
	return UINT64_C(1) << 62 | ++holds->sequence;
}

static struct receiver *receiver_find(const struct holds *holds, uint64_t key)
{
	struct receiver *receiver;

	HASH_FIND(hh, holds->by_process, &key, sizeof(key), receiver);
	return receiver;
}

/* Watches for the end of the process. */
static int receiver_watch(struct holds *holds, struct receiver *receiver)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = receiver};

	if (!HASH_ADD_NEW(hh, holds->by_process, key, sizeof(receiver->key), receiver))
		return -ENOMEM;
	if (epoll_ctl(holds->epoll_fd, EPOLL_CTL_ADD, receiver->pidfd, &event) == 0)
		return 0;
	HASH_DEL(holds->by_process, receiver);
	return -errno;
}

/* The slot first: the next daemon ignores the slot of a process without a pidfd. */
static int receiver_store(struct fs *fs, struct receiver *receiver)
{
	const struct held_process process = {.pid = (uint32_t)receiver->pid, .uid = receiver->uid};
	struct held_store *store = holds_of(fs)->store;

	receiver->slot = held_store_add(store, HELD_PROCESS, &process);
	if (!store)
		return 0;
	if (receiver->slot == SLOT_NONE)
		return -EMFILE;
	int error = fdstore_hold(fs->fdstore, held_store_pidfd_id(receiver->slot), receiver->pidfd);

	if (error)
		held_store_remove(store, HELD_PROCESS, receiver->slot);
	return error;
}

static int receiver_list(struct fs *fs, struct receiver *receiver)
{
	struct held_store *store = holds_of(fs)->store;
	int error = receiver->pidfd < 0 ? 0 : receiver_store(fs, receiver);

	if (error || receiver->pidfd < 0)
		return error;
	error = receiver_watch(holds_of(fs), receiver);
	if (error && store) {
		fdstore_drop(fs->fdstore, held_store_pidfd_id(receiver->slot));
		held_store_remove(store, HELD_PROCESS, receiver->slot);
	}
	return error;
}

/* Takes over receiver->pidfd on success. */
static int receiver_new(struct fs *fs, const struct receiver *like, struct receiver **new_receiver)
{
	int error = ledger_take(fs, like->uid, LEDGER_PROCESSES, 1);
	struct receiver *receiver = error ? NULL : malloc(sizeof(*receiver));

	if (error)
		return error;
	error = -ENOMEM;
	if (receiver) {
		*receiver = *like;
		receiver->slot = SLOT_NONE;
		error = receiver_list(fs, receiver);
	}
	if (!error) {
		*new_receiver = receiver;
		return 0;
	}
	free(receiver);
	ledger_give(fs, like->uid, LEDGER_PROCESSES, 1);
	return error;
}

int receiver_get(struct fs *fs, int connection, pid_t pid, uid_t uid, struct receiver **result)
{
	struct holds *holds = holds_of(fs);
	struct receiver like = {.pid = pid, .uid = uid, .pidfd = peer_pidfd(connection, pid)};
	struct receiver *receiver = NULL;
	struct held_chunk *ended = NULL;
	int error = 0;

	pthread_mutex_lock(&holds->lock);
	if (like.pidfd >= 0) {
		like.key = process_key(holds, like.pidfd, pid);
		receiver = receiver_find(holds, like.key);
	}
	if (receiver && pidfd_has_ended(receiver->pidfd)) {
		receiver_end(fs, receiver, &ended);
		receiver = NULL;
	}
	bool is_known = receiver;

	if (!is_known)
		error = receiver_new(fs, &like, &receiver);
	if (!error)
		receiver->connections++;
	pthread_mutex_unlock(&holds->lock);
	if ((is_known || error) && like.pidfd >= 0)
		close(like.pidfd);
	ended_free(fs, ended);
	if (!error)
		*result = receiver;
	return error;
}

void receiver_put(struct fs *fs, struct receiver *receiver)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *ended = NULL;

	if (!receiver)
		return;
	pthread_mutex_lock(&holds->lock);
	if (--receiver->connections == 0 && receiver->pidfd < 0) {
		receiver_settle(fs, receiver, &ended);
		receiver_free(fs, receiver);
	}
	pthread_mutex_unlock(&holds->lock);
	ended_free(fs, ended);
}

static struct receipt *receipt_find(const struct holds *holds, const struct receipt_key *key)
{
	struct receipt *receipt;

	HASH_FIND(hh, holds->by_key, key, sizeof(*key), receipt);
	return receipt;
}

/* file->receipts is not empty on success. */
static int receipt_list(struct holds *holds, struct receipt *receipt)
{
	struct held_file *file = held_file_find_or_new(holds, receipt->key.ino);

	if (!file)
		return -ENOMEM;
	if (!HASH_ADD_NEW(hh, holds->by_key, key, sizeof(receipt->key), receipt)) {
		if (!file->receipts)
			held_file_free(holds, file);
		return -ENOMEM;
	}
	receipt->file = file;
	DL_APPEND(file->receipts, receipt);
	DL_APPEND2(receipt->receiver->receipts, receipt, receiver_prev, receiver_next);
	return 0;
}

/* A receiver without a slot ends before the next daemon needs the receipt. */
static int receipt_store(struct holds *holds, struct receipt *receipt)
{
	const struct held_receipt image = {.ino = receipt->key.ino,
					   .sequence = receipt->sequence,
					   .process = receipt->receiver->slot};
	bool stored = holds->store && image.process != SLOT_NONE;

	receipt->slot = stored ? held_store_add(holds->store, HELD_RECEIPT, &image) : SLOT_NONE;
	return stored && receipt->slot == SLOT_NONE ? -ENOSPC : 0;
}

static struct receipt *receipt_make(struct receiver *receiver, uint64_t ino, uint64_t sequence)
{
	struct receipt *receipt = calloc(1, sizeof(*receipt));

	if (!receipt)
		return NULL;
	receipt->key = (struct receipt_key){ino, receiver};
	receipt->receiver = receiver;
	receipt->sequence = sequence;
	return receipt;
}

int receipt_add(struct fs *fs, struct receiver *receiver, uint64_t ino)
{
	struct holds *holds = holds_of(fs);
	const struct receipt_key key = {ino, receiver};

	if (receipt_find(holds, &key))
		return 0;
	int error = ledger_take(fs, receiver->uid, LEDGER_RECEIPTS, 1);

	if (error)
		return error;
	struct receipt *receipt = receipt_make(receiver, ino, ++holds->sequence);

	error = receipt ? receipt_store(holds, receipt) : -ENOMEM;
	if (!error) {
		error = receipt_list(holds, receipt);
		if (error)
			held_store_remove(holds->store, HELD_RECEIPT, receipt->slot);
	}
	if (!error)
		return 0;
	free(receipt);
	ledger_give(fs, receiver->uid, LEDGER_RECEIPTS, 1);
	return error;
}

int receiver_note(struct fs *fs, struct receiver *receiver, uint64_t ino)
{
	scoped_lock(&holds_of(fs)->lock);
	return receipt_add(fs, receiver, ino);
}

static void ended_processes_collect(struct fs *fs, struct held_chunk **ended)
{
	struct holds *holds = holds_of(fs);
	struct epoll_event event;

	scoped_lock(&holds->lock);
	while (epoll_wait(holds->epoll_fd, &event, 1, 0) > 0)
		receiver_end(fs, event.data.ptr, ended);
}

void holds_collect(struct fs *fs)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *ended = NULL, *uncharged;

	pthread_mutex_lock(&holds->lock);
	uncharged = holds->ended;
	holds->ended = NULL;
	pthread_mutex_unlock(&holds->lock);
	held_chunks_free(fs, uncharged);
	ended_processes_collect(fs, &ended);
	ended_free(fs, ended);
}

/* False: the process has ended, or its pidfd was not held yet. */
static bool receiver_restore(struct fs *fs, const struct held_process *stored, uint32_t slot,
			     struct receiver **restored)
{
	struct holds *holds = holds_of(fs);
	struct receiver like = {.pid = (pid_t)stored->pid, .uid = stored->uid, .slot = slot};
	struct receiver *receiver;

	like.pidfd = fdstore_take(fs->fdstore, held_store_pidfd_id(slot));
	if (like.pidfd < 0)
		return false;
	like.key = process_key(holds, like.pidfd, like.pid);
	receiver = pidfd_has_ended(like.pidfd) ? NULL : malloc(sizeof(*receiver));
	if (receiver) {
		*receiver = like;
		if (receiver_watch(holds, receiver) == 0) {
			ledger_restore(fs, like.uid, LEDGER_PROCESSES, 1);
			*restored = receiver;
			return true;
		}
	}
	free(receiver);
	close(like.pidfd);
	return false;
}

static bool receipt_restore(struct fs *fs, const struct held_receipt *stored, uint32_t slot,
			    struct receiver *receiver)
{
	struct holds *holds = holds_of(fs);
	struct receipt *receipt =
	    receiver ? receipt_make(receiver, stored->ino, stored->sequence) : NULL;

	if (!receipt)
		return false;
	receipt->slot = slot;
	if (receipt_find(holds, &receipt->key) || receipt_list(holds, receipt) < 0) {
		free(receipt);
		return false;
	}
	ledger_restore(fs, receiver->uid, LEDGER_RECEIPTS, 1);
	if (stored->sequence > holds->sequence)
		holds->sequence = stored->sequence;
	return true;
}

static int receipt_by_sequence(const struct receipt *a, const struct receipt *b)
{
	return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

int receivers_restore(struct fs *fs)
{
	struct holds *holds = holds_of(fs);
	AUTO_FREE struct receiver **by_slot = calloc(HELD_PROCESSES, sizeof(struct receiver *));
	const void *stored;
	uint32_t slot = 0;

	if (!by_slot)
		return -ENOMEM;
	while ((stored = held_store_next(holds->store, HELD_PROCESS, &slot)))
		if (!receiver_restore(fs, stored, slot - 1, &by_slot[slot - 1])) {
			held_store_remove(holds->store, HELD_PROCESS, slot - 1);
			fdstore_drop(fs->fdstore, held_store_pidfd_id(slot - 1));
		}
	slot = 0;
	while ((stored = held_store_next(holds->store, HELD_RECEIPT, &slot))) {
		uint32_t process = ((const struct held_receipt *)stored)->process;

		if (!receipt_restore(fs, stored, slot - 1,
				     process < HELD_PROCESSES ? by_slot[process] : NULL))
			held_store_remove(holds->store, HELD_RECEIPT, slot - 1);
	}
	for (struct held_file *file = holds->by_ino; file; file = file->hh.next)
		DL_SORT(file->receipts, receipt_by_sequence);
	return 0;
}

void receivers_free(struct fs *fs)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *ended = NULL;
	struct receiver *receiver, *next;

	HASH_ITER (hh, holds->by_process, receiver, next) {
		receiver->connections = 0;
		receiver->slot = SLOT_NONE;
		receiver_end(fs, receiver, &ended);
	}
	ended_free(fs, ended);
}
