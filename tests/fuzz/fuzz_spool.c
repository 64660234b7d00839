/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A spool with arbitrary records: refused records leave nothing behind. The tree made of the
 * accepted records is consistent, is read with or without an error, can be saved again and freed.
 * The input is the JSON of the records, separated by lines "---"; the fuzzer adds a valid header
 * and checksum to every record.
 *
 * All inputs share one backend with its volumes; each input has a spool and a tree of its own. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/core/memory.h"
#include "fs/core/worker.h"
#include "fs/spool/internal.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/tree.h"

#define BETWEEN "---\n"

/* As many records as a tree of several levels needs. */
#define RECORDS_MAX 16

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char scratch[64];
static struct fs fs;

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* In place of the functions of parallel.c: new threads for each input would take longer than the
 * work. */
int spool_parallel(uint64_t count, unsigned threads, int (*work)(void *context, uint64_t number),
		   void *context)
{
	int error = 0;

	(void)threads;
	for (uint64_t number = 0; error == 0 && number < count; number++)
		error = work(context, number);
	return error;
}

void *spool_buffer(struct fs *of)
{
	struct worker *worker = worker_self(of);

	return worker && worker->reply_bytes >= SPOOL_BLOCK ? worker->reply : NULL;
}

/* In place of the functions of memory.c: workers come and go with each input, and populating and
 * locking their memory would take longer than the work. */
static void *idle_memory;
static size_t idle_bytes;

void *memory_populate(size_t bytes)
{
	void *memory = idle_memory;

	if (!memory || idle_bytes != bytes)
		return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	idle_memory = NULL;
	return memory;
}

void memory_free(void *memory, size_t bytes)
{
	if (idle_memory)
		munmap(idle_memory, idle_bytes);
	idle_memory = memory;
	idle_bytes = bytes;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type;
	return at->level ? remove(path) : 0;
}

static void clear(void)
{
	nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_scratch(void)
{
	clear();
	rmdir(scratch);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char text[160];
	char *words[] = {"gpumemfs", "/proc", "-o", text, NULL};

	(void)argc, (void)argv;
	log_setup(LOG_LEVEL_DEBUG, 0);
	snprintf(scratch, sizeof(scratch), "/dev/shm/gpumemfs-fuzz-spool-%d", getpid());
	require(mkdir(scratch, 0700) == 0 && atexit(remove_scratch) == 0);
	snprintf(text, sizeof(text), "backend=host,host_size=16M,spool=%s", scratch);
	require(options_parse(4, words, &fs.options) == 0);
	fs.can.max_write = SPOOL_BLOCK;
	require(fs_prepare(&fs) == 0);
	return 0;
}

static void write_file(const char *folder, unsigned number, const char *text, size_t length)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/.spool/%s/%u", scratch, folder, number);
	FILE *file = fopen(path, "w");

	require(file && fwrite(text, 1, length, file) == length);
	fclose(file);
}

/* An accepted record can be written, and reads back equal. */
static void check_again(const struct spool_record *record)
{
	struct spool_record again;
	char *text AUTO_FREE = NULL;
	const char *why = "";
	ssize_t length = spool_record_write(record, &text);

	require(length > 0 && spool_record_read(text, (size_t)length, &again, &why) == 0);
	require(spool_record_hash(record, SPOOL_TIMES) == spool_record_hash(&again, SPOOL_TIMES));
	spool_record_free(&again);
}

static void put_data(unsigned number, const struct spool_record *record)
{
	char path[128];

	if (!S_ISREG(record->mode))
		return;
	write_file("data", number, "", 0);
	snprintf(path, sizeof(path), "%s/.spool/data/%u", scratch, number);
	require(truncate(path, (off_t)record->size) == 0 || errno == EFBIG || errno == EINVAL);
}

static void put_record(unsigned number, const uint8_t *lines, size_t size)
{
	struct spool_record record;
	char *text AUTO_FREE = NULL;
	const char *why = "";
	size_t length;
	FILE *out = open_memstream(&text, &length);

	require(out);
	fprintf(out, SPOOL_HEAD "%d\n", SPOOL_FORMAT);
	fwrite(lines, 1, size, out);
	fflush(out);
	fprintf(out, SPOOL_SUM "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, length));
	fclose(out);
	write_file("records", number, text, length);
	if (spool_record_read(text, length, &record, &why))
		return;
	check_again(&record);
	put_data(number, &record);
	spool_record_free(&record);
}

static void put_spool(const uint8_t *data, size_t size)
{
	static const char *const folders[] = {"/.spool", "/.spool/records", "/.spool/data"};
	char path[128];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", scratch, folders[i]);
		require(mkdir(path, 0700) == 0);
	}
	for (unsigned number = 1; size && number <= RECORDS_MAX; number++) {
		const uint8_t *end = memmem(data, size, BETWEEN, strlen(BETWEEN));
		size_t bytes = end ? (size_t)(end - data) : size;

		put_record(number, data, bytes);
		bytes += end ? strlen(BETWEEN) : 0;
		data += bytes;
		size -= bytes;
	}
}

static void look_at(struct inode *inode)
{
	struct inode_call call;
	char path[4096], byte;
	struct stat st;

	inode_stat(inode, &st);
	tree_path(&fs, inode, path, sizeof(path));
	if (!S_ISREG(st.st_mode) || inode_require_bytes(&fs, inode))
		return;
	inode_call_init(&call, &fs, inode, worker_copier(&fs));
	require(file_read(inode->file, &call.call, &byte, 1, 0) <= 1);
}

/* Every name leads to an inode, and every inode can be reached by its names. */
static void walk(struct inode *dir, unsigned depth)
{
	struct dentry *entry;

	for (uint64_t cookie = DIR_COOKIE_END; (entry = dir_before(dir->dir, cookie));
	     cookie = entry->cookie) {
		require(dir_find(dir->dir, entry->name) == entry && entry->parent == dir);
		look_at(entry->inode);
		if (S_ISDIR(entry->inode->mode) && depth)
			walk(entry->inode, depth - 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spool_saved saved;

	put_spool(data, size);
	require(tree_init(&fs) == 0);
	if (spool_open(&fs) == 0) {
		walk(fs.root, RECORDS_MAX);
		spool_save_below(&fs, NULL, SPOOL_ALL_USERS, &saved);
		walk(fs.root, RECORDS_MAX);
		spool_close(&fs);
	}
	tree_destroy(&fs);
	worker_end();
	clear();
	return 0;
}
