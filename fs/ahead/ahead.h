/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Blocks of files that are copied out of a GPU ahead of programs that read from front to back: the
 * kernel copies one block to the program while the GPU copies the next block into pinned host
 * memory, out of which the reply to the program is made.
 *
 * A block is found only while its bytes are the file's bytes. The owner of a file calls ahead_drop
 * after every change of bytes and before the change is answered, and before memory is freed or
 * moved. A file whose bytes may change without the daemon's knowledge must not be read here. */
#ifndef FS_AHEAD_AHEAD_H
#define FS_AHEAD_AHEAD_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/copy.h"
#include "common/tsan.h"
#include "fs/core/fs.h"

#define AHEAD_BLOCK_BYTES (1ULL << 20)

struct ahead;
struct ahead_block;

static inline FS_STATE(struct ahead, ahead_of, FS_AHEAD)

    /* A file, for as long as a call lasts. */
    struct ahead_file {
	/* The number of the file's blocks. The address of this counter identifies the file. */
	_Atomic uint8_t *blocks;
	/* Enqueues copies of up to bytes at offset, as copy_out does: the number of bytes, less at
	 * the end of the file, or -errno. */
	ssize_t (*copy)(void *file, struct copier *copier, void *to, size_t bytes, uint64_t offset);
	void *file;
};

/* n_blocks: at most 255. Memory for a block is allocated when the block is first needed. 0 or
 * -ENOMEM. */
int ahead_new(struct backend *backend, unsigned n_blocks, struct ahead **ahead);
/* No other call is in progress; no file has a block. */
void ahead_free(struct ahead *ahead);

/* Notes that a program reads bytes at offset, and starts to copy the next block if programs have
 * read the bytes before. If a block has all of the bytes, waits for the copy into the block, sets
 * *at to the bytes and returns the block, which the caller gives back with ahead_put; else NULL.
 * During the call the file's memory must neither move nor be freed. */
struct ahead_block *ahead_read(struct ahead *ahead, const struct ahead_file *file, uint64_t offset,
			       size_t bytes, const char **at);
void ahead_put(struct ahead_block *block);
/* Frees the memory of all blocks that have no file. */
void ahead_trim(struct ahead *ahead);

/* Call after bytes of the file have changed, or before memory of the file is freed: no later
 * ahead_read finds a block from before this call, and except for calls of ahead_read in progress no
 * copy out of the file is under way any more. blocks: as in struct ahead_file. */
void ahead_drop_blocks(struct ahead *ahead, _Atomic uint8_t *blocks);
static inline void ahead_drop(struct ahead *ahead, _Atomic uint8_t *blocks)
{
	/* A block is counted before the copy into the block starts. So if no block is counted now,
	 * each later copy gets the changed bytes. */
	if (fence_and_load(blocks))
		ahead_drop_blocks(ahead, blocks);
}

#endif
