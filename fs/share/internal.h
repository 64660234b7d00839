/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The structs and functions that the sources of fs/share have in common.
 *
 * Two kinds of threads get requests, and neither waits for a file: the share thread reads packets
 * from all connections, and workers get GPUMEM_IOC_LEASE. Both try a request themselves
 * (FILE_NO_WAIT), which saves a switch to another thread. A request that would have to wait for a
 * file, copy bytes or free memory goes to a thread of the queue, which is fair to users, and begins
 * anew there. While more packets wait, the share thread gives every packet to the queue.
 *
 * A connection is served by a single thread at a time, and has a single request. A busy connection
 * belongs to the share thread or to the worker, then to a thread of the queue until the request is
 * answered. The share thread alone begins the end of an idle connection; a busy connection is ended
 * by the thread that owns the connection.
 *
 * Only the share thread takes events, and once for each release of a connection: a thread of the
 * queue can therefore free a connection whose packet it serves, and no pending event names the
 * freed memory. During a GPUMEM_IOC_LEASE an event may be pending: the serving thread shuts the
 * socket down, and the share thread ends the connection. */
#ifndef FS_SHARE_INTERNAL_H
#define FS_SHARE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/hash.h"
#include "common/system/runtime_dir.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/share/delegation.h"
#include "fs/share/lease_list.h"
#include "fs/share/persist.h"
#include "fs/share/share.h"
#include "fs/share/wire.h"
#include "fs/turns/turns.h"

struct share_lease {
	UT_hash_handle hh; /* in its connection's leases, by number */
	uint64_t number;
	struct inode *inode; /* held open */
	enum gpumem_access access;
	bool private;	 /* the inode is a copy for this lease alone: copy.h */
	bool unseen;	 /* may store without the daemon's knowledge: inode_unseen_begin */
	bool loads;	 /* GPUMEM_IOC_LEASE_LOADS: the holder stores nothing */
	bool produces;	 /* the file is the holder's memory, and ends with the lease */
	bool delegated;	 /* GPUMEM_LAYOUT_DELEGATED: never changes, as all layouts say the same */
	bool recallable; /* in the list of the file's delegations */
	struct share_lease *delegated_before, *delegated_next;
	const struct share_connection *holder; /* of a delegation */
	struct inode *file; /* the source of the copy; NULL: no copy, or an earlier daemon's */
	int64_t since;	    /* clock_ns */
	uint32_t slot;	    /* of the lease in the share's persistent memory */
	uint32_t request;   /* the number of the request for the lease */
	_Atomic enum file_lease_kind kind;
	struct lease_entry listed;
};

struct lease_params {
	uint32_t request; /* its number */
	struct inode *inode;
	enum gpumem_access access;
	enum share_times times;
	bool loads, produces;
	struct inode *file; /* the file that inode is a private copy of; NULL: inode is no copy */
	enum file_wait wait;
};

/* A notice that was sent to a listening connection. */
struct share_notice {
	uint32_t number; /* 0: none */
	bool answered;
	bool unawaited; /* a recall to a late listener */
	int32_t error;
	uint32_t files;
};

/* How many notices of a connection are remembered. */
#define SHARE_NOTICES 16

/* A connection after GPUMEM_MSG_LISTEN; under the share's lock. */
struct share_listener {
	struct share_listener *prev, *next; /* in the order of sequence */
	struct share_connection *connection;
	uint64_t sequence; /* of the listeners in the share: ascending from 1 */
	uint32_t flags;	   /* enum gpumem_listen_flags */
	UT_hash_handle hh; /* in recall_listeners, if chosen */
	/* Of the connection: the key in recall_listeners. The number alone may be that of an ended
	 * process, whose child listens. */
	struct share_process {
		pid_t pid;
		uid_t uid;
	} process;
	bool chosen;   /* is told of the recalls of its process */
	bool cut;      /* the daemon ended the connection, as it took no recall */
	bool late;     /* left a recall without an answer in time, and has not answered since */
	unsigned sent; /* notices so far: the next one takes the place sent % SHARE_NOTICES */
	struct share_notice notices[SHARE_NOTICES];
};

/* The share's lock protects the list, busy, ending, event_taken, deadline, listener and changes of
 * the leases. fd stays open under the lock unless ending is set. All other members belong to the
 * thread that owns the busy connection; the key never changes. */
struct share_connection {
	struct turns_job job; /* in the queue */
	struct turns_user *user;
	struct share_connection *previous, *next;
	UT_hash_handle hh; /* in by_key */
	uint8_t key[GPUMEM_KEY_BYTES];
	bool busy;	  /* a thread owns the connection */
	bool ending;	  /* the owner is to free the connection */
	bool event_taken; /* no further event comes until connection_watch */
	int fd;
	pid_t pid;
	uid_t uid;
	bool trusted;	  /* may send descriptors: share_trusts */
	uint32_t slot;	  /* in the share's persistent memory, and for the id of fd at the keeper */
	int64_t deadline; /* CLOCK_MONOTONIC seconds; 0 once the connection has had a lease */
	struct receiver *receiver; /* once descriptors of chunks were sent; else NULL */
	struct share_lease *leases;
	struct share_listener *listener; /* NULL: does not listen */
	/* An ask that came while another request was served; under the lock. A client may send the
	 * ask as soon as the client has the answer to its last request, and after a takeover the
	 * last packet is served again. */
	struct share_ask *waiting;
	struct file_piece *pieces; /* of GPUMEM_MSG_PIECES; the descriptors are charged */
	uint32_t n_pieces;
	/* The request that is being served: ask, or else the packet. */
	struct share_ask *ask;
	struct share_request request;
};

struct share {
	struct fs *fs;
	pthread_t thread;
	int epoll_fd, listen_fd, stop_fd;
	bool accept_paused, logged_no_fds;
	/* The detached clone of the mount in which the socket is bound. In a daemon without
	 * privileges: the directory of the socket; runtime has the directory and the socket, too.
	 */
	int tree_fd;
	struct runtime_socket runtime;
	bool for_own_user;		 /* the socket is in a directory of the daemon's user */
	char reason[RUNTIME_REASON_MAX]; /* why there is no socket; empty: the error says why */
	FILE *mounts; /* mountinfo, opened while a descriptor is left; NULL: not needed */
	dev_t device; /* of the mount; 0: not known */
	share_changed *changed;
	struct turns_job job; /* what the job of a connection begins as */
	pthread_mutex_t lock; /* of all below; only the queue's lock is taken under this lock */
	struct share_connection *connections, *by_key;
	struct share_listener *listeners;
	/* By process: the last one of each that listens for recalls. */
	struct share_listener *recall_listeners;
	uint64_t last_lease, last_listener;
	uint32_t last_notice;
	struct delegations delegations;
	struct persist *persist; /* set once, its slots under the lock; NULL: no keeper */
};

/* connection.c */
/* Owns and watches fd on success. */
int share_connection_new(struct share *share, int fd);
/* Owns and watches the fd of a connection of an earlier daemon, which listened with these flags,
 * or 0. */
int share_connection_add(struct share *share, int fd, uint32_t slot,
			 const uint8_t key[GPUMEM_KEY_BYTES], uint32_t listen_flags);
/* Both functions make the caller the owner of a connection. share_connection_acquire_key finds the
 * connection by the user's key: -ESTALE if there is no such connection; -EINPROGRESS if another
 * thread owns the connection: the ask then goes to the queue after the request that is being
 * served. -EBUSY: another ask waits already. */
int share_connection_acquire_key(struct share *share, struct share_ask *ask,
				 struct share_connection **connection);
/* For an event of the connection. False: another thread owns the connection, and will watch for the
 * event again. */
bool share_connection_acquire(struct share *share, struct share_connection *connection);
/* Ends the ownership, or passes the connection to the queue for the ask that waits; ends the
 * connection if its end was asked for meanwhile. */
void share_connection_release(struct share *share, struct share_connection *connection);
/* Ends an owned connection: at once, or on the queue where leases end with the connection. */
void share_connection_end(struct share *share, struct share_connection *connection);
void share_connection_free(struct share *share, struct share_connection *connection);
/* By the share thread: ends the connections with a deadline before a time, or all. */
#define SHARE_ALWAYS INT64_MAX
void share_connections_end(struct share *share, int64_t cutoff);
/* The file of a lease, by the user and the connection's key: share_leased. */
int share_connection_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
			    uint64_t number, struct inode **inode);

/* share.c. Whether further packets or connections wait for the share thread. Called by the share
 * thread. */
bool share_has_more(const struct share *share);

/* serve.c. The caller owns the connection. */
/* Reads a packet and answers the request, or adds the request to the queue. By the share thread. */
void share_receive(struct share *share, struct share_connection *connection);
/* Serves the ask of a connection, or adds it to the queue: -EINPROGRESS, or the ask's result. By a
 * worker. */
int share_serve_ask(struct share *share, struct share_connection *connection,
		    struct share_ask *ask);
/* Serves a connection's request. By a thread of the queue. */
void share_work(void *share, struct turns_job *job);
/* A signal came while the ask of a connection waited in the queue. */
void share_cancel(void *share, struct turns_job *job, int error);

/* adopt.c. Whether the daemon takes descriptors of this user. Closing a descriptor may wait for
 * whatever its sender wants: for a FUSE daemon of the sender's, or for a peer of a socket that
 * lingers. So only root and the daemon's own user may send descriptors, and where the kernel can
 * (Linux 6.16) it refuses those of others. */
bool share_trusts(uid_t uid);
/* Has the kernel refuse descriptors on a socket, or on connections to a listening socket. */
void share_refuse_fds(int fd, bool refuse);

/* socket.c */
/* Takes over the socket of an earlier daemon, or binds a new socket. */
int share_socket_open(struct share *share, const char *mountpoint);
void share_socket_close(struct share *share);
/* Whether the process at the other end may share: 0, or -EPERM. */
int share_socket_admit(const struct share *share, int fd);
/* Whether the mount is still mounted in the namespace of this process. */
bool share_socket_mounted(const struct share *share);

/* Logs why files are not shared, and keeps the reason for programs that ask. */
void share_log_refusal(const struct share *share, int error);

/* wire.c. The access to a file's memory that a lease may have now. An fd of device memory can
 * always be written to, so a reader gets the fd only if the file trusts readers. */
enum file_share_access share_access(const struct inode *inode, enum gpumem_access access);
/* 0, or an errno for the client as -errno. -EPIPE: the caller must end the connection. -EINPROGRESS
 * with FILE_NO_WAIT: the caller must serve the request again with FILE_MAY_WAIT. */
int share_lease(struct share *share, struct share_connection *connection,
		const struct share_ask *ask, enum file_wait wait);
int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request, enum file_wait wait);
int share_release(struct share *share, struct share_connection *connection,
		  const struct share_request *request, enum file_wait wait);
/* The file, or the private copy, of a connection's lease: 0 with a reference, or -ENOENT. Under the
 * share's lock. */
int share_lease_file(struct share_connection *connection, uint64_t number, struct inode **inode);
/* adopt.c. The caller owns the connection. */
/* Reads the GPUMEM_MSG_PIECES that is next in the socket, and answers. */
int share_pieces_receive(struct share *share, struct share_connection *connection);
void share_pieces_forget(struct share *share, struct share_connection *connection);
/* Whether share_adopt takes no longer than a lease. */
bool share_adopts_at_once(const struct share_ask *ask);
/* Gives the file of an ask the connection's pieces, which are forgotten. */
int share_adopt(struct share *share, struct share_connection *connection,
		const struct share_ask *ask);

/* Ends all leases of a connection. */
void share_leases_end(struct share *share, struct share_connection *connection);

/* notice.c. The caller owns the connection. 0 or -ENOMEM. */
int share_listen(struct share *share, struct share_connection *connection, uint32_t flags);
void share_unlisten(struct share *share, struct share_connection *connection);
/* Under the share's lock, as the next three. Whether the connection's process listens for recalls,
 * and answers them in time. */
bool share_hears_recalls(const struct share *share, const struct share_connection *connection);
/* The number of a new notice. */
uint32_t share_notice_number(struct share *share);
/* Sends GPUMEM_NOTICE_RECALL to the process of a connection. Whether to wait for an answer, or
 * for the end of the process. A process that does not take the notice loses the connection, which
 * tells the process that it missed recalls; the daemon does not learn when it has read that. */
bool share_tell_process(struct share *share, const struct share_connection *connection,
			uint32_t number, const struct gpumem_msg_notice *notice);
/* The listeners that have not answered a recall do not hear recalls any more, until they answer. */
void share_recall_is_late(struct share *share, uint32_t number);
/* Notes the connection's answer to a notice. */
void share_noticed(struct share *share, struct share_connection *connection,
		   const struct share_request *request);

/* persist.c: restores the sharers of an earlier daemon, once the tree is there and before the
 * thread starts. */
int share_restore(struct share *share);
/* lease.c, for persist.c: takes over the inode's reference and the lease that the file counts. */
int share_lease_restore(struct share *share, struct share_connection *connection,
			const struct persist_lease *stored, uint32_t slot, struct inode *inode);
void share_file_unlease(struct share *share, struct inode *inode, enum file_lease_kind kind);

/* wire.c: 0, or -EPIPE where the client does not take the packet. */
int share_send_error(struct share_connection *connection, uint32_t number, int error);
int share_send_done(struct share_connection *connection, uint32_t number);
int share_send_key(struct share_connection *connection, uint32_t number);
/* Any thread, under the share's lock. -EPIPE also where the client leaves its notices unread. */
int share_send_notice(struct share_connection *connection, uint32_t number,
		      const struct gpumem_msg_notice *notice);

/* Before descriptors of chunks are sent: notes the process that gets the descriptors. 0, -EMFILE,
 * -ENOSPC or -ENOMEM. */
int share_note_receiver(struct share *share, struct share_connection *connection,
			const struct inode *inode);
/* Sends the file's chunks from first on, as many as a packet holds. */
int share_send_chunks(struct share *share, struct share_connection *connection,
		      const struct share_lease *lease, uint32_t number, uint32_t first,
		      enum file_wait wait);

#endif
