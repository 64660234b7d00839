/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sharing of files: GPUMEM_IOC_LEASE on an open file gives a lease over a connection of the sharing
 * socket, with descriptors of the file's memory. A lease belongs to its connection and ends with
 * the connection. The share thread reads the packets of all connections. Threads of a queue serve
 * the requests that wait. */
#ifndef FS_SHARE_SHARE_H
#define FS_SHARE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"
#include "fs/core/fact.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"

struct inode;
struct session;
struct share;
struct volume;

/* Whether the files of the mount are shared. */
struct sharing {
	struct share *_Atomic share; /* NULL: sharing has not started, or is impossible */
	char *_Atomic refusal;	     /* why it is impossible, allocated; or NULL */
	atomic_bool socket_bound;    /* .gpumem/socket exists; set while share is still NULL */
};

static inline FS_STATE(struct sharing, sharing_of, FS_SHARING)

    static inline struct share *share_of(const struct fs *fs)
{
	return atomic_load(&sharing_of(fs)->share);
}

int sharing_open(struct fs *fs); /* 0 or -ENOMEM */
void sharing_close(struct fs *fs);

/* Binds .gpumem/socket on the mount, which must be answering, and starts the share thread: 0, or
 * -errno after a line in the log; the mount works without sharing. device is the mount's device
 * number, or 0 where the session does not know the number. */
/* changed: makes the kernel ask for an inode's attributes again; called under no lock, by any
 * thread, also before the mount answers. */
typedef void share_changed(struct session *session, uint64_t ino);
int share_open(struct fs *fs, dev_t device, share_changed *changed, struct share **share);
/* To be called once no earlier program can go on in place of this daemon. NULL is fine. */
void share_raise(struct share *share);
/* Whether an earlier daemon left a socket. share_open then serves that socket and needs no answer
 * from the mount, and is called first, so that no program sees the mount without a socket. */
bool share_is_kept(struct fs *fs);
/* Whether the name .gpumem/socket exists. */
bool share_is_bound(const struct fs *fs);
/* Called when a process asks the mount to create the name .gpumem/socket. True if the process is
 * the binder (binder.h) and the name did not exist; the name exists from then on. */
bool share_name_bind(struct fs *fs, pid_t pid);
/* The path of the socket, or the reason why there is no socket: for GPUMEM_IOC_SOCKET, and as text.
 */
struct capability;
void share_where(struct fs *fs, struct gpumem_socket *location);
void share_capability(struct fs *fs, struct capability *capability);
/* Ends every lease and connection; after turns_stop. NULL is fine. */
void share_close(struct share *share);

/* How the daemon learns of the holder's stores: not at all, or by a write(2) for their times. */
enum share_times { SHARE_TIMES_UNSEEN, SHARE_TIMES_TOLD };

/* The part of a GPUMEM_IOC_ADOPT that comes before the lease. */
struct share_adoption {
	uint64_t skip, size;
	uint32_t n_pieces;
	bool stays; /* the file outlives the lease */
	bool later; /* the memory may be imported at its first use */
};

/* A GPUMEM_IOC_LEASE, or with SHARE_TIMES_TOLD a GPUMEM_IOC_LEASE_TIMED, or with loads a
 * GPUMEM_IOC_LEASE_LOADS. */
struct share_ask {
	struct inode *inode; /* stays until the answer to the ioctl */
	enum gpumem_access access;
	enum share_times times;
	bool loads; /* the process stores nothing */
	pid_t pid;  /* of the caller */
	uid_t uid;
	bool resent;	  /* an earlier daemon may have begun to serve the ioctl */
	uint64_t request; /* the number of the ioctl's request; 0: none */
	struct gpumem_lease_ask ask;
	const struct share_adoption *adopt; /* of GPUMEM_IOC_ADOPT, as long as the ask; or NULL */
	/* Called by a thread of the queue with the result of share_ask. Owns the ask. */
	void (*complete)(struct share_ask *ask, int error);
};

/* Leases an opened file: 0 once the answer is on the connection, or -errno as common/protocol.h
 * says. -EINPROGRESS: complete will be called, or has been called already. */
int share_ask(struct share *share, struct share_ask *ask);

/* Whether a lease may store into the inode now. */
bool share_stores(struct fs *fs, const struct inode *inode);
/* Around a copy into an inode's memory that the kernel does not see. share_store_begin: 0, -ENOMEM,
 * or -EINPROGRESS with FILE_NO_WAIT: processes must be told first, which may take seconds. */
int share_store_begin(struct share *share, const struct inode *inode, enum file_wait wait);
void share_store_end(struct share *share, const struct inode *inode);

/* Drops a file's leases that began before cutoff (clock_ns) and returns their number. The holders
 * still have their mappings, but the leases no longer prevent changes of the file. */
uint64_t share_drop(struct share *share, struct inode *inode, int64_t cutoff);
/* Drops the leases of a file that are as old as -o lease_timeout= allows. True if there were such
 * leases: the caller may try again a change that the leases refused. */
bool share_drop_expired(struct fs *fs, struct inode *inode);

/* GPUMEM_IOC_NOTIFY about an inode, NULL for all files, and GPUMEM_IOC_NOTIFIED, by a process of
 * the user uid: 0 or -errno. */
int share_notify(struct share *share, uid_t uid, const struct inode *inode,
		 struct gpumem_notify *notify);
void share_notified(struct share *share, uid_t uid, struct gpumem_notified *notified);
/* Tells the processes that listen for it that the process of a file's memory has ended. */
void share_tell_end(struct fs *fs, const struct inode *inode);
/* Tells the processes that asked for such notices that bytes of the volume's device are wanted, if
 * a file of the volume is leased. For fs/tier. */
void share_want_memory(void *share, const struct volume *volume, uint64_t bytes);

/* The file of a lease, for GPUMEM_IOC_COPY: 0 with a reference, or -errno as common/protocol.h
 * says. */
int share_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
		 uint64_t lease, struct inode **inode);

/* delegation.c: for .gpumem/ */
extern const struct fact_group delegation_facts[];

#endif
