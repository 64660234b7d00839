/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A filesystem with a journal and a fake keeper that holds the descriptors: daemons start and end,
 * the held descriptors stay. */
#ifndef TESTS_UNIT_JOURNAL_FIXTURE_H
#define TESTS_UNIT_JOURNAL_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/disk.h"
#include "backend/system/bounded.h"
#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/file/internal.h"
#include "fs/journal/journal.h"
#include "fs/ledger/ledger.h"
#include "fs/recovery/checkpoint.h"
#include "fs/recovery/restore.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/xattr.h"
#include "tests/unit/fs_fixture.h"

#define HELD_MAX 4096

/* The held descriptors of the fake keeper. */
struct held {
	pthread_mutex_t lock;
	unsigned n;
	uint64_t ids[HELD_MAX];
	int fds[HELD_MAX];
	int refuse; /* -errno for hold; 0: no refusal */
};

static inline int held_hold(void *of, uint64_t id, int fd)
{
	struct held *held = of;

	scoped_lock(&held->lock);
	if (held->refuse)
		return held->refuse;
	ck_assert_uint_lt(held->n, HELD_MAX);
	for (unsigned i = 0; i < held->n; i++)
		ck_assert_uint_ne(held->ids[i], id);
	held->ids[held->n] = id;
	held->fds[held->n++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return 0;
}

static inline void held_drop(void *of, uint64_t id)
{
	struct held *held = of;

	scoped_lock(&held->lock);
	for (unsigned i = 0; i < held->n; i++) {
		if (held->ids[i] != id)
			continue;
		close(held->fds[i]);
		held->ids[i] = held->ids[--held->n];
		held->fds[i] = held->fds[held->n];
		return;
	}
	ck_abort_msg("%lx is not held", (unsigned long)id);
}

static inline int held_take(void *of, uint64_t id)
{
	struct held *held = of;

	scoped_lock(&held->lock);
	for (unsigned i = 0; i < held->n; i++)
		if (held->ids[i] == id)
			return fcntl(held->fds[i], F_DUPFD_CLOEXEC, 0);
	return -ENOENT;
}

static inline int held_each(void *of, int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	struct held *held = of;

	for (unsigned i = 0; i < held->n; i++) {
		int rc = each(held->ids[i], held->fds[i], arg);

		if (rc)
			return rc;
	}
	return 0;
}

static inline struct fdstore_ops held_ops(struct held *held)
{
	return (struct fdstore_ops){.context = held,
				    .hold = held_hold,
				    .drop = held_drop,
				    .take = held_take,
				    .each = held_each};
}

static inline void held_init(struct held *held)
{
	*held = (struct held){0};
	pthread_mutex_init(&held->lock, NULL);
}

static inline void held_free(struct held *held)
{
	while (held->n)
		close(held->fds[--held->n]);
	pthread_mutex_destroy(&held->lock);
}

/* Allocates blocks without data, because the tests compare only the number of blocks. */
static inline void copy_blocks(int copy, const struct stat *st)
{
	struct stat made;

	ck_assert_int_eq(fstat(copy, &made), 0);
	if (made.st_blocks < st->st_blocks)
		ck_assert_int_eq(fallocate(copy, FALLOC_FL_KEEP_SIZE, (st->st_size | 4095) + 1,
					   (st->st_blocks - made.st_blocks) * 512),
				 0);
}

/* Copies the data of shared memory, but not its holes. */
static inline int copy_of(int fd)
{
	int copy = bounded_is(fd) ? bounded_new("never") : memfd_create("copy", MFD_CLOEXEC);
	off_t size = lseek(fd, 0, SEEK_END), at = 0, end;
	char *buffer = malloc(1 << 20);
	struct stat st;

	ck_assert_int_eq(ftruncate(copy, size), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		while (at < end) {
			size_t bytes = end - at < 1 << 20 ? (size_t)(end - at) : 1 << 20;

			ck_assert_int_eq(pread(fd, buffer, bytes, at), (ssize_t)bytes);
			ck_assert_int_eq(pwrite(copy, buffer, bytes, at), (ssize_t)bytes);
			at += (off_t)bytes;
		}
	}
	free(buffer);
	copy_blocks(copy, &st);
	/* The times of a host/ file are the times of its object. */
	ck_assert_int_eq(futimens(copy, (struct timespec[]){st.st_atim, st.st_mtim}), 0);
	/* Opens the copy again, because the descriptor of memfd_create takes no file lease:
	 * system_object_is_held. */
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", copy);
	int opened = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(opened, 0);
	close(copy);
	return opened;
}

/* The state that a new daemon would find if the running daemon stopped now. FREEZE_JOURNAL copies
 * the journal, and the running daemon shares the remaining descriptors. FREEZE_OBJECTS copies the
 * objects of host/ too, because a running operation may empty an object. */
enum freeze { FREEZE_JOURNAL, FREEZE_OBJECTS, FREEZE_ALL };

static inline bool freezes(enum freeze what, enum fdstore_kind kind)
{
	return what == FREEZE_ALL || kind == FDSTORE_JOURNAL ||
	       (what == FREEZE_OBJECTS && kind == FDSTORE_HOST);
}

static inline void held_freeze(struct held *held, enum freeze what, struct held *frozen)
{
	held_init(frozen);
	scoped_lock(&held->lock);
	for (unsigned i = 0; i < held->n; i++) {
		struct stat st;
		bool copied = freezes(what, fdstore_kind_of(held->ids[i]));

		/* The descriptor that limits host/ is a directory. */
		fstat(held->fds[i], &st);
		copied = copied && S_ISREG(st.st_mode);

		frozen->ids[i] = held->ids[i];
		frozen->fds[i] =
		    copied ? copy_of(held->fds[i]) : fcntl(held->fds[i], F_DUPFD_CLOEXEC, 0);
	}
	frozen->n = held->n;
}

/* Gives the GPUs of a daemon that is not filled yet a disk for files that leave. */
static inline void daemon_disk(struct fs *fs, uint64_t bytes)
{
	ck_assert_int_eq(disk_dir_open(fs->backend, "/tmp"), 0);
	fs->budgets[PLACE_DISK].size = bytes;
	for (unsigned i = 0; i < fs->backend->n_devices; i++)
		ck_assert_int_eq(
		    volume_open_place(&fs->volumes[i], PLACE_DISK, &fs->budgets[PLACE_DISK]), 0);
}

/* Starts a daemon with the held descriptors. */
static inline int daemon_up(struct fs *fs, const struct fdstore_ops *fdstore, enum fs_mount mount)
{
	char *argv[] = {"gpumemfs", "/tmp",
			"-o",	    "backend=host,host_gpus=2,host_size=64M,spill=host:48M",
			"-o",	    "log_level=error",
			NULL};

	memset(fs, 0, sizeof(*fs));
	ck_assert_int_eq(options_parse(6, argv, &fs->options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fs->can.max_write = 65536;
	fs->fdstore_ops = fdstore;
	fs->mount = mount;
	/* The thread's worker belongs to another daemon. */
	worker_end();
	int rc = fs_prepare(fs);

	if (rc == 0) {
		daemon_disk(fs, 32ULL << 20);
		rc = fs_fill(fs);
	}
	if (rc)
		options_free(&fs->options);
	return rc;
}

static inline void daemon_down(struct fs *fs)
{
	worker_end();
	fs_close(fs);
	options_free(&fs->options);
}

/* The next functions describe the state of a tree as text, as far as the state can be seen from
 * outside. */
static inline uint64_t content_hash(struct fs *fs, struct inode *inode)
{
	static char buffer[1 << 20];
	struct inode_call call;
	uint64_t hash = 0, at = 0;
	ssize_t n;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	while ((n = file_read(inode->file, &call.call, buffer, sizeof(buffer), at)) > 0) {
		hash = XXH3_64bits_withSeed(buffer, (size_t)n, hash);
		at += (uint64_t)n;
	}
	ck_assert_int_eq(n, 0);
	return hash;
}

/* A stopped operation may or may not have set times. */
enum describe { DESCRIBE_ALL, DESCRIBE_TIMELESS };

static inline void describe_times(const struct stat *st, FILE *out)
{
	fprintf(out, " a%ld.%ld m%ld.%ld c%ld.%ld", st->st_atim.tv_sec, st->st_atim.tv_nsec,
		st->st_mtim.tv_sec, st->st_mtim.tv_nsec, st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

/* Where the file has memory that other processes may have. */
static inline void describe_handed_out(struct file *file, FILE *out)
{
	EXTENTS_FOREACH (extent, &file->extents)
		if (atomic_load(&extent->span.chunk->handed_out) != CHUNK_KEPT)
			fprintf(out, "   handed out: %lx\n", extent->offset);
}

static inline void describe_inode(struct fs *fs, struct inode *inode, enum describe how, FILE *out)
{
	const struct xattr *xattr = NULL;
	struct attr_values attrs = inode->attrs;
	struct xattr_entry entry;
	struct stat st;

	inode_stat(inode, &st);
	fprintf(out, " %lx %o %u:%u links %lu size %ld blocks %ld b%ld", st.st_ino, st.st_mode,
		st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_blocks, inode->btime);
	if (how == DESCRIBE_ALL)
		describe_times(&st, out);
	fprintf(out, " %s home %lx paid %lu away %u+%u%s opens %u/%u holds %u",
		inode->volume ? inode->volume->name : "-",
		inode->quota_dir ? inode->quota_dir->ino : 0, inode->charges.bytes,
		inode->charges.placed[PLACE_HOST], inode->charges.placed[PLACE_DISK],
		inode->charges.counted ? " counted" : "", inode->uses.opens, inode->uses.writers,
		inode->uses.leases);
	for (int id = 0; id < ATTR_VALUES; id++)
		fprintf(out, " %s",
			attrs.set >> id & 1 ? attributes_text((enum attr_id)id, &attrs) : "-");
	while ((xattr = xattr_next(inode->xattrs, xattr, &entry)))
		fprintf(out, " %s=%.*s", entry.name, (int)entry.size, (const char *)entry.value);
	if (S_ISLNK(inode->mode))
		fprintf(out, " -> %s", inode->target);
	if (S_ISCHR(inode->mode) || S_ISBLK(inode->mode))
		fprintf(out, " device %lx", (unsigned long)inode->rdev);
	if (S_ISDIR(inode->mode))
		fprintf(out, " next %lu quotas %lu %lu sums %ld %ld subdirs %u%s",
			inode->dir->next_cookie, inode->dir->max_bytes, inode->dir->max_files,
			inode->dir->rbytes, inode->dir->rfiles, inode->dir->n_subdirs,
			inode->dir->removed ? " removed" : "");
	fputc('\n', out);
	if (S_ISREG(inode->mode)) {
		fprintf(out, "   content %lx\n", content_hash(fs, inode));
		file_describe(inode->file, out);
		describe_handed_out(inode->file, out);
	}
}

static inline void describe_names(struct fs *fs, struct inode *dir, const char *path,
				  enum describe how, FILE *out)
{
	struct dentry *entry;

	for (uint64_t cookie = DIR_COOKIE_END; (entry = dir_before(dir->dir, cookie));
	     cookie = entry->cookie) {
		char *below;

		ck_assert_int_gt(asprintf(&below, "%s/%s", path, entry->name), 0);
		fprintf(out, "%s #%lu", below, entry->cookie);
		describe_inode(fs, entry->inode, how, out);
		if (S_ISDIR(entry->inode->mode))
			describe_names(fs, entry->inode, below, how, out);
		free(below);
	}
}

static inline char *describe(struct fs *fs, enum describe how)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	uint32_t slot = 0;
	struct volume_usage usage;
	struct inode *inode;

	fputs("/", out);
	describe_inode(fs, fs->root, how, out);
	describe_names(fs, fs->root, "", how, out);
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		if (!inode->links && inode != fs->root) {
			fputs("nameless", out);
			describe_inode(fs, inode, how, out);
		}
		inode_put(fs, inode, 1);
	}
	fprintf(out, "metadata %ld inodes %lu dying %ld\n", ledger_of(fs)->metadata_bytes,
		inode_table_count(fs->inodes), fs->inodes->n_unlinked_open);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].pool)
			fprintf(out, "gpu%u %lu\n", i, pool_usage(fs->volumes[i].pool).span_bytes);
		else if (how == DESCRIBE_ALL && volume_usage(&fs->volumes[i], &usage) == 0)
			fprintf(out, "host %lu of %lu\n", usage.held, usage.total);
	fclose(out);
	return text;
}

/* Prints only the first differing line to why. */
static inline bool same_text(const char *one, const char *other, FILE *why)
{
	size_t at = 0, line = 0;

	if (strcmp(one, other) == 0)
		return true;
	for (; one[at] == other[at]; at++)
		if (one[at] == '\n')
			line = at + 1;
	if (why)
		fprintf(why, "- %.*s\n+ %.*s\n", (int)strcspn(one + line, "\n"), one + line,
			(int)strcspn(other + line, "\n"), other + line);
	return false;
}

#endif
