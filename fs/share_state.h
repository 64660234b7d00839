/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What share.c, share_lease.c, share_send.c and share_socket.c have in common. All of it belongs to
 * whoever holds serving: the share thread while it handles an event, or the worker that answers a
 * GPUMEM_IOC_LEASE. */
#ifndef FS_SHARE_STATE_H
#define FS_SHARE_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "fs/file_share.h"
#include "fs/fs.h"
#include "fs/share.h"
#include "fs/share_memory.h"
#include "fs/share_message.h"
#include "fs/token.h"
#include "fs/uthash.h"

struct share_lease {
	UT_hash_handle hh; /* in its connection's leases, by number */
	uint64_t number;
	struct inode *inode; /* held open; NULL: a private copy, which holds nothing */
	enum gpumem_access access;
	int64_t since;
	uint32_t noted; /* its slot in the share's memory */
};

struct share_connection {
	struct share_connection *previous, *next;
	UT_hash_handle hh; /* in by_key, once it has a key */
	uint8_t key[GPUMEM_KEY_BYTES];
	bool has_key;
	int fd;
	pid_t pid;
	uid_t uid;
	uint64_t number;
	int64_t deadline; /* CLOCK_MONOTONIC seconds; 0 once it has had a lease */
	struct share_lease *leases;
	/* Of a request that was not dealt with to its end, or not by a daemon before this one; such
	 * a request is read again. NULL: none. */
	struct share_lease *unanswered;
};

struct share {
	struct fs *fs;
	struct token_table tokens;
	pthread_t thread;
	int epoll_fd, listen_fd, stop_fd, mounts_fd;
	int tree_fd;	       /* the detached clone of the mount in which the socket was bound */
	char mount_device[24]; /* major:minor, to see in mountinfo whether the mount is there still
				*/
	pthread_mutex_t serving;
	pthread_mutex_t lock; /* after serving: connections and their leases are written under it */
	struct share_connection *connections;
	struct share_connection *by_key; /* under serving alone */
	unsigned n_connections;
	uint64_t last_lease, last_connection;
	struct share_memory *memory;
};

/* share_socket.c */
/* The one that is there since a daemon before this, or a new one. */
int share_socket_open(struct share *share, const char *mountpoint);
void share_socket_close(struct share *share);
/* Whether the mount is mounted anywhere that this process sees. */
bool share_socket_mounted(const struct share *share);

/* share_lease.c: 0, or an errno for the client as -errno; -EPIPE: the connection is done for. */
int share_lease(struct share *share, struct share_connection *connection,
		const struct share_request *request);
int share_extend(struct share *share, struct share_connection *connection,
		 const struct share_request *request);
int share_release(struct share *share, struct share_connection *connection,
		  const struct share_request *request);
/* With one packet (else -EAGAIN) and without a copy (else -EPERM). The inode's reference stays the
 * caller's. */
int share_lease_at_once(struct share *share, struct share_connection *connection,
			struct inode *inode, enum gpumem_access access, uint32_t number);
/* The file of one of its leases: 0 with a reference, -ENOENT, or -EOPNOTSUPP for a private copy. */
int share_lease_file(struct share_connection *connection, uint64_t number, struct inode **inode);
/* The client has the answer to what it asked. */
void share_answered(struct share *share, struct share_connection *connection);
/* Ends all leases of a connection. */
void share_leases_end(struct share *share, struct share_connection *connection);

/* share_restore.c: what a daemon before this one had, once the tree is there. Before the thread. */
int share_restore(struct share *share);
/* For it. share.c: takes fd over on success; share_lease.c: takes the inode's reference over; its
 * file is held and leased as it is. */
int share_connection_add(struct share *share, int fd, uint64_t number);
int share_lease_restore(struct share *share, struct share_connection *connection,
			const struct share_note_lease *noted, uint32_t slot, struct inode *inode,
			struct share_lease **lease);
void share_let_go(struct share *share, struct inode *inode);

/* share_send.c: 0, or -EPIPE where the peer does not take it. */
int share_send_error(struct share_connection *connection, uint32_t number, int error);
int share_send_done(struct share_connection *connection, uint32_t number);
int share_send_key(struct share_connection *connection, uint32_t number);

struct share_layout {
	uint32_t number; /* of the request */
	uint64_t lease;
	uint32_t kind, flags;
	struct file_place place; /* where the chunks that are sent were found */
};
/* One packet; the fds are closed. */
int share_send_layout(struct share_connection *connection, const struct share_layout *layout,
		      uint32_t first, struct file_chunk *chunks, uint32_t count, uint32_t flags);

#endif
