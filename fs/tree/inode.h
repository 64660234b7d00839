/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inodes: what a name leads to.
 *
 * Locks, in the order in which they are taken: a file's guard (file.h), fs->topology, directory
 * locks (ancestors first, then by address), inode->lock. */
#ifndef FS_TREE_INODE_H
#define FS_TREE_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/file/file.h"
#include "fs/journal/persistent_fields.h"

struct dentry;
struct dir;
struct fs;
struct spool_file;
struct xattr;

/* A million of these exist: keep it small. */
struct inode {
	uint64_t ino; /* also FUSE's node id: slot in the low 32 bits, generation above */
	/* Lookups that the kernel holds, one while it has names, and internal holders. */
	_Atomic uint64_t refs;
	struct inode_fields *fields; /* own, or the journal's; set before anybody finds it */
	/* NULL for the root; changes in a cross-volume rename, under lock: load it once. */
	struct volume *_Atomic volume;
	pthread_mutex_t lock;
	struct inode *quota_dir; /* the directory that pays for it; holds a reference; topology */
	struct dentry *links;	 /* its names; lock */
	struct xattr *xattrs;	 /* lock */
	union {
		struct dir *dir;   /* S_IFDIR */
		struct file *file; /* S_IFREG */
		char *target;	   /* S_IFLNK */
		dev_t rdev;	   /* S_IFCHR, S_IFBLK: which device */
	};
	struct inode_fields own;
	struct spool_file *_Atomic spool;  /* of the inode_watch alone; NULL: none */
	int64_t btime;			   /* nanoseconds since the epoch */
	_Atomic uint64_t charged;	   /* bytes that home pays for */
	_Atomic mode_t mode;		   /* written under lock */
	_Atomic uid_t uid;		   /* written under lock */
	_Atomic uid_t object_uid;	   /* for whom the descriptor of host/ is counted */
	gid_t gid;			   /* lock */
	_Atomic uint32_t nlink;		   /* written under lock */
	uint32_t opens, writers;	   /* open handles, and those for writing; lock */
	uint32_t lease_refs;		   /* leases: hold.h; lock */
	uint32_t xattr_bytes;		   /* what xattrs cost; lock */
	_Atomic(struct attr_values) attrs; /* written under lock */
	atomic_bool counted;		   /* as a file of home; topology */
	bool data_freed; /* its data went with its last name: no open, no new name any more; lock */
	atomic_bool out; /* among those of host_out.h */
	bool unlinked_open;	   /* counted in fs->dying; lock */
	atomic_bool recorded;	   /* a journal knows it */
	bool keep_data;		   /* until the kernel forgets it: see inode_may_drop; lock */
	_Atomic uint8_t residency; /* enum inode_residency, set by the inode_watch */
	uint8_t moving; /* others replace its memory: the kernel gets no object meanwhile; lock */
};

/* The number of the root, as FUSE has it. */
#define INODE_ROOT 1

/* A new inode with one reference and no names; times now; mode with its type. -ENOMEM, -ENOSPC. */
int inode_new(struct fs *fs, struct volume *volume, mode_t mode, uid_t uid, gid_t gid,
	      struct inode **inode);

/* A regular file has come to its volume (1), or has gone from it (-1). */
void inode_count_file(const struct inode *inode, int files);

/* For restoring: one without a type, a table or a reference; its type, once (-EUCLEAN: it has
 * another); and away with it, whatever it has but names and memory. */
struct inode *inode_restore_new(uint64_t ino);
int inode_restore_type(struct inode *inode, struct volume *volume, mode_t mode);
void inode_restore_free(struct inode *inode);

/* The inode of a number from the kernel; no reference is taken. NULL: no such inode. */
struct inode *inode_find(struct fs *fs, uint64_t ino);

static inline void inode_ref(struct inode *inode)
{
	atomic_fetch_add_explicit(&inode->refs, 1, memory_order_relaxed);
}

/* Gives n references back; the last one frees the inode and its memory. Under no lock. */
void inode_put(struct fs *fs, struct inode *inode, uint64_t n);

/* A file that has no name, no open handle and no lease gives its memory back at once and not when
 * the kernel forgets it, so that rm frees what df shows. Not so if it is kept: mappings of an
 * object that the kernel was given outlive handles and hold the inode in the kernel; and a file
 * that was replaced by a rename may be about to be opened by who found the name before, for the
 * name was there all the time. inode_may_drop: after each change of those counts, with lock held;
 * true where inode_drop_data, under no lock, must follow. */
bool inode_may_drop(struct fs *fs, struct inode *inode);
void inode_drop_data(struct fs *fs, struct inode *inode);

/* Takes it off the files that home and those above it count. */
void inode_uncount(struct fs *fs, struct inode *inode);

/* Adds a directory entry to inode->links, as one of parent, and takes an entry out of the list; the
 * directory itself stays as it is. inode->lock is held. */
void inode_link_add(struct inode *inode, struct dentry *entry, struct inode *parent);
void inode_link_remove(struct inode *inode, struct dentry *entry);

/* A file_call on the inode's account, with its attributes as they are now. */
struct inode_call {
	struct file_call call;
	struct fs *fs;
	struct inode *inode;
	bool overdraft; /* the memory is taken already: quotas cannot refuse it */
};
void inode_call_init(struct inode_call *call, struct fs *fs, struct inode *inode,
		     struct copier *copier);

/* The kernel's lookups: one more (the reference was taken with the lookup), n fewer. */
void inode_looked_up(struct inode *inode);
void inode_forget(struct fs *fs, struct inode *inode, uint64_t n);

/* As stat(2); blocks of a file are its allocated memory. */
void inode_stat(struct inode *inode, struct stat *st);
struct statx inode_statx(const struct stat *st, struct timespec btime);

int64_t time_now(void);	       /* nanoseconds, exact */
int64_t time_now_coarse(void); /* nanoseconds, to the kernel's tick: for the data path */
int64_t time_from_spec(const struct timespec *spec);
struct timespec time_to_spec(int64_t ns);

/* relatime: atime moves when it is not newer than mtime or ctime, or a day old. */
void inode_touch_read(struct inode *inode);
/* Around what gives the file other memory: keeps its mtime, and the kernel's hands off. */
void inode_move_begin(struct inode *inode);
void inode_move_end(struct inode *inode);

/* mtime and ctime move (stored only when they differ: ticks are 1-4 ms). Not under lock. */
void inode_touch_write(struct inode *inode);
void inode_touch_change(struct inode *inode); /* ctime */
/* An explicit time, and what the object of a host/ file has been written by now is not newer than
 * it. lock is held. */
void inode_set_mtime(struct inode *inode, int64_t mtime);
/* mtime follows what programs wrote past the daemon. lock is held. */
void inode_update_mtime(struct inode *inode);

#endif
