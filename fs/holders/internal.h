/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by holds.c, receiver.c and held_chunk.c. */
#ifndef FS_HOLDERS_INTERNAL_H
#define FS_HOLDERS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/holders/held_store.h"
#include "fs/holders/holds.h"

/* A process. Ends when pidfd polls POLLIN, or if pidfd is -1 with the last of its connections. */
struct receiver {
	UT_hash_handle hh; /* in by_process while pidfd is not -1 */
	uint64_t key;	   /* the pid, or a number as good */
	pid_t pid;
	uid_t uid;
	int pidfd;
	uint32_t connections;
	uint32_t slot;
	struct receipt *receipts;
};

struct receipt_key {
	uint64_t ino;
	const struct receiver *receiver;
};

/* The receiver has received descriptors of chunks of a file. */
struct receipt {
	UT_hash_handle hh; /* in by_key */
	struct receipt_key key;
	struct receiver *receiver;
	struct held_file *file;
	struct receipt *receiver_prev, *receiver_next; /* of the receiver */
	struct receipt *prev, *next;		       /* of the file, by sequence */
	uint64_t sequence;
	uint32_t slot;
};

/* A file with receipts. */
struct held_file {
	UT_hash_handle hh; /* in by_ino */
	uint64_t ino;
	struct receipt *receipts;  /* in the order of sequence */
	struct held_chunk *chunks; /* in the order of sequence */
	bool ended;		   /* the file has no memory any more */
};

/* A chunk that a file gave up. Charged until the receipts of its file with a smaller sequence have
 * ended. */
struct held_chunk {
	struct held_chunk *prev, *next; /* of the file; or in a list of ended chunks */
	struct held_chunk *shelf_prev, *shelf_next;
	struct held_file *file;
	struct volume *volume;
	const struct chunk *memory; /* as the file knows the chunk, until the chunk is freed */
	struct inode *dir;	    /* is charged for the bytes; with a reference */
	struct span span;	    /* on the shelf; else chunk is NULL */
	struct held_image image;
	uint64_t descriptors; /* charged to image.uid, on the shelf: LEDGER_DESCRIPTORS */
	uint32_t slot;
	bool user_charged; /* image.uid is charged */
};

struct holds {
	struct file_holds calls; /* first: file_holds_of */
	pthread_mutex_t lock;	 /* of all below */
	struct held_store *store;
	int epoll_fd; /* the pidfds */
	struct receiver *by_process;
	struct receipt *by_key;
	struct held_file *by_ino;
	struct held_chunk *shelf;
	/* Off the shelf, still stored: no record says whose they are. */
	struct held_chunk *taken_chunks;
	struct held_chunk *ended; /* whose references of directories are still to be put */
	uint64_t sequence;
	_Atomic uint32_t n_files, n_shelved, n_taken;
};

static inline FS_STATE(struct holds, holds_of, FS_HOLDS)

    /* held_chunk.c. Under the lock. */
    struct held_file *held_file_find(const struct holds *holds, uint64_t ino);
struct held_file *held_file_find_or_new(struct holds *holds, uint64_t ino);
/* Frees a file without receipts. */
void held_file_free(struct holds *holds, struct held_file *file);
/* Moves the chunks that no receipt keeps any more to ended. */
void held_file_settle(struct fs *fs, struct held_file *file, struct held_chunk **ended);
/* A chunk is stored and listed: 0 or -ENOMEM. */
int held_chunk_new(struct holds *holds, struct held_file *file, const struct held_image *image,
		   struct held_chunk **new_chunk);
/* Takes the chunk out of the lists of its file and of the shelf. held_chunk_remove: also of the
 * store. */
void held_chunk_unlist(struct fs *fs, struct held_chunk *chunk);
void held_chunk_remove(struct fs *fs, struct held_chunk *chunk);
/* False: the user may have no more descriptors. */
bool held_chunk_shelve(struct fs *fs, struct held_chunk *chunk, const struct span *span);
/* The span stays with the chunk. */
void held_chunk_unshelve(struct fs *fs, struct held_chunk *chunk);
struct held_chunk *held_chunk_shelved(const struct holds *holds, const struct held_image *like,
				      const struct volume *volume);
/* Topology is held. Adds the charges of a chunk, whatever the owner's limits are: 0, or -EDQUOT.
 * Ends the charges. */
int held_chunk_charge(struct fs *fs, struct held_chunk *chunk, enum file_hold mode);
void held_chunk_uncharge(struct fs *fs, struct held_chunk *chunk);
/* Not under the lock. Ends the charges of removed chunks, freeing memory on the shelf.
 * held_chunks_free frees the list, under no lock. */
void held_chunks_end(struct fs *fs, struct held_chunk *ended);
void held_chunks_free(struct fs *fs, struct held_chunk *ended);

/* receiver.c. Under the lock. */
int receipt_add(struct fs *fs, struct receiver *receiver, uint64_t ino);
/* Removes all receipts of a file that has no chunks. */
void receipts_forget(struct fs *fs, struct held_file *file);
/* Without other threads. */
int receivers_restore(struct fs *fs);
/* Ends all receivers. The store must be closed. */
void receivers_free(struct fs *fs);

#endif
