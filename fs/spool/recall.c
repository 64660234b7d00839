/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Recalls a file: reads the bytes back from the disk into memory. Each block is compared with its
 * hash before the block is written to the file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/log.h"
#include "common/vector.h"
#include "fs/core/worker.h"
#include "fs/file/file.h"
#include "fs/spool/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/tree.h"

#define DIRECT_ALIGN 4096

struct recalling {
	struct fs *fs;
	struct inode *inode;
	const struct spool_record *record;
	int fd;
	_Atomic uint64_t bad; /* number of a damaged block, + 1 */
};

/* Up to a page more than bytes: O_DIRECT wants aligned lengths. Ends at the end of the file. */
static ssize_t data_read(struct recalling *recalling, char *to, size_t bytes, uint64_t offset)
{
	size_t whole = (bytes + DIRECT_ALIGN - 1) & ~(size_t)(DIRECT_ALIGN - 1);
	uint64_t n_read = 0;
	int fd = recalling->fd, rc = io_read_at(fd, to, whole, offset, &n_read);

	if (rc == -EINVAL && n_read < bytes && fcntl(fd, F_GETFL) & O_DIRECT) {
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
		rc = io_read_at(fd, to + n_read, bytes - n_read, offset + n_read, &n_read);
	}
	return rc < 0 && n_read < bytes ? rc : (ssize_t)n_read;
}

static int file_write_run(struct recalling *recalling, const char *from, uint64_t offset,
			  size_t bytes)
{
	struct inode_call call;

	inode_call_init(&call, recalling->fs, recalling->inode, worker_copier(recalling->fs));
	/* A quota that was lowered since the save limits new allocations only. */
	call.overdraft = true;
	while (bytes) {
		ssize_t n = file_write(recalling->inode->file, &call.call, from, bytes, offset);

		if (n < 0)
			return (int)n;
		from += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Writes the runs of the block and leaves the holes. */
static int file_write_block(struct recalling *recalling, const char *from, uint64_t offset,
			    size_t bytes)
{
	const struct spool_record *record = recalling->record;
	const struct spool_run *runs = record->runs;
	size_t low = vector_search(i, record->n_runs, runs[i].from + runs[i].bytes <= offset);
	int rc = 0;

	for (; rc == 0 && low < record->n_runs && runs[low].from < offset + bytes; low++) {
		uint64_t start = runs[low].from, end = start + runs[low].bytes;

		start = start < offset ? offset : start;
		end = end > offset + bytes ? offset + bytes : end;
		rc = file_write_run(recalling, from + (start - offset), start, end - start);
	}
	return rc;
}

static int block_recall(void *context, uint64_t number)
{
	struct recalling *recalling = context;
	const struct spool_block *block = &recalling->record->blocks[number];
	size_t bytes = spool_block_bytes(recalling->record, block->index);
	uint64_t offset = block->index * SPOOL_BLOCK;
	char *buffer = spool_buffer(recalling->fs);

	if (!buffer)
		return -ENOMEM;
	ssize_t n = data_read(recalling, buffer, bytes, offset);

	if (n < 0)
		return (int)n;
	if ((size_t)n < bytes || XXH3_64bits(buffer, bytes) != block->hash) {
		atomic_store(&recalling->bad, block->index + 1);
		return -EUCLEAN;
	}
	atomic_fetch_add(&spool_of(recalling->fs)->fetched_bytes, bytes);
	return file_write_block(recalling, buffer, offset, bytes);
}

static int data_open(struct spool *spool, const struct spool_record *record)
{
	int direct = atomic_load(&spool->direct) ? O_DIRECT : 0;
	int fd = spool_data_open(spool, record->id, 0, O_RDONLY | direct);

	return fd == -EINVAL && direct ? spool_data_open(spool, record->id, 0, O_RDONLY) : fd;
}

/* Why the data file cannot be the saved one, or NULL. */
static const char *data_misfit(int fd, const struct spool_record *record)
{
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size != record->size)
		return "the length differs from the saved length";
	return NULL;
}

void spool_damaged(struct fs *fs, struct inode *inode, uint64_t id, const char *reason)
{
	char path[PATH_MAX];

	tree_path_text(fs, inode, path, PATH_MAX);
	log_error("%s: the copy in %s/.spool, number %" PRIu64
		  ", is damaged: %s: opening the file is "
		  "an input/output error until the file is removed; the copy stays unchanged",
		  path, spool_of(fs)->path, id, reason);
	atomic_fetch_add(&spool_of(fs)->damaged, 1);
	atomic_store_explicit(&inode->residency, INODE_DAMAGED, memory_order_release);
	spool_note(fs, inode, id, INODE_DAMAGED);
}

/* Logs an error that may pass: a full GPU, a disk that does not answer. */
static void log_later(struct fs *fs, struct inode *inode, int error)
{
	char path[PATH_MAX];

	tree_path_text(fs, inode, path, PATH_MAX);
	log_warn("%s: cannot be brought back from the spool now: %s: the next open tries again",
		 path, strerror(-error));
}

/* Frees the memory of the file and keeps the size. */
static void file_empty(struct fs *fs, struct inode *inode, uint64_t size)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	file_truncate(inode->file, &call.call, 0);
	file_truncate(inode->file, &call.call, size);
}

/* -EUCLEAN: the copy is damaged, and `reason` says how. */
static int blocks_recall(struct recalling *recalling, char reason[64])
{
	const struct spool_record *record = recalling->record;
	AUTO_CLOSE int fd = recalling->fd = data_open(spool_of(recalling->fs), record);
	unsigned threads = spool_threads(record->n_blocks);
	const char *wrong = fd == -ENOENT    ? "the data file is missing"
			    : fd == -EUCLEAN ? "the data file is not a regular file"
			    : fd == -ELOOP   ? "the data file is a symbolic link"
			    : fd < 0	     ? NULL
					     : data_misfit(fd, record);

	if (wrong) {
		snprintf(reason, 64, "%s", wrong);
		return -EUCLEAN;
	}
	if (fd < 0)
		return fd;
	int rc = spool_parallel(record->n_blocks, threads, block_recall, recalling);

	if (rc == -EUCLEAN)
		snprintf(reason, 64, "block %" PRIu64 " differs from the saved block",
			 recalling->bad - 1);
	return rc;
}

static int file_recall(struct fs *fs, struct inode *inode, struct spool_file *file)
{
	struct recalling recalling = {.fs = fs, .inode = inode, .record = &file->saved};
	struct spool_dirty_map old_map;
	char reason[64];

	inode_move_begin(inode);
	int rc = spool_dirty_map_renew(file, file->saved.size, &old_map);

	if (rc == 0) {
		free(old_map.words);
		rc = blocks_recall(&recalling, reason);
	}
	if (rc)
		file_empty(fs, inode, file->saved.size);
	inode_move_end(inode);
	if (rc == -EUCLEAN) {
		spool_damaged(fs, inode, file->saved.id, reason);
		return -EIO;
	}
	if (rc) {
		log_later(fs, inode, rc);
		return rc;
	}
	rc = spool_note(fs, inode, file->saved.id, INODE_RESIDENT);
	if (rc == 0)
		atomic_store_explicit(&inode->residency, INODE_RESIDENT, memory_order_release);
	return rc;
}

int spool_recall(struct fs *fs, struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	if (!spool_of(fs) || !file)
		return -EIO;
	scoped_lock(&file->lock);
	switch (atomic_load(&inode->residency)) {
	case INODE_RESIDENT:
		return 0;
	case INODE_DAMAGED:
		return -EIO;
	default:
		break;
	}
	return file_recall(fs, inode, file);
}
