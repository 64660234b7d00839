/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A journal with arbitrary records: the daemon refuses the journal, or builds a consistent tree and
 * frees the tree again. The input is a list of records; a record has two bytes of length and the
 * bytes behind a record's header. The fuzzer computes valid checksums and appends the records to
 * the journal of a small tree. Left-over bytes of the input become a separate journal half,
 * unchanged. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/journal/journal.h"
#include "fs/tree/dir.h"
#include "fs/tree/tree.h"

#define HELD_MAX 64

struct held {
	unsigned n;
	uint64_t ids[HELD_MAX];
	int fds[HELD_MAX];
};

const char *__asan_default_options(void);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A descriptor that the daemon of the small tree left in the fdstore, and the content of the
 * descriptor's memory. Every input starts from this content. Creating new memory for each input
 * would cost several times as much as reading the journal. */
#define RUNS_MAX 64

struct image {
	uint64_t id;
	int fd;
	off_t size; /* -1: a directory, the mount that limits host/ */
	unsigned n_runs;
	struct run {
		off_t at;
		size_t bytes;
		char *was;
	} runs[RUNS_MAX];
};

static struct image images[HELD_MAX];
static unsigned n_images;
static struct fs fs;

/* A small quarantine reuses freed memory after about twenty inputs instead of hundreds: otherwise
 * page faults of new memory would take most of the time. */
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=8";
}

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
	static struct fdstore_ops fdstore;
	char *argv[] = {"gpumemfs", "/tmp", "-o", "backend=host,host_gpus=1,host_size=4M", NULL};

	fdstore = (struct fdstore_ops){held, hold, drop, take, each};
	memset(&fs, 0, sizeof(fs));
	require(options_parse(4, argv, &fs.options) == 0);
	log_setup(LOG_LEVEL_DEBUG, 0);
	fs.can.max_write = 4096;
	fs.fdstore_ops = &fdstore;
	fs.mount = FS_MOUNT_KEPT;
	int rc = fs_open(&fs);

	if (rc)
		options_free(&fs.options);
	return rc;
}

/* The next range with data from *at on, up to *end. */
static bool next_run(int fd, off_t *at, off_t *end)
{
	*at = lseek(fd, *at, SEEK_DATA);
	*end = *at < 0 ? -1 : lseek(fd, *at, SEEK_HOLE);
	return *at >= 0;
}

static void image_take(struct image *image, uint64_t id, int fd)
{
	off_t at = 0, end;
	struct stat st;

	require(fstat(fd, &st) == 0);
	*image = (struct image){.id = id, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .size = -1};
	if (!S_ISREG(st.st_mode))
		return;
	close(image->fd);
	image->fd = memfd_create("image", MFD_CLOEXEC);
	image->size = st.st_size;
	for (; next_run(fd, &at, &end); at = end) {
		size_t bytes = (size_t)(end - at);
		struct run *run = &image->runs[image->n_runs++];

		require(image->n_runs < RUNS_MAX);
		*run = (struct run){at, bytes, malloc(bytes)};
		require(pread(fd, run->was, bytes, at) == (ssize_t)bytes);
	}
}

static void punch(int fd, off_t at, off_t end)
{
	if (at < end)
		require(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, end - at) ==
			0);
}

/* The daemon of the last input wrote to the memory. Write the ranges of the image again and punch
 * out all other pages. Pages that were allocated and never written stay: reading them yields zero.
 */
static void image_reset(const struct image *image)
{
	off_t at = 0, end;

	if (image->size < 0)
		return;
	require(ftruncate(image->fd, image->size) == 0);
	for (; next_run(image->fd, &at, &end); at = end) {
		for (unsigned i = 0; i < image->n_runs && image->runs[i].at < end; i++) {
			off_t run_end = image->runs[i].at + (off_t)image->runs[i].bytes;

			punch(image->fd, at, image->runs[i].at);
			at = run_end > at ? run_end : at;
		}
		punch(image->fd, at, end);
	}
	for (unsigned i = 0; i < image->n_runs; i++) {
		const struct run *run = &image->runs[i];

		require(pwrite(image->fd, run->was, run->bytes, run->at) == (ssize_t)run->bytes);
	}
}

static void hold_images(struct held *held)
{
	held->n = 0;
	for (unsigned i = 0; i < n_images; i++) {
		image_reset(&images[i]);
		hold(held, images[i].id, images[i].fd);
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

/* The place of the next record: after the last record of the first half's first segment. */
static struct {
	off_t at, segment_end;
	uint64_t epoch, sequence;
} tail;

static void tail_find(struct held *held)
{
	struct fdstore_ops fdstore = {held, hold, drop, take, each};
	struct journal_list list = {0};
	struct journal *journal;

	require(journal_adopt(&fdstore, take(held, fdstore_id(FDSTORE_JOURNAL, 0)), &journal) == 0);
	const char *base = (const char *)journal->header, *area = journal->halves[0];
	const char *end = area + sizeof(struct journal_segment);

	tail.epoch = journal->header->epoch[0];
	tail.segment_end = area + JOURNAL_UNIT - base;
	tail.sequence = 1;
	require(journal_read_half(area, 1, tail.epoch, &list) == 0);
	for (size_t i = 0; i < list.count; i++) {
		end = (const char *)list.at[i] + list.at[i]->bytes;
		tail.sequence = list.at[i]->sequence + 1;
	}
	tail.at = end - base;
	free(list.at);
	journal_close(journal);
}

static void append(struct held *held, const uint8_t *data, size_t size)
{
	static uint64_t buffer[JOURNAL_UNIT / sizeof(uint64_t)];
	size_t room = (size_t)(tail.segment_end - tail.at), used = 0;
	uint64_t sequence = tail.sequence;

	while (size > 2) {
		struct journal_record *record = (void *)((char *)buffer + used);
		size_t bytes = (size_t)(data[0] | data[1] << 8);

		data += 2;
		size -= 2;
		bytes = bytes < size ? bytes : size;
		size_t whole = sizeof(*record) + journal_align(bytes);

		if (whole > room - used)
			break;
		memset(record, 0, whole);
		record->sequence = sequence++;
		record->bytes = (uint32_t)whole;
		memcpy(record + 1, data, bytes);
		record->check = journal_record_check(record, tail.epoch);
		used += whole;
		data += bytes;
		size -= bytes;
	}
	int fd = take(held, fdstore_id(FDSTORE_JOURNAL, 0));

	require(pwrite(fd, buffer, used, tail.at) == (ssize_t)used);
	close(fd);
}

/* Drops CAP_SYS_ADMIN. With the capability the daemon mounts a tmpfs to limit host/: the mount
 * takes a fifth of an input's time, and no input tests the limit. */
static void give_up_mounting(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3];

	require(syscall(SYS_capget, &header, have) == 0);
	have[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
	require(syscall(SYS_capset, &header, have) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct held held = {0};

	(void)argc, (void)argv;
	give_up_mounting();
	require(daemon_up(&held) == 0);
	make_tree();
	/* The descriptors that the daemon itself left in the fdstore belong to the image too. */
	while (n_images < held.n) {
		image_take(&images[n_images], held.ids[n_images], held.fds[n_images]);
		n_images++;
	}
	fs_close(&fs);
	options_free(&fs.options);
	release_held(&held);
	hold_images(&held);
	tail_find(&held);
	release_held(&held);
	return 0;
}

/* Every name leads to an inode, and every inode can be reached by its names. */
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
	if (journal_read_half(area, 1, 1, &list) == 0)
		journal_sort(&list);
	free(list.at);
	free(area);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct held held;

	read_raw(data, size);
	hold_images(&held);
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
