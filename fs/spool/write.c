/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Writes the bytes of a file to the disk. Changed blocks go to a staged file beside the data, at
 * the same offsets. Once the record names the staged file, spool_commit makes the data agree with
 * the record, again after a crash if need be. A staged file with all blocks replaces the data by a
 * rename. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/io.h"
#include "fs/core/file_time.h"
#include "fs/core/worker.h"
#include "fs/extents/extents.h"
#include "fs/file/export.h"
#include "fs/spool/internal.h"
#include "fs/tree/inode.h"

#define DIRECT_ALIGN 4096

struct staging {
	struct fs *fs;
	struct inode *inode;
	struct spool_file *file;
	struct spool_record *record;
	struct spool_dirty_map old_map;
	bool compare;		  /* unchanged blocks are not written */
	bool all;		  /* write every block, dirty or not */
	uint64_t marked;	  /* number of dirty blocks, unless `compare` is set */
	int fd;			  /* -1: no block can have changed */
	_Atomic uint64_t written; /* bytes */
};

/* A file without holes is one run; a file with a thousand holes costs a thousand seeks. */
static int record_find_runs(struct inode *inode, struct spool_record *record)
{
	uint64_t at = 0;
	int rc = 0;

	while (rc == 0 && at < record->size) {
		int64_t from = file_seek(inode->file, at, SEEK_DATA);

		if (from < 0)
			return from == -ENXIO ? 0 : (int)from;
		int64_t to = file_seek(inode->file, (uint64_t)from, SEEK_HOLE);

		/* The file was truncated meanwhile; the truncation marks the file for the next
		 * save. */
		if (to == -ENXIO || (uint64_t)from >= record->size)
			return 0;
		if (to < 0)
			return (int)to;
		at = (uint64_t)to < record->size ? (uint64_t)to : record->size;
		if (at > (uint64_t)from)
			rc = spool_record_add_run(record, (uint64_t)from, at - (uint64_t)from);
	}
	return rc;
}

/* Reads the block up to the end of the file. Bytes that a truncation cut off meanwhile read as
 * zeroes. */
static int block_read(struct staging *staging, uint64_t index, char *to, size_t bytes)
{
	struct inode_call call;
	size_t n_read = 0;

	inode_call_init(&call, staging->fs, staging->inode, worker_copier(staging->fs));
	while (n_read < bytes) {
		ssize_t n = file_read(staging->inode->file, &call.call, to + n_read, bytes - n_read,
				      index * SPOOL_BLOCK + n_read);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		n_read += (size_t)n;
	}
	memset(to + n_read, 0, bytes - n_read);
	return 0;
}

/* A file system may accept O_DIRECT at open and refuse the writes. Several threads may do this at
 * once. */
static void direct_clear(struct spool *spool, int fd)
{
	atomic_store(&spool->direct, false);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
}

static int staged_write(struct spool *spool, int fd, const char *from, size_t bytes,
			uint64_t offset)
{
	uint64_t n_written = 0;
	int rc = io_write_at(fd, from, bytes, offset, &n_written);

	if (rc == -EINVAL) {
		direct_clear(spool, fd);
		rc = io_write_at(fd, from + n_written, bytes - n_written, offset + n_written, NULL);
	}
	return rc;
}

static bool block_is_compared(const struct staging *staging, const struct spool_block *block,
			      const struct spool_block *old)
{
	return staging->all || staging->compare || !old ||
	       spool_marked(&staging->old_map, block->index) ||
	       spool_block_bytes(staging->record, block->index) !=
		   spool_block_bytes(&staging->file->saved, block->index);
}

static int block_write(void *context, uint64_t number)
{
	struct staging *staging = context;
	struct spool_record *record = staging->record;
	struct spool_block *block = &record->blocks[number];
	const struct spool_block *old =
	    staging->file->saved.version ? spool_record_block(&staging->file->saved, block->index)
					 : NULL;
	size_t bytes = spool_block_bytes(record, block->index);
	bool same_bytes = old && bytes == spool_block_bytes(&staging->file->saved, block->index);

	if (!block_is_compared(staging, block, old)) {
		block->hash = old->hash;
		return 0;
	}
	char *buffer = spool_buffer(staging->fs);
	int rc = buffer ? block_read(staging, block->index, buffer, bytes) : -ENOMEM;

	if (rc)
		return rc;
	block->hash = XXH3_64bits(buffer, bytes);
	if (!staging->all && same_bytes && block->hash == old->hash)
		return 0;
	block->is_fresh = true;
	size_t whole = (bytes + DIRECT_ALIGN - 1) & ~(size_t)(DIRECT_ALIGN - 1);

	memset(buffer + bytes, 0, whole - bytes);
	atomic_fetch_add(&staging->written, bytes);
	spool_step(spool_of(staging->fs));
	return staged_write(spool_of(staging->fs), staging->fd, buffer, whole,
			    block->index * SPOOL_BLOCK);
}

/* Writing every block once is cheaper than writing more than half of the blocks twice. */
static void staging_choose(struct staging *staging)
{
	const struct spool_record *record = staging->record, *saved = &staging->file->saved;

	staging->all = !saved->version;
	if (staging->all || staging->compare)
		return;
	for (size_t i = 0; i < record->n_blocks; i++)
		staging->marked +=
		    block_is_compared(staging, &record->blocks[i],
				      spool_record_block(saved, record->blocks[i].index));
	staging->all = staging->marked * 2 > record->n_blocks;
}

/* Whether a saved block is a hole now. */
static bool record_lost_blocks(const struct spool_record *record, const struct spool_record *saved)
{
	for (size_t i = 0; i < saved->n_blocks; i++)
		if (!spool_record_block(record, saved->blocks[i].index))
			return true;
	return false;
}

static bool staging_is_changed(const struct staging *staging)
{
	const struct spool_record *record = staging->record, *saved = &staging->file->saved;

	return !saved->version || atomic_load(&staging->written) || record->size != saved->size ||
	       record_lost_blocks(record, saved);
}

static bool staging_may_change(const struct staging *staging)
{
	return staging->all || staging->compare || staging->marked || staging_is_changed(staging);
}

static int staged_open(struct spool *spool, const struct spool_record *record)
{
	int flags = O_RDWR | O_CREAT | O_TRUNC, fd = -EINVAL;

	if (atomic_load(&spool->direct)) {
		fd = spool_data_open(spool, record->id, record->version, flags | O_DIRECT);
		if (fd == -EINVAL)
			atomic_store(&spool->direct, false);
	}
	return fd == -EINVAL ? spool_data_open(spool, record->id, record->version, flags) : fd;
}

/* Allocates room for all blocks: a full disk fails here, and later writes extend no file and so
 * run in parallel. */
static int staging_reserve(const struct staging *staging)
{
	const struct spool_record *record = staging->record;

	if (ftruncate(staging->fd, (off_t)record->size))
		return -errno;
	for (size_t i = 0; staging->all && i < record->n_runs; i++) {
		uint64_t from = align_down(record->runs[i].from, SPOOL_BLOCK);
		uint64_t to = align_up(record->runs[i].from + record->runs[i].bytes, SPOOL_BLOCK);

		if (to > align_up(record->size, DIRECT_ALIGN))
			to = align_up(record->size, DIRECT_ALIGN);
		if (fallocate(staging->fd, 0, (off_t)from, (off_t)(to - from)) == 0)
			continue;
		return errno == EOPNOTSUPP ? 0 : -errno;
	}
	return 0;
}

static int staging_write(struct staging *staging)
{
	struct spool_record *record = staging->record;
	unsigned threads = spool_threads(record->n_blocks);
	struct timespec times[] = {file_time_to_spec(record->atime),
				   file_time_to_spec(record->mtime)};
	int rc = staging->fd < 0 ? 0 : staging_reserve(staging);

	if (rc == 0)
		rc = spool_parallel(record->n_blocks, threads, block_write, staging);
	if (rc || !staging_is_changed(staging))
		return rc;
	if (ftruncate(staging->fd, (off_t)record->size))
		return -errno;
	spool_step(spool_of(staging->fs));
	futimens(staging->fd, times); /* for people who list the data files */
	return fsync(staging->fd) ? -errno : 0;
}

int spool_write_blocks(struct fs *fs, struct inode *inode, struct spool_file *file,
		       struct spool_record *record, struct spool_staged *staged)
{
	struct staging staging = {
	    .fs = fs, .inode = inode, .file = file, .record = record, .fd = -1};
	struct volume *volume = file_volume(inode->file);

	*staged = (struct spool_staged){0};
	record->size = file_size(inode->file);
	/* Read before the bytes: a later change sets the flag again. A program may write to a
	 * host/ file through a mapping without the daemon's knowledge. */
	staging.compare = atomic_exchange(&file->unknown, false) || volume->system ||
			  file_leases(inode->file) > 0 || file_is_loose(inode->file);
	int rc = spool_dirty_map_renew(file, record->size, &staging.old_map);

	if (rc == 0)
		rc = record_find_runs(inode, record);
	if (rc == 0)
		rc = spool_record_find_blocks(record);
	if (rc == 0) {
		staging_choose(&staging);
		if (staging_may_change(&staging))
			rc = staging.fd = staged_open(spool_of(fs), record);
		if (rc >= 0)
			rc = staging_write(&staging);
	}
	free(staging.old_map.words);
	staged->exists = rc == 0 && staging_is_changed(&staging);
	staged->bytes = staging.written;
	if (staging.fd >= 0)
		close(staging.fd);
	if (staging.fd >= 0 && !staged->exists)
		spool_unstage(spool_of(fs), record);
	if (rc)
		atomic_store(&file->unknown, true);
	return rc;
}

void spool_unstage(struct spool *spool, const struct spool_record *record)
{
	char name[SPOOL_FILE_NAME];

	spool_file_name(name, record->id, record->version);
	unlinkat(spool->data, name, 0);
}

static int block_copy(int from, int to, uint64_t offset, size_t bytes)
{
	off_t at = (off_t)offset, target = (off_t)offset;

	while (bytes) {
		ssize_t n = copy_file_range(from, &at, to, &target, bytes, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EUCLEAN;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Makes a hole between two blocks. */
static int data_punch(int fd, uint64_t from, uint64_t to)
{
	if (from >= to)
		return 0;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
		      (off_t)(to - from)) == 0 ||
	    errno == EOPNOTSUPP)
		return 0; /* a file system without holes: the data is only larger */
	return -errno;
}

static int data_commit_blocks(const struct spool *spool, const struct spool_record *record,
			      int from, int to)
{
	uint64_t end = 0;
	int rc = ftruncate(to, (off_t)record->size) ? -errno : 0;

	for (size_t i = 0; rc == 0 && i < record->n_blocks; i++) {
		uint64_t offset = record->blocks[i].index * SPOOL_BLOCK;

		spool_step(spool);
		rc = data_punch(to, end, offset);
		end = offset + SPOOL_BLOCK;
		if (rc == 0 && record->blocks[i].is_fresh)
			rc = block_copy(from, to, offset,
					spool_block_bytes(record, record->blocks[i].index));
	}
	if (rc == 0)
		rc = data_punch(to, end, record->size);
	struct timespec times[] = {file_time_to_spec(record->atime),
				   file_time_to_spec(record->mtime)};

	futimens(to, times);
	return rc == 0 && fsync(to) ? -errno : rc;
}

static bool record_has_everything(const struct spool_record *record)
{
	for (size_t i = 0; i < record->n_blocks; i++)
		if (!record->blocks[i].is_fresh)
			return false;
	return true;
}

int spool_commit(struct spool *spool, const struct spool_record *record)
{
	char name[SPOOL_FILE_NAME], staged[SPOOL_FILE_NAME];

	spool_file_name(name, record->id, 0);
	spool_file_name(staged, record->id, record->version);
	spool_step(spool);
	if (record_has_everything(record))
		return renameat(spool->data, staged, spool->data, name) ? -errno : 0;
	AUTO_CLOSE int from = spool_data_open(spool, record->id, record->version, O_RDONLY);
	AUTO_CLOSE int to = spool_data_open(spool, record->id, 0, O_RDWR);

	if (from < 0 || to < 0)
		return from < 0 ? from : to;
	int rc = data_commit_blocks(spool, record, from, to);

	spool_step(spool);
	if (rc == 0 && unlinkat(spool->data, staged, 0))
		rc = -errno;
	return rc;
}
