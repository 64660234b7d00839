/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the sources of sharing have in common.
 *
 * The share thread waits for packets, reads them and never waits for anything else. While no other
 * packet is there it tries a request itself (FILE_NO_WAIT), which saves the turn to another thread.
 * A request that would have to wait for a file, copy or free memory goes to the queue's threads,
 * and goes on there from where it is; so do all while packets wait, since the queue is fair to
 * users. One request of a connection is served at a time. A connection in hand (busy) belongs to
 * one thread: to the share thread while it reads a packet, to a thread of the queue from there
 * until the request is answered, or to the worker that answers a GPUMEM_IOC_LEASE. The share thread
 * alone starts the end of a connection that is not in hand; a connection in hand is ended by the
 * thread that has it. Only the share thread is told of packets, once for each time that a
 * connection is given back: so a connection can be freed by a thread of the queue without an event
 * that still names it. */
#ifndef FS_SHARE_INTERNAL_H
#define FS_SHARE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/hash.h"
#include "common/runtime_dir.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/share/lease_list.h"
#include "fs/share/memory.h"
#include "fs/share/queue.h"
#include "fs/share/share.h"
#include "fs/share/token.h"
#include "fs/share/wire.h"

struct share_lease {
	UT_hash_handle hh; /* in its connection's leases, by number */
	uint64_t number;
	struct inode *inode; /* held open */
	enum gpumem_access access;
	bool private; /* the inode is a copy for this lease alone: share_copy.h */
	struct inode
	    *file; /* of which; NULL: no copy, or of an earlier daemon, which did not say */
	int64_t since;
	uint32_t slot;	/* its slot in the share's memory */
	uint32_t token; /* share_request_mark; 0: an earlier daemon did not note it */
	_Atomic enum file_lease_kind kind;
	struct lease_entry listed;
};

/* What was done for a lease before it would have had to wait. */
struct share_progress {
	bool held;    /* the file is held open */
	bool counted; /* and leased, as the kind says */
	enum file_lease_kind kind;
};

enum packets { ANY_PACKETS, ONE_PACKET };

struct lease_params {
	uint32_t number; /* of the request */
	struct inode *inode;
	enum gpumem_access access;
	struct inode *file; /* of which inode is a copy for this lease alone; NULL: inode is none */
	enum file_wait wait;
	enum packets packets;
	struct share_progress progress; /* with the inode */
};

/* Under the share's lock: the list, the key, busy, ending, heard, deadline, and changes of the
 * leases. All else is the thread's that has the connection in hand. */
struct share_connection {
	struct share_job job; /* in the queue */
	struct share_user *user;
	struct share_connection *previous, *next;
	UT_hash_handle hh; /* in by_key, once it has a key */
	uint8_t key[GPUMEM_KEY_BYTES];
	bool has_key;
	bool busy;	  /* in hand */
	bool ending;	  /* to be freed by the thread that has it in hand */
	bool event_taken; /* its packet's event was taken: no other comes until it is asked for */
	/* The client has the answer, or is about to: whoever has it in hand gives it back soon. */
	atomic_bool answered;
	int fd;
	pid_t pid;
	uid_t uid;
	uint64_t number;
	int64_t deadline; /* CLOCK_MONOTONIC seconds; 0 once it has had a lease */
	struct share_lease *leases;
	struct share_request request; /* in hand */
	/* Of the token that came with it; no inode: none. */
	struct token_redeemed redeemed;
	struct share_progress progress; /* with the inode of shown */
	/* Of a request that was not dealt with to its end: by the share thread, or by a daemon
	 * before this one; such a request is read again. NULL: none. */
	struct share_lease *pending_reply;
};

struct share {
	struct fs *fs;
	struct token_table tokens;
	pthread_t thread;
	int epoll_fd, listen_fd, stop_fd;
	bool accept_paused, logged_no_fds;
	/* The detached clone of the mount in which the socket was bound. Of a daemon without
	 * privileges: the directory, and runtime has these two descriptors. */
	int tree_fd;
	struct runtime_socket runtime;
	bool for_own_user;		 /* the socket is in that directory */
	char reason[RUNTIME_REASON_MAX]; /* why there is no socket; empty: its error says it */
	FILE *mounts; /* mountinfo, open for when no descriptor is to be had; NULL */
	dev_t device; /* of the mount; 0: not known */
	struct share_queue *queue;
	pthread_mutex_t lock;	 /* what follows; no other lock but the queue's is taken under it */
	pthread_cond_t released; /* a connection was given back or freed */
	struct share_connection *connections, *by_key;
	uint64_t last_lease, last_connection;
	struct share_memory *memory; /* set once; its leases */
};

/* share_connection.c */
int64_t share_now(void); /* CLOCK_MONOTONIC seconds */
/* Takes fd over on success, and watches it. */
int share_connection_add(struct share *share, int fd, uint64_t number);
/* Each returns the connection in hand. Of this user's, by its key: -ESTALE, or -EAGAIN where
 * another thread has it for longer than the answer takes that it is sending. */
int share_connection_acquire_key(struct share *share, uid_t uid,
				 const uint8_t key[GPUMEM_KEY_BYTES],
				 struct share_connection **connection);
/* The connection of an event; false: the thread that has it in hand asks for the event again. */
bool share_connection_acquire(struct share *share, struct share_connection *connection);
/* Gives it back, or ends it if that was asked for meanwhile. */
void share_connection_release(struct share *share, struct share_connection *connection);
/* Ends what is in hand, here or, where leases are to end with it, on the queue. */
void share_connection_end(struct share *share, struct share_connection *connection);
void share_connection_free(struct share *share, struct share_connection *connection);
/* By the share thread: ends connections whose deadline is before a time, or all of them. */
#define SHARE_ALWAYS INT64_MAX
void share_connections_end(struct share *share, int64_t before);
/* A key for it, made if need be. */
int share_connection_key(struct share *share, struct share_connection *connection);
/* The file of a lease of this user's, named by the connection's key: share_leased. */
int share_connection_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
			    uint64_t number, struct inode **inode);

/* share.c. Whether packets or connections wait for the share thread. By this thread. */
bool share_has_more(const struct share *share);

/* share_serve.c. Each has the connection in hand. */
/* Reads a packet and answers, or leaves it to the queue. By the share thread. */
void share_receive(struct share *share, struct share_connection *connection);
/* What the queue's threads do with a connection. */
void share_work(void *share, struct share_job *job);

/* share_socket.c */
/* The one that is there since a daemon before this, or a new one. */
int share_socket_open(struct share *share, const char *mountpoint);
void share_socket_close(struct share *share);
/* Whether the process that has connected may share: 0, or -EPERM. */
int share_socket_admit(const struct share *share, int fd);
/* Whether the mount is mounted anywhere that this process sees. */
bool share_socket_mounted(const struct share *share);

/* share_where.c: files are not shared, which is logged, and told to programs that ask. */
void share_log_refusal(const struct share *share, int error);

/* share_lease.c. What a lease with this access may be given of the file now. An fd of device memory
 * can always be written to, so a reader gets it only of a file that trusts readers. */
enum file_share_access share_access(const struct inode *inode, enum gpumem_access access);
/* 0, or an errno for the client as -errno; -EPIPE: the connection is done for;
 * -EINPROGRESS of FILE_NO_WAIT: the request is to be served again, with FILE_MAY_WAIT. */
int share_lease(struct share *share, struct share_connection *connection,
		const struct share_request *request, enum file_wait wait);
int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request, enum file_wait wait);
int share_release(struct share *share, struct share_connection *connection,
		  const struct share_request *request, enum file_wait wait);
/* Undoes what was begun of a lease; may wait for the file. */
void share_progress_undo(struct share *share, struct inode *inode, struct share_progress *progress);
/* With one packet (else -EAGAIN) and without a copy (else -EPERM). The inode's reference stays the
 * caller's. */
int share_lease_at_once(struct share *share, struct share_connection *connection,
			struct inode *inode, enum gpumem_access access, uint32_t number);
/* The file of one of its leases, or its private copy: 0 with a reference, or -ENOENT.
 * Under the share's lock. */
int share_lease_file(struct share_connection *connection, uint64_t number, struct inode **inode);
/* The client has the answer to what it asked. */
void share_answered(struct share *share, struct share_connection *connection);
/* Ends all leases of a connection. */
void share_leases_end(struct share *share, struct share_connection *connection);

/* share_restore.c: what a daemon before this one had, once the tree is there. Before the thread. */
int share_restore(struct share *share);
/* For it. share_lease.c: takes the inode's reference over; its file is held and leased as it is. */
int share_lease_restore(struct share *share, struct share_connection *connection,
			const struct share_note_lease *note, uint32_t slot, struct inode *inode,
			struct share_lease **lease);
void share_file_unlease(struct share *share, struct inode *inode, enum file_lease_kind kind);

/* share_send.c: 0, or -EPIPE where the peer does not take it. */
int share_send_error(struct share_connection *connection, uint32_t number, int error);
int share_send_done(struct share_connection *connection, uint32_t number);
int share_send_key(struct share_connection *connection, uint32_t number);

/* The file's chunks from first on, in as many packets as they need. */
int share_send_chunks(struct share *share, struct share_connection *connection,
		      const struct share_lease *lease, const struct lease_params *ask,
		      uint32_t first);

#endif
