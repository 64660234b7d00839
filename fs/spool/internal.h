/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The state of one mount's spool and of one inode, and the functions that the sources of fs/spool
 * share. */
#ifndef FS_SPOOL_INTERNAL_H
#define FS_SPOOL_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/background.h"
#include "common/brlock.h"
#include "fs/spool/record/record.h"
#include "fs/spool/spool.h"
#include "fs/tree/inode_hooks.h"

/* How many threads save or recall at once. SPOOL_THREADS threads share a file of SPOOL_LARGE bytes
 * or more; a smaller file has a single thread. Two large files are in work at once, so that the
 * daemon writes one file while the disk works for the other file. */
#define SPOOL_THREADS	    8
#define SPOOL_LARGE	    (64ULL << 20)
#define SPOOL_LARGE_AT_ONCE 2

static inline unsigned spool_threads(uint64_t blocks)
{
	return blocks * SPOOL_BLOCK < SPOOL_LARGE ? 1 : SPOOL_THREADS;
}

/* Which blocks of a file changed since the last save. */
struct spool_dirty_map {
	_Atomic uint64_t *words; /* a bit per 1 << shift blocks; NULL: every block changed */
	uint64_t bits;		 /* blocks behind the last bit changed */
	unsigned shift;
};

/* The spool's state of one inode: made by the first save or the recall, freed with the inode. */
struct spool_file {
	pthread_mutex_t lock;	  /* held to save or recall the inode */
	struct brlock marks_lock; /* read lock to set bits, write lock to replace the map */
	struct spool_dirty_map marks;
	atomic_bool unknown; /* the next save compares every block */
	_Atomic uint64_t id; /* of the record; 0: there is no record */
	bool staged; /* lock: the staged file of this version is not yet copied into the data */
	bool unsure; /* lock: the record is in place, but a crash may undo the rename */
	/* Members from here on: lock. The record on the disk: names, runs, blocks, size, version.
	 */
	struct spool_record saved;
	uint64_t hash_but_times, hash; /* spool_record_hash of the saved record */
	bool queued;		       /* spool->lock */
	unsigned held; /* spool->lock: how many queue entries have this inode as `replaced` */
};

/* A directory in the spool's readable tree, with its name as saved. */
struct spool_dir;

/* A queue entry: an inode whose names changed. If the inode replaced another inode, the record of
 * the replaced inode stays until the inode that has the name by then is saved. After that the entry
 * stands for the replaced inode. */
struct spool_queued {
	struct spool_queued *next;
	struct inode *inode;	      /* holds a reference */
	struct inode *replaced, *dir; /* hold references; or NULL */
	char name[];		      /* of `replaced` in `dir` */
};

struct spool {
	char *path;
	int dir, records, data, lock_fd; /* directories, and the locked file */
	pthread_mutex_t lock;
	struct spool_queued *first, **last; /* lock */
	size_t n_queued;		    /* lock */
	struct spool_queued *later; /* lock: entries that failed; the next save tries them again */
	struct background follower; /* saves changed names */
	struct background recaller; /* with restore=now */
	/* Held while entries are taken; taken before the lock of any file. */
	pthread_mutex_t draining;
	pthread_mutex_t mirror; /* protects dirs and the readable tree */
	struct spool_dir *dirs;
	_Atomic uint64_t last_id, sequence;
	_Atomic uint64_t saves, saved_bytes, errors, fetched_bytes, damaged;
	_Atomic int last_error;
	atomic_bool direct; /* the file system accepts O_DIRECT */
	/* For tests: called between two changes on the disk between which a crash could come. */
	void (*fault)(void *of);
	void *fault_of;
};

static inline void spool_step(const struct spool *spool)
{
	if (spool->fault)
		spool->fault(spool->fault_of);
}

/* What the spool keeps for the inode; NULL: nothing yet. */
static inline struct spool_file *inode_spool_file(struct inode *inode)
{
	return atomic_load_explicit(&inode->states[INODE_SPOOL], memory_order_acquire);
}

/* --- the functions of struct inode_hooks */

void spool_changed(struct fs *fs, struct inode *inode);
void spool_replaced(struct fs *fs, struct inode *inode, struct inode *replaced, struct inode *dir,
		    const char *name);
void spool_mark_unknown(struct inode *inode);
int spool_recall(struct fs *fs, struct inode *inode);
void spool_free(struct inode *inode);

/* --- store.c: the directory. 0 or -errno; symbolic links are never followed. */

/* Whether the last owner of the directory was a daemon of this same mount, which may still be
 * exiting. */
enum spool_owner { SPOOL_FOREIGN, SPOOL_OURS };
int spool_dir_open(const char *path, enum spool_owner owner, struct spool **spool);
void spool_dir_close(struct spool *spool);
/* A file name in data/ or records/: "17", or "17.3" with a version that is not 0. */
#define SPOOL_FILE_NAME 64
void spool_file_name(char text[SPOOL_FILE_NAME], uint64_t id, uint64_t version);
/* Replaces a record: durable if the result is 0. `placed`: the new record is visible; with an
 * error a crash may bring the old record back. */
int spool_record_put(struct spool *spool, const struct spool_record *record, bool *placed);
/* The text of a record, allocated, and its length. */
ssize_t spool_record_get(struct spool *spool, const char *name, char **text);
/* Removes the record, the data and the staged file. */
int spool_remove(struct spool *spool, uint64_t id);
/* Opens a data file (version 0) or a staged file. Refuses everything but regular files. */
int spool_data_open(struct spool *spool, uint64_t id, uint64_t version, int flags);

/* Announces the last save in the lock file: the next daemon then waits for the end of this daemon.
 */
void spool_announce_ending(struct spool *spool);

/* --- recall.c */

/* Logs that the saved copy of the file is damaged, and makes every access to the file fail. */
void spool_damaged(struct fs *fs, struct inode *inode, uint64_t id, const char *reason);

/* --- write.c: bytes to the disk */

struct spool_staged {
	bool exists;	/* there is a staged file: the data must change */
	uint64_t bytes; /* written to the staged file */
};
/* Fills in the record's size, runs and blocks, and writes changed blocks to a staged file. The
 * caller holds file->lock. */
int spool_write_blocks(struct fs *fs, struct inode *inode, struct spool_file *file,
		       struct spool_record *record, struct spool_staged *staged);
void spool_unstage(struct spool *spool, const struct spool_record *record);
/* Makes the data agree with the record. May be repeated after a crash. */
int spool_commit(struct spool *spool, const struct spool_record *record);

/* --- spool.c */

/* Logs and counts that the inode could not be saved. Returns error. */
int spool_failed(struct fs *fs, struct inode *inode, int error);

/* --- rename_queue.c */

bool spool_has_record(struct inode *inode);
/* Saves the names of all queued inodes, including the entries that failed before. */
void spool_drain(struct fs *fs);
void spool_rename_queue_start(struct fs *fs);
void spool_rename_queue_end(struct spool *spool); /* also joins the recalling thread */
void spool_rename_queue_free(struct fs *fs);

/* --- save.c */

struct spool_file *spool_file_of(struct inode *inode); /* made if missing; NULL: no memory */
/* Whether the inode has persist=disk, a volume and a name. */
bool spool_wanted(struct inode *inode);
enum spool_extent {
	SPOOL_WITH_BYTES,
	SPOOL_NAMES_ALONE, /* a file without a record stays without a record */
	SPOOL_BYTES_ONCE   /* with bytes if the file has no record yet */
};
int spool_save_one(struct fs *fs, struct inode *inode, enum spool_extent extent,
		   struct spool_saved *saved);
/* Removes the record of an inode that no longer belongs in the spool. */
int spool_drop(struct fs *fs, struct inode *inode);
/* Takes over the record as the inode's saved state. */
void spool_file_set(struct spool_file *file, struct spool_record *record);
/* Installs an empty dirty map for a file of `size` bytes. `old_map`: the map until now, to be freed
 * by the caller. */
int spool_dirty_map_renew(struct spool_file *file, uint64_t size, struct spool_dirty_map *old_map);
bool spool_marked(const struct spool_dirty_map *marks, uint64_t index);
/* Notes the record and the residency for the next daemon if there is a journal. The caller holds
 * no lock. */
int spool_note(struct fs *fs, struct inode *inode, uint64_t id, enum inode_residency residency);

/* --- links.c: the readable tree */

/* Names are removed from the readable tree only if they lead to the record's data file, which is
 * recognised by its inode number. So names are removed before the data file is replaced or removed.
 */

/* Removes the names of `old_record` that `record` no longer has. */
void spool_links_leave(struct spool *spool, const struct spool_record *old_record,
		       const struct spool_record *record);
void spool_links_put(struct spool *spool, const struct spool_record *record);
void spool_links_remove(struct spool *spool, const struct spool_record *record);
/* The path ("gpu0/a") in the readable tree of each data file. spool_paths_find returns NULL if the
 * data file of an id has no name there. */
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

/* --- scan.c */

int spool_restore(struct fs *fs);

/* --- parallel.c: work by several threads, each with a worker's buffers */

/* Calls work(context, number) for each number below count until a call fails, and returns that
 * call's error. */
int spool_parallel(uint64_t count, unsigned threads, int (*work)(void *context, uint64_t number),
		   void *context);
/* A buffer of one block, aligned and pinned, that belongs to the calling thread (the buffer of its
 * replies). NULL: no memory. */
void *spool_buffer(struct fs *fs);

#endif
