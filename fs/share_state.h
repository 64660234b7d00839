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
#include "fs/share_message.h"
#include "fs/token.h"
#include "fs/uthash.h"

struct share_lease {
	UT_hash_handle hh; /* in its connection's leases, by number */
	uint64_t number;
	struct inode *inode; /* held open; NULL: a private copy, which holds nothing */
	enum gpumem_access access;
	int64_t since;
};

struct share_connection {
	struct share_connection *previous, *next;
	UT_hash_handle hh; /* in by_key, once it has a key */
	uint8_t key[GPUMEM_KEY_BYTES];
	bool has_key;
	int fd;
	pid_t pid;
	uid_t uid;
	int64_t deadline; /* CLOCK_MONOTONIC seconds; 0 once it has had a lease */
	struct share_lease *leases;
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
	uint64_t last_lease;
};

/* share_socket.c */
int share_socket_bind(struct share *share, const char *mountpoint);
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
/* With one packet and no copy, or -EAGAIN. The inode's reference stays the caller's. */
int share_lease_at_once(struct share *share, struct share_connection *connection,
			struct inode *inode, enum gpumem_access access, uint32_t number);
/* Ends all leases of a connection. */
void share_leases_end(struct share *share, struct share_connection *connection);

/* share_send.c: 0, or -EPIPE where the peer does not take it. */
int share_send_error(struct share_connection *connection, uint32_t number, int error);
int share_send_done(struct share_connection *connection, uint32_t number);
int share_send_key(struct share_connection *connection, uint32_t number);

struct share_layout {
	uint32_t number; /* of the request */
	uint64_t lease;
	struct inode *inode;
	uint32_t kind, flags;
};
/* One packet; the fds are closed. */
int share_send_layout(struct share_connection *connection, const struct share_layout *layout,
		      uint32_t first, struct file_chunk *chunks, uint32_t count, uint32_t flags);

#endif
