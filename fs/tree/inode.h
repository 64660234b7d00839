/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inodes: the object that names lead to, with its attributes, counters and times.
 *
 * Locks, in the order in which they are taken: a file's layout_lock (file.h), fs->topology,
 * directory locks (ancestors first, then by address), inode->lock. "lock" below is inode->lock,
 * "topology" is fs->topology. */
#ifndef FS_TREE_INODE_H
#define FS_TREE_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/journal/persistent_fields.h"

struct dentry;
struct dir;
struct fs;
struct xattr;

#define INODE_LEASE_BITS 24

/* What is charged for the inode to uid, and bytes to quota_dir too. Under owner_locks of owner.c.
 */
struct inode_charges {
	_Atomic uint64_t bytes;	 /* of memory */
	uint32_t metadata;	 /* bytes */
	uint32_t descriptors;	 /* of memory: LEDGER_DESCRIPTORS */
	uint32_t placed[PLACES]; /* memory in each place, in units of POOL_BLOCK_MIN */
	uint8_t objects;	 /* of host/ */
	uint8_t tmpfs;		 /* of these, with a tmpfs of their own */
	atomic_bool counted;	 /* counts as a file of quota_dir; topology */
};

/* What keeps the data of an inode: inode_state.h. Under inode->lock. */
struct inode_uses {
	uint32_t opens, writers;	    /* open handles, and open handles for writing */
	uint32_t leases : INODE_LEASE_BITS; /* inode_lease.h */
	bool data_freed : 1;		    /* data freed after the last name went */
	bool unlinked_open : 1;		    /* counted in fs->inodes->n_unlinked_open */
	bool keep_data : 1;		    /* see inode_may_drop */
	bool direct_io : 1;		    /* has been opened with O_DIRECT */
};

/* Stores that come without a request: inode_unseen.h. */
struct inode_unseen {
	_Atomic uint32_t pages;	 /* read by the kernel */
	_Atomic uint16_t leases; /* that may store */
	_Atomic uint8_t listing; /* enum host_listing, of host_out.h */
};

/* The indexes of inode->states: what a part keeps for an inode, freed by the hook
 * freed of the part. */
enum inode_part { INODE_LAST_OPEN, INODE_SPOOL, INODE_SLOTS };

/* A million inodes may exist: keep the struct small. */
struct inode {
	uint64_t ino; /* also FUSE's node id: slot in the low 32 bits, generation above */
	/* The kernel's lookups, a reference while the inode has names, and references of the
	 * daemon. */
	_Atomic uint64_t refs;
	struct inode_fields *fields; /* behind the inode, or in the journal; set once */
	/* NULL for the root. A rename to another volume changes the pointer under lock, so readers
	 * load it once. */
	struct volume *_Atomic volume;
	pthread_mutex_t lock;
	struct inode *quota_dir; /* pays for the inode; holds a reference; topology */
	struct dentry *links;	 /* the inode's names; lock */
	struct xattr *xattrs;	 /* lock */
	union {
		struct dir *dir;   /* S_IFDIR */
		struct file *file; /* S_IFREG */
		char *target;	   /* S_IFLNK */
		dev_t rdev;	   /* S_IFCHR, S_IFBLK: the device's number */
	};
	_Atomic(void *) states[INODE_SLOTS]; /* of parts */
	int64_t btime;			     /* nanoseconds since the epoch */
	struct inode_charges charges;
	_Atomic mode_t mode;	/* written under lock */
	_Atomic uid_t uid;	/* written under lock and owner_locks of owner.c */
	gid_t gid;		/* lock */
	_Atomic uint32_t nlink; /* written under lock */
	struct inode_uses uses;
	struct inode_unseen unseen;
	atomic_bool recorded;	   /* the journal has the inode */
	atomic_bool times_seen;	   /* a program has been told the times since a write */
	_Atomic uint8_t residency; /* enum inode_residency, see inode_hooks.h */
	uint8_t moving; /* moves in progress; meanwhile the kernel gets no object; lock */
	_Atomic(struct attr_values) attrs; /* written under lock */
};

/* The number of the root in FUSE. */
#define INODE_ROOT 1

/* A new inode with a single reference, no names and the current times; mode includes the type.
 * -ENOMEM, -ENOSPC. */
int inode_new(struct fs *fs, struct volume *volume, mode_t mode, uid_t uid, gid_t gid,
	      struct inode **inode);

/* The metadata bytes that an inode is charged for: itself, its names, attributes and target. lock
 * is held, or no other thread has the inode. */
uint32_t inode_count_metadata(const struct inode *inode);

/* Counts a regular file in its volume: files is 1 for a new file, -1 for a file that goes. */
void inode_count_file(const struct inode *inode, int files);

/* For recovery. inode_restore_new: an inode without type, slot and references. inode_restore_type:
 * sets the type once; -EUCLEAN if the inode has another type. inode_restore_free: frees the inode
 * and its content, except for names and device memory. */
struct inode *inode_restore_new(uint64_t ino);
int inode_restore_type(struct inode *inode, struct volume *volume, mode_t mode);
void inode_restore_free(struct inode *inode);

/* The inode with this number from the kernel, without a new reference. NULL: no such inode. */
struct inode *inode_find(struct fs *fs, uint64_t ino);

static inline void inode_ref(struct inode *inode)
{
	atomic_fetch_add_explicit(&inode->refs, 1, memory_order_relaxed);
}

/* Drops n references; the last reference frees the inode and its memory. Under no lock. */
void inode_put(struct fs *fs, struct inode *inode, uint64_t n);

/* A file without names, open handles and leases frees its memory at once, not when the kernel
 * forgets the inode, so that rm frees the space that df shows (states: inode_state.h). Two
 * exceptions set keep_data: the kernel was given the object, so mappings can outlive handles and
 * hold the inode in the kernel; or a rename replaced the file, so a process that looked the name up
 * before may be about to open the file.
 *
 * inode_may_drop: call after every change of these counts, with lock held. On true the caller must
 * call inode_drop_data, under no lock. */
bool inode_may_drop(struct fs *fs, struct inode *inode);
void inode_drop_data(struct fs *fs, struct inode *inode);

/* Subtracts the inode from the file counts of quota_dir and all directories above, once. Topology
 * is held. */
void inode_uncount_held(struct inode *inode);

/* Adds an entry of parent to inode->links, and takes an entry out; the directory itself stays as it
 * is. inode->lock is held. */
void inode_link_add(struct inode *inode, struct dentry *entry, struct inode *parent);
void inode_link_remove(struct inode *inode, struct dentry *entry);

/* A file_call that charges the inode's quota_dir, with the inode's current attributes. */
struct inode_call {
	struct file_call call;
	struct fs *fs;
	struct inode *inode;
	bool overdraft;		 /* the memory is allocated already: quotas cannot refuse */
	bool unasked;		 /* the daemon moves the file, and no user of it asked */
	uint64_t evictions_seen; /* fs/tier: the number of evictions when room was last made */
};
/* What holders of memory need to know of files: NULL without fs/holders. */
static inline FS_STATE(const struct file_holds, file_holds_of, FS_HOLDS)

    void inode_call_init(struct inode_call *call, struct fs *fs, struct inode *inode,
			 struct copier *copier);

/* The kernel's lookups. inode_looked_up: adds a lookup, for which the caller has a reference
 * already. inode_forget: drops n lookups. */
void inode_looked_up(struct inode *inode);
void inode_forget(struct fs *fs, struct inode *inode, uint64_t n);

/* As stat(2); the blocks of a file are the allocated memory. */
void inode_stat(struct inode *inode, struct stat *st);
struct statx inode_statx(const struct stat *st, struct timespec btime);

int64_t time_now(void);	       /* exact, in nanoseconds */
int64_t time_now_coarse(void); /* to the kernel's tick: for the data path */

/* relatime: sets atime if atime is not newer than mtime and ctime, or is a day old. */
void inode_touch_read(struct inode *inode);
/* Brackets an operation that replaces the file's memory: mtime stays, and the kernel gets no object
 * meanwhile. */
void inode_move_begin(struct inode *inode);
void inode_move_end(struct inode *inode);

/* Sets mtime and ctime, if the values differ (ticks are 1 to 4 ms). The caller does not hold
 * lock. */
void inode_touch_write(struct inode *inode);
void inode_touch_change(struct inode *inode); /* sets ctime */
/* Sets an explicit mtime. Writes to the object of a host/ file before this call do not change mtime
 * any more. lock is held. */
void inode_set_mtime(struct inode *inode, int64_t mtime);
/* Updates mtime if programs wrote to the object of a host/ file without the daemon. lock is
 * held. */
void inode_update_mtime(struct inode *inode);

#endif
