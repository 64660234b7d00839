/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the spool's own sources have in common. */
#ifndef FS_SPOOL_INTERNAL_H
#define FS_SPOOL_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/brlock.h"
#include "fs/spool/record.h"
#include "fs/spool/spool.h"
#include "fs/tree/inode_watch.h"

/* Threads that save or bring back at once. A file of the larger size on has so many, smaller ones
 * have one each; of larger ones two are under way, so that one is written while the disk is
 * waited for with the other. */
#define SPOOL_THREADS	    8
#define SPOOL_LARGE	    (64ULL << 20)
#define SPOOL_LARGE_AT_ONCE 2

static inline unsigned spool_threads(uint64_t blocks)
{
	return blocks * SPOOL_BLOCK < SPOOL_LARGE ? 1 : SPOOL_THREADS;
}

/* Which blocks have changed since they were last looked at. */
struct spool_dirty_map {
	_Atomic uint64_t *words; /* a bit per 1 << shift blocks; NULL: all have */
	uint64_t bits;		 /* what lies behind the last has changed */
	unsigned shift;
};

/* What the spool has of one inode. Made with its first save or when it is brought back; lives as
 * long as the inode. */
struct spool_file {
	pthread_mutex_t lock; /* who saves it or brings it back */
	struct brlock guard;  /* of marks: shared to set, exclusive to replace them */
	struct spool_dirty_map marks;
	atomic_bool suspect; /* compare every block */
	_Atomic uint64_t id; /* 0: there is nothing */
	bool staged;	     /* lock: this version's bytes are not in the data yet */
	bool unsure;	     /* lock: its record is in place, and may not be after a crash */
	/* Below: lock. As it is on the disk: names, runs, blocks, size, version. */
	struct spool_record saved;
	uint64_t same_but_times, same; /* spool_record_hash of what was saved */
	bool queued;		       /* spool->lock */
	unsigned held; /* spool->lock: by so many entries of the queue, as what they replaced */
};

/* A directory in the spool, as saved: for paths of the tree that people see. */
struct spool_dir;

/* An inode whose names changed. Where it has taken the name of another, what was saved of that
 * stays until what has the name by then is saved; then the entry goes on as that other's. */
struct spool_queued {
	struct spool_queued *next;
	struct inode *inode;	      /* with a reference */
	struct inode *replaced, *dir; /* with references; or NULL */
	char name[];		      /* of replaced, in dir */
};

struct spool {
	char *path;
	int dir, records, data, lock_fd; /* directories, and what is locked */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct spool_queued *first, **last; /* lock */
	size_t n_queued;		    /* lock */
	struct spool_queued *later; /* lock: what could not be followed: with the next save */
	bool running;		    /* a thread follows names */
	atomic_bool ending;
	pthread_t thread, fetcher;
	bool fetching;		  /* fetcher is to be joined */
	pthread_mutex_t draining; /* who works at the queue; before any file's lock */
	pthread_mutex_t mirror;	  /* of dirs and the tree that people see */
	struct spool_dir *dirs;
	_Atomic uint64_t last_id, sequence;
	_Atomic uint64_t saves, saved_bytes, errors, fetched_bytes, damaged;
	_Atomic int last_error;
	atomic_bool direct; /* O_DIRECT works here */
	/* For tests: called between any two changes on the disk that a crash could come between. */
	void (*fault)(void *of);
	void *fault_of;
};

static inline void spool_step(const struct spool *spool)
{
	if (spool->fault)
		spool->fault(spool->fault_of);
}

/* --- the functions of struct inode_watch */

void spool_changed(struct fs *fs, struct inode *inode);
void spool_replaced(struct fs *fs, struct inode *inode, struct inode *replaced, struct inode *dir,
		    const char *name);
void spool_mark_unknown(struct inode *inode);
int spool_recall(struct fs *fs, struct inode *inode);
void spool_free(struct inode *inode);

/* --- spool_dir.c: the directory itself. 0 or -errno; nothing follows links. */

/* Whether a daemon of this very mount had it, which may be dying still. */
enum spool_owner { SPOOL_FOREIGN, SPOOL_OURS };
int spool_dir_open(const char *path, enum spool_owner owner, struct spool **spool);
void spool_dir_close(struct spool *spool);
/* "17", "17.3" (version not 0) in data/ or records/. */
#define SPOOL_FILE_NAME 64
void spool_file_name(char text[SPOOL_FILE_NAME], uint64_t id, uint64_t version);
/* Replaces a record, for good when it returns 0. placed: it is in the other's place, though with an
 * error nobody knows for how long. */
int spool_record_put(struct spool *spool, const struct spool_record *record, bool *placed);
/* Its text, allocated: the length. */
ssize_t spool_record_get(struct spool *spool, const char *name, char **text);
/* Record, data and what was staged. */
int spool_remove(struct spool *spool, uint64_t id);
/* Reading only, of what is there. */
int spool_data_open(struct spool *spool, uint64_t id, uint64_t version, int flags);

/* The last save begins: who wants the directory waits for its end. */
void spool_announce_ending(struct spool *spool);

/* --- spool_recall.c */

/* What was saved of the file is not to be served: says so. */
void spool_damaged(struct fs *fs, struct inode *inode, uint64_t id, const char *why);

/* --- spool_write_blocks.c: bytes to the disk */

struct spool_staged {
	bool there;	/* a staged file: the data has to change */
	uint64_t bytes; /* written to it */
};
/* Fills in the record's size, runs and blocks, and writes those that are fresh to a staged file.
 * file->lock is held. */
int spool_write_blocks(struct fs *fs, struct inode *inode, struct spool_file *file,
		       struct spool_record *record, struct spool_staged *staged);
void spool_unstage(struct spool *spool, const struct spool_record *record);
/* Makes the data what the record says; again and again if need be. */
int spool_commit(struct spool *spool, const struct spool_record *record);

/* --- spool.c */

/* For the log: its path, or its number where it has none. */
void spool_path_text(struct fs *fs, struct inode *inode, char path[PATH_MAX]);
/* Says that the inode could not be saved, and counts it: error. */
int spool_failed(struct fs *fs, struct inode *inode, int error);

/* --- spool_follow.c */

bool spool_has_record(struct inode *inode);
/* Follows all names that changed, also those that could not be followed before. */
void spool_drain(struct fs *fs);
void spool_rename_queue_start(struct fs *fs);
void spool_rename_queue_end(struct spool *spool); /* and the one that brings bytes back */
void spool_rename_queue_free(struct fs *fs);

/* --- spool_save.c */

struct spool_file *spool_file_of(struct inode *inode); /* makes it; NULL: no memory */
/* Whether the inode is to be in the spool for its own sake. */
bool spool_wanted(struct inode *inode);
enum spool_extent {
	SPOOL_WITH_BYTES,
	SPOOL_NAMES_ALONE, /* of a file that never was saved: nothing */
	SPOOL_BYTES_ONCE   /* with bytes where it never was saved */
};
int spool_save_one(struct fs *fs, struct inode *inode, enum spool_extent extent,
		   struct spool_saved *saved);
/* Of an inode that is not to be in the spool any more. */
int spool_drop(struct fs *fs, struct inode *inode);
/* The file is what the record says, which is taken over. */
void spool_file_set(struct spool_file *file, struct spool_record *record);
/* From here on marks are kept, for a file of so many bytes; the marks until now are let go. */
int spool_dirty_map_renew(struct spool_file *file, uint64_t size, struct spool_dirty_map *before);
bool spool_marked(const struct spool_dirty_map *marks, uint64_t index);
/* For the daemon that comes next, where one does. Under no lock. */
int spool_note(struct fs *fs, struct inode *inode, uint64_t id, enum inode_residency residency);

/* --- spool_links.c: the tree that people see */

/* Where a name leads to something else by now it is left alone: files are known by their data, so
 * what takes names away comes before the data changes or goes. */

/* Takes away the names of before that record has not any more. */
void spool_links_leave(struct spool *spool, const struct spool_record *before,
		       const struct spool_record *record);
void spool_links_put(struct spool *spool, const struct spool_record *record);
void spool_links_remove(struct spool *spool, const struct spool_record *record);
/* The path there ("gpu0/a") of a file whose data has this id, allocated; NULL: it has none. */
struct spool_path {
	uint64_t device, inode;
	char *path;
};
struct spool_paths {
	struct spool_path *at;
	size_t count;
};
int spool_links_paths(struct spool *spool, struct spool_paths *paths);
const char *spool_paths_find(const struct spool_paths *paths, struct spool *spool, uint64_t id);
void spool_paths_free(struct spool_paths *paths);
void spool_links_free(struct spool *spool);

/* --- spool_restore*.c */

int spool_restore(struct fs *fs);

/* --- spool_pool.c: work by several threads, each with what a worker needs */

/* Calls work(context, number) for each number below count, until one fails: that error. */
int spool_parallel(uint64_t count, unsigned threads, int (*work)(void *context, uint64_t number),
		   void *context);
/* A block's worth of memory of the calling thread, aligned and pinned: where a reply would be made.
 * NULL: no memory. */
void *spool_buffer(struct fs *fs);

#endif
