/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A journal with records that nobody wrote: it is refused, or the tree that comes of it holds
 * together and goes away again. The input is a list of records, each two bytes of length and what
 * comes after a record's header; their checks are made right. They come after those of a small
 * tree. Bytes that are left over are an area of their own, as they are. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/dir.h"
#include "fs/fs.h"
#include "fs/journal.h"
#include "fs/tree.h"
#include "fs/worker.h"

#define HELD_MAX 64

struct held {
	unsigned n;
	uint64_t ids[HELD_MAX];
	int fds[HELD_MAX];
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct held base; /* what the daemon of the small tree left */
static struct fs fs;

static void require(bool holds)
{
	if (!holds)
		abort();
}

static int hold(void *of, uint64_t id, int fd)
{
	struct held *held = of;

	require(held->n < HELD_MAX);
	held->ids[held->n] = id;
	held->fds[held->n++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return 0;
}

static void drop(void *of, uint64_t id)
{
	struct held *held = of;

	for (unsigned i = 0; i < held->n; i++) {
		if (held->ids[i] != id)
			continue;
		close(held->fds[i]);
		held->ids[i] = held->ids[--held->n];
		held->fds[i] = held->fds[held->n];
		return;
	}
}

static int take(void *of, uint64_t id)
{
	const struct held *held = of;

	for (unsigned i = 0; i < held->n; i++)
		if (held->ids[i] == id)
			return fcntl(held->fds[i], F_DUPFD_CLOEXEC, 0);
	return -ENOENT;
}

static int each(void *of, int (*call)(uint64_t id, int fd, void *arg), void *arg)
{
	const struct held *held = of;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < held->n; i++)
		rc = call(held->ids[i], held->fds[i], arg);
	return rc;
}

static int daemon_up(struct held *held)
{
	static struct journal_holder holder;
	char *argv[] = {"gpumemfs", "/tmp", "-o", "backend=host,host_gpus=1,host_size=4M", NULL};

	holder = (struct journal_holder){held, hold, drop, take, each};
	memset(&fs, 0, sizeof(fs));
	require(options_parse(4, argv, &fs.options) == 0);
	log_setup(LOG_LEVEL_DEBUG, 0);
	fs.can.max_write = 4096;
	fs.holder = &holder;
	fs.mount = FS_MOUNT_KEPT;
	int rc = fs_open(&fs);

	if (rc)
		options_free(&fs.options);
	return rc;
}

static int copy_of(int fd)
{
	off_t at = 0, end;
	static char buffer[64 << 10];
	struct stat st;

	/* What bounds host/ is a directory. */
	require(fstat(fd, &st) == 0);
	if (!S_ISREG(st.st_mode))
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int copy = memfd_create("copy", MFD_CLOEXEC);

	require(ftruncate(copy, st.st_size) == 0);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		while (at < end) {
			size_t left = (size_t)(end - at);
			ssize_t n =
			    pread(fd, buffer, left < sizeof(buffer) ? left : sizeof(buffer), at);

			require(n > 0 && pwrite(copy, buffer, (size_t)n, at) == n);
			at += n;
		}
	}
	return copy;
}

static void copy_held(const struct held *from, struct held *to)
{
	to->n = from->n;
	for (unsigned i = 0; i < from->n; i++) {
		to->ids[i] = from->ids[i];
		to->fds[i] = copy_of(from->fds[i]);
	}
}

static void release_held(struct held *held)
{
	while (held->n)
		close(held->fds[--held->n]);
}

static void make_tree(void)
{
	struct inode *top = inode_find(&fs, fs.volumes[0].root_ino), *dir, *file;
	struct tree_new directory = {.mode = S_IFDIR | 0755}, regular = {.mode = S_IFREG | 0644};
	struct inode_call call;

	require(tree_create(&fs, top, "dir", &directory, &dir) == 0);
	require(tree_create(&fs, dir, "file", &regular, &file) == 0);
	inode_call_init(&call, &fs, file, worker_copier(&fs));
	require(file_write(file->file, &call.call, "bytes", 5, 8192) == 5);
	inode_put(&fs, file, 1);
	inode_put(&fs, dir, 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct held held = {0};

	(void)argc, (void)argv;
	require(daemon_up(&held) == 0);
	make_tree();
	/* What the daemon itself left goes with it. */
	copy_held(&held, &base);
	fs_close(&fs);
	options_free(&fs.options);
	return 0;
}

/* The place after the last record of the first area's first segment. */
static struct journal_record *end_of(char *area, uint64_t epoch, uint64_t *sequence)
{
	struct journal_list list = {0};
	char *end = area + sizeof(struct journal_segment);

	require(journal_read_area(area, 1, epoch, &list) == 0);
	for (size_t i = 0; i < list.count; i++) {
		end = (char *)list.at[i] + list.at[i]->bytes;
		*sequence = list.at[i]->sequence + 1;
	}
	free(list.at);
	return (struct journal_record *)end;
}

static void append(struct held *held, const uint8_t *data, size_t size)
{
	struct journal_holder holder = {held, hold, drop, take, each};
	uint64_t sequence = 1;
	struct journal *journal;

	require(journal_adopt(&holder, take(held, keep_id(KEEP_JOURNAL, 0)), &journal) == 0);
	uint64_t epoch = journal->header->epoch[0];
	struct journal_record *record = end_of(journal->areas[0], epoch, &sequence);
	char *segment_end = journal->areas[0] + JOURNAL_UNIT;

	while (size > 2) {
		size_t bytes = (size_t)(data[0] | data[1] << 8);

		data += 2;
		size -= 2;
		bytes = bytes < size ? bytes : size;
		size_t whole = sizeof(*record) + journal_align(bytes);

		if (whole > (size_t)(segment_end - (char *)record))
			break;
		record->sequence = sequence++;
		record->bytes = (uint32_t)whole;
		memcpy(record + 1, data, bytes);
		record->check = journal_record_check(record, epoch);
		record = (struct journal_record *)((char *)record + whole);
		data += bytes;
		size -= bytes;
	}
	journal_close(journal);
}

/* Every name leads somewhere and every inode is reached by its names. */
static void walk(struct inode *dir, unsigned depth)
{
	struct dentry *entry;

	for (uint64_t cookie = DIR_COOKIE_END; (entry = dir_before(dir->dir, cookie));
	     cookie = entry->cookie) {
		char path[4096];
		struct stat st;

		require(dir_find(dir->dir, entry->name) == entry && entry->parent == dir);
		inode_stat(entry->inode, &st);
		tree_path(&fs, entry->inode, path, sizeof(path));
		if (S_ISDIR(st.st_mode) && depth < 1000)
			walk(entry->inode, depth + 1);
	}
}

static void read_raw(const uint8_t *data, size_t size)
{
	struct journal_list list = {0};
	char *area = calloc(1, JOURNAL_UNIT);

	if (!area)
		return;
	memcpy(area, data, size < JOURNAL_UNIT ? size : JOURNAL_UNIT);
	if (journal_read_area(area, 1, 1, &list) == 0)
		journal_sort(&list);
	free(list.at);
	free(area);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct held held;

	read_raw(data, size);
	copy_held(&base, &held);
	append(&held, data, size);
	if (daemon_up(&held) == 0) {
		walk(fs.root, 0);
		fs_close(&fs);
		options_free(&fs.options);
	}
	worker_end();
	release_held(&held);
	return 0;
}
