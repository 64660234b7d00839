/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ahead/ahead.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/hash.h"
#include "fs/core/memory.h"

/* The number of remembered ends of reads: a read that begins at a remembered end continues a
 * stream. Two streams whose ends share a place lose some blocks, no more. */
#define ENDS 1024U
/* The low bits of a remembered end: how many reads followed one another. */
#define LEVEL_MAX 15U
#define PAGE	  4096UL
/* A block that no program has asked for is reused after this time: the program reads no further, or
 * reads more slowly than any reader that would gain from the block. */
#define UNREAD_NS (20 * CLOCK_MS)

/* The bytes of a block. Every read in order looks through the keys of all blocks, so no field here
 * changes at each read. */
struct ahead_key {
	_Atomic uint8_t *blocks; /* the file's; NULL: the block cannot be found */
	uint64_t offset, bytes;
};

struct ahead_block {
	struct ahead *ahead;
	struct ahead_block *prev, *next; /* in ahead.free or ahead.empty, under ahead.lock */
	char *memory;			 /* populated and pinned; NULL before the first use */
	struct copier *copier;		 /* copies into this block only */

	/* Under ahead.lock, as is the key. */
	struct ahead_key *key;
	unsigned users; /* threads that copy, wait or reply */
	bool is_read;	/* a program has asked for some of the bytes */
	int64_t used_at;

	pthread_mutex_t copy_lock; /* held from before a block can be found until its copy is
				      enqueued, and for waiting */
	bool copying;		   /* under copy_lock, as the next two */
	int result;		   /* 0 or -errno */
	uint64_t copied;	   /* less than bytes at the end of the file */
};

struct ahead {
	struct backend *backend;
	_Atomic uint64_t ends[ENDS]; /* hashes of files and offsets, and levels */
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	/* Blocks with neither a file nor users: those with memory, of which the first was freed
	 * first, and those without. */
	struct ahead_block *free, *empty;
	unsigned n_free, n_used; /* blocks in free, and blocks in neither list */
	bool is_short;		 /* the last block got no memory */
	unsigned n_blocks;
	struct ahead_key keys[UINT8_MAX];
	struct ahead_block blocks[];
};

int ahead_new(struct backend *backend, unsigned n_blocks, struct ahead **ahead)
{
	struct ahead *new_ahead =
	    cacheline_calloc(sizeof(*new_ahead) + n_blocks * sizeof(new_ahead->blocks[0]));

	assert(n_blocks <= UINT8_MAX);
	if (!new_ahead)
		return -ENOMEM;
	new_ahead->backend = backend;
	new_ahead->n_blocks = n_blocks;
	pthread_mutex_init(&new_ahead->lock, NULL);
	for (unsigned i = 0; i < n_blocks; i++) {
		new_ahead->blocks[i].ahead = new_ahead;
		new_ahead->blocks[i].key = &new_ahead->keys[i];
		pthread_mutex_init(&new_ahead->blocks[i].copy_lock, NULL);
		DL_APPEND(new_ahead->empty, &new_ahead->blocks[i]);
	}
	*ahead = new_ahead;
	return 0;
}

static void block_free_memory(struct ahead_block *block)
{
	if (block->memory)
		copier_unpin(block->copier, block->memory);
	memory_free(block->memory, AHEAD_BLOCK_BYTES);
	block->memory = NULL;
}

static void block_close(struct ahead_block *block)
{
	block_free_memory(block);
	copier_close(block->copier);
	pthread_mutex_destroy(&block->copy_lock);
}

void ahead_free(struct ahead *ahead)
{
	if (!ahead)
		return;
	for (unsigned i = 0; i < ahead->n_blocks; i++)
		block_close(&ahead->blocks[i]);
	pthread_mutex_destroy(&ahead->lock);
	free(ahead);
}

/* Remembers the end of a read: how many reads led there one after the other. */
static unsigned level_of(struct ahead *ahead, const struct ahead_file *file, uint64_t offset,
			 size_t bytes)
{
	uint64_t begin[] = {(uintptr_t)file->blocks, offset};
	uint64_t end[] = {(uintptr_t)file->blocks, offset + bytes};
	uint64_t hash = XXH3_64bits(begin, sizeof(begin));
	uint64_t found =
	    atomic_load_explicit(&ahead->ends[hash / (LEVEL_MAX + 1) % ENDS], memory_order_relaxed);
	unsigned level = 0;

	if ((found ^ hash) <= LEVEL_MAX)
		level = found % (LEVEL_MAX + 1);
	hash = XXH3_64bits(end, sizeof(end));
	atomic_store_explicit(&ahead->ends[hash / (LEVEL_MAX + 1) % ENDS],
			      (hash & ~(uint64_t)LEVEL_MAX) |
				  (level < LEVEL_MAX ? level + 1 : LEVEL_MAX),
			      memory_order_relaxed);
	return level;
}

/* Waits for the copy into the block, if there is one: 0 or -errno. */
static int block_wait(struct ahead_block *block)
{
	scoped_lock(&block->copy_lock);
	if (block->copying) {
		block->copying = false;
		block->result = copier_wait(block->copier);
	}
	return block->result;
}

/* ahead->lock is held, and the block has just lost a user or its file. */
static void block_free_unused(struct ahead_block *block)
{
	struct ahead *ahead = block->ahead;

	if (block->users || block->key->blocks)
		return;
	ahead->n_used--;
	if (!block->memory) {
		DL_APPEND(ahead->empty, block);
		return;
	}
	DL_APPEND(ahead->free, block);
	ahead->n_free++;
}

/* ahead->lock is held. */
static void block_forget(struct ahead_block *block)
{
	if (!block->key->blocks)
		return;
	atomic_fetch_sub(block->key->blocks, 1);
	block->key->blocks = NULL;
	block_free_unused(block);
}

/* ahead->lock is held. */
static void block_lose_user(struct ahead_block *block)
{
	block->users--;
	block_free_unused(block);
}

static void block_put(struct ahead_block *block)
{
	scoped_lock(&block->ahead->lock);
	block_lose_user(block);
}

void ahead_put(struct ahead_block *block)
{
	if (block)
		block_put(block);
}

/* ahead->lock is held. */
static struct ahead_block *block_at(struct ahead *ahead, const _Atomic uint8_t *blocks,
				    uint64_t offset)
{
	for (unsigned i = 0; i < ahead->n_blocks; i++) {
		const struct ahead_key *key = &ahead->keys[i];

		if (key->blocks == blocks && offset - key->offset < key->bytes)
			return &ahead->blocks[i];
	}
	return NULL;
}

/* ahead->lock is held. Takes back the file of the block that no program has read for the longest
 * time, if that is long enough: the block is free then. */
static void block_take_back(struct ahead *ahead)
{
	struct ahead_block *unread = NULL;

	for (unsigned i = 0; i < ahead->n_blocks; i++) {
		struct ahead_block *block = &ahead->blocks[i];

		if (!block->users && (!unread || block->used_at < unread->used_at))
			unread = block;
	}
	if (!unread || clock_ns() - unread->used_at < UNREAD_NS)
		return;
	/* No thread waits long: the copy was enqueued UNREAD_NS ago. */
	block_wait(unread);
	block_forget(unread);
}

/* ahead->lock is held: a block for new bytes, in no list, or NULL. The copy of a block without a
 * file is complete.
 *
 * A DMA into memory that a processor has just read must take the lines out of that processor's
 * cache: 16 readers of 1 MiB got 34 to 37 GB/s with the block that was freed last, and 41 with the
 * block that was freed first. Half of the blocks with memory are enough for that distance. */
static struct ahead_block *block_take_free(struct ahead *ahead)
{
	if (!ahead->free && !ahead->empty)
		block_take_back(ahead);
	struct ahead_block *block = ahead->free;

	if (ahead->empty && !(block && (ahead->is_short || ahead->n_free > ahead->n_used))) {
		block = ahead->empty;
		DL_DELETE(ahead->empty, block);
	} else if (block) {
		DL_DELETE(ahead->free, block);
		ahead->n_free--;
	}
	if (block)
		ahead->n_used++;
	return block;
}

/* ahead->lock is held. A block for the bytes, locked for the copy, or NULL. */
static struct ahead_block *block_begin(struct ahead *ahead, const struct ahead_file *file,
				       uint64_t offset, uint64_t bytes)
{
	struct ahead_block *block = block_take_free(ahead);

	if (!block)
		return NULL;
	*block->key = (struct ahead_key){file->blocks, offset, bytes};
	block->users = 1;
	block->is_read = false;
	block->used_at = clock_ns();
	atomic_fetch_add(file->blocks, 1);
	/* The lock is free, because the block has no other users. */
	pthread_mutex_lock(&block->copy_lock);
	return block;
}

static int block_make_memory(struct ahead_block *block)
{
	int rc = 0;

	if (!block->copier)
		rc = copier_open(block->ahead->backend, &block->copier);
	if (rc < 0 || block->memory)
		return rc;
	block->memory = memory_populate(AHEAD_BLOCK_BYTES);
	rc = block->memory ? copier_pin(block->copier, block->memory, AHEAD_BLOCK_BYTES) : -ENOMEM;
	if (rc < 0) {
		memory_free(block->memory, AHEAD_BLOCK_BYTES);
		block->memory = NULL;
	}
	return rc;
}

/* Returns the number of bytes that the block has after the copy. */
static uint64_t block_copy(struct ahead_block *block, const struct ahead_file *file)
{
	int rc = block_make_memory(block);
	ssize_t n = rc;

	if (rc == 0) {
		n = file->copy(file->file, block->copier, block->memory, block->key->bytes,
			       block->key->offset);
		block->copying = n > 0;
		/* A copy of several pieces may fail after its first pieces were enqueued. The block
		 * has no file from now on, so no other thread would wait for them. */
		if (n <= 0)
			copier_wait(block->copier);
	}
	block->result = n < 0 ? (int)n : 0;
	block->copied = n < 0 ? 0 : (uint64_t)n;
	pthread_mutex_unlock(&block->copy_lock);
	return n < 0 ? 0 : (uint64_t)n;
}

/* After block_begin. bytes: less than wanted at the end of the file, 0 after an error. */
static void block_end(struct ahead_block *block, uint64_t bytes)
{
	scoped_lock(&block->ahead->lock);
	block->key->bytes = bytes;
	block->ahead->is_short = !block->memory;
	if (!bytes)
		block_forget(block);
	block_lose_user(block);
}

/* The block that has offset, with the caller among its users, or NULL. Sets *next to a block to be
 * copied, or NULL. */
static struct ahead_block *block_find(struct ahead *ahead, const struct ahead_file *file,
				      uint64_t offset, size_t bytes, uint64_t length,
				      struct ahead_block **next)
{
	scoped_lock(&ahead->lock);
	struct ahead_block *found = block_at(ahead, file->blocks, offset);
	uint64_t block_end = found ? found->key->offset + found->key->bytes : 0;
	/* A read that goes on behind its block gets the next one where it ends. */
	uint64_t end = offset + bytes > block_end ? offset + bytes : block_end;
	bool begins = !found || !found->is_read || end > block_end;

	/* After a request of less than a page the program goes on as before. */
	if (found && length < found->key->bytes)
		length = found->key->bytes;

	if (found) {
		found->users++; /* from now on the block is not reused */
		found->used_at = clock_ns();
		found->is_read = true;
	}
	*next = begins && !block_at(ahead, file->blocks, end)
		    ? block_begin(ahead, file, end, length)
		    : NULL;
	if (found && offset + bytes >= end)
		block_forget(found);
	return found;
}

/* The next block: whole reads, twice as much as the program has read so far. The kernel sends a
 * read of a block's size into memory that does not begin with a page as two requests, of which the
 * second has less than a page: the block has both. */
static uint64_t block_length(unsigned level, size_t bytes)
{
	uint64_t length = (uint64_t)bytes << (level + 1);

	if (length > AHEAD_BLOCK_BYTES)
		length = AHEAD_BLOCK_BYTES;
	return bytes > AHEAD_BLOCK_BYTES - PAGE ? AHEAD_BLOCK_BYTES : length / bytes * bytes;
}

struct ahead_block *ahead_read(struct ahead *ahead, const struct ahead_file *file, uint64_t offset,
			       size_t bytes, const char **at)
{
	if (!bytes || bytes > AHEAD_BLOCK_BYTES)
		return NULL;
	unsigned level = level_of(ahead, file, offset, bytes);

	if (!level)
		return NULL;
	struct ahead_block *next,
	    *found = block_find(ahead, file, offset, bytes, block_length(level, bytes), &next);

	if (next)
		block_end(next, block_copy(next, file));
	if (!found)
		return NULL;
	if (block_wait(found) == 0 && offset - found->key->offset + bytes <= found->copied) {
		*at = found->memory + (offset - found->key->offset);
		return found;
	}
	block_put(found);
	return NULL;
}

void ahead_trim(struct ahead *ahead)
{
	scoped_lock(&ahead->lock);
	for (struct ahead_block *block = ahead->free; block; block = block->next)
		block_free_memory(block);
	DL_CONCAT(ahead->empty, ahead->free);
	ahead->free = NULL;
	ahead->n_free = 0;
}

/* The first block of the file, which cannot be found from now on, with the caller among its users;
 * or NULL. */
static struct ahead_block *block_take(struct ahead *ahead, const _Atomic uint8_t *blocks)
{
	scoped_lock(&ahead->lock);
	for (unsigned i = 0; i < ahead->n_blocks; i++) {
		if (ahead->keys[i].blocks == blocks) {
			ahead->blocks[i].users++;
			block_forget(&ahead->blocks[i]);
			return &ahead->blocks[i];
		}
	}
	return NULL;
}

void ahead_drop_blocks(struct ahead *ahead, _Atomic uint8_t *blocks)
{
	struct ahead_block *block;

	while ((block = block_take(ahead, blocks))) {
		block_wait(block);
		block_put(block);
	}
}
