/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The sharing socket: tokens become leases, and the answer has the chunks. One thread reads the
 * requests and never waits; threads of a queue answer them, two at a time of one user. A lease is
 * its connection's, and ends with it, however that ends. A worker that is asked for a lease on the
 * file itself answers over the connection in their place. */
#ifndef FS_SHARE_SHARE_H
#define FS_SHARE_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct fs;
struct inode;
struct share;

/* Binds .gpumem/socket on the mount, which must be answering, and starts to serve it: 0, or -errno
 * after a line in the log; the mount is whole without it. device is the mount's device number, or 0
 * where the session does not know it. */
int share_open(struct fs *fs, dev_t device, struct share **share);
/* Whether there is a socket since a daemon before this one: share_open serves it on, and does not
 * need the mount to answer. Programs are not to see a mount without. */
bool share_is_kept(struct fs *fs);
/* Whether the name .gpumem/socket exists. */
bool share_is_bound(const struct fs *fs);
/* A process asks the mount to make the name .gpumem/socket: true, and the name exists from then on,
 * if the process is the binder (binder.h) and the name did not exist. */
bool share_name_bind(struct fs *fs, pid_t pid);
/* Where the socket is, or why there is none: for GPUMEM_IOC_SOCKET, and in words. */
struct capability;
void share_where(struct fs *fs, struct gpumem_socket *where);
void share_capability(struct fs *fs, struct capability *capability);
/* Ends every lease and connection. NULL is fine. */
void share_close(struct share *share);

/* A token for an opened file, for GPUMEM_IOC_TOKEN. */
int share_token(struct share *share, struct inode *inode, uid_t uid, enum gpumem_access access,
		struct gpumem_token *token);

/* A lease for an opened file, for GPUMEM_IOC_LEASE: 0 once the answer is on the connection, or
 * -EAGAIN or -ESTALE as said there. */
int share_lease_ask(struct share *share, struct inode *inode, uid_t uid, enum gpumem_access access,
		    const struct gpumem_lease_ask *ask);

/* Drops a file's leases that began before a time (CLOCK_REALTIME, seconds): how many. What their
 * holders have mapped they keep; nothing keeps the file from being changed. */
uint64_t share_drop(struct share *share, struct inode *inode, int64_t before);
/* The same for leases as old as -o lease_timeout= says: whether there were any, so that what they
 * did not let be may be tried again. */
bool share_make_way(struct fs *fs, struct inode *inode);

/* The file of a lease, for GPUMEM_IOC_COPY: 0 with a reference, or -errno as said there. */
int share_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
		 uint64_t lease, struct inode **inode);

#endif
