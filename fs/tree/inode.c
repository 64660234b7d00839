/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/tsan.h"
#include "fs/core/file_time.h"
#include "fs/core/fs.h"
#include "fs/core/mode.h"
#include "fs/core/worker.h"
#include "fs/file/export.h"
#include "fs/file/file.h"
#include "fs/object/object.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_state.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/inode_unseen.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/xattr.h"

/* The longest tick of a kernel: 100 a second. */
#define TICK_MAX (CLOCK_SECOND / 100)

#define A_DAY (24 * 3600 * CLOCK_SECOND)

int64_t time_now(void)
{
	return clock_ns_of(CLOCK_REALTIME);
}

int64_t time_now_coarse(void)
{
	return clock_ns_of(CLOCK_REALTIME_COARSE);
}

static void time_set(_Atomic int64_t *time, int64_t now)
{
	if (atomic_load_explicit(time, memory_order_relaxed) != now)
		atomic_store_explicit(time, now, memory_order_relaxed);
}

void inode_touch_read(struct inode *inode)
{
	int64_t now = time_now_coarse();
	int64_t atime = atomic_load_explicit(&inode->fields->atime, memory_order_relaxed);

	if (atime <= atomic_load_explicit(&inode->fields->mtime, memory_order_relaxed) ||
	    atime <= atomic_load_explicit(&inode->fields->ctime, memory_order_relaxed) ||
	    now - atime >= A_DAY)
		time_set(&inode->fields->atime, now);
}

static bool inode_in_host(const struct inode *inode)
{
	const struct volume *volume = inode->volume;

	return S_ISREG(inode->mode) && volume && volume->system;
}

/* The kernel writes to the object of a host/ file without the daemon, and only the object's mtime
 * shows such a write. So remember the object's mtime whenever inode->mtime is set: a different
 * object mtime later is newer. lock is held. */
static void object_mtime_note(struct inode *inode)
{
	if (inode_in_host(inode))
		inode->fields->object_mtime = file_written(inode->file);
}

/* written: the object's mtime now. lock is held. */
static void mtime_update(struct inode *inode, int64_t written)
{
	if (!inode_in_host(inode) || inode->moving || written == inode->fields->object_mtime)
		return;
	inode->fields->object_mtime = written;
	time_set(&inode->fields->mtime, written);
	if (atomic_load_explicit(&inode->fields->ctime, memory_order_relaxed) < written)
		time_set(&inode->fields->ctime, written);
}

void inode_update_mtime(struct inode *inode)
{
	if (inode_in_host(inode))
		mtime_update(inode, file_written(inode->file));
}

void inode_set_mtime(struct inode *inode, int64_t mtime)
{
	object_mtime_note(inode);
	time_set(&inode->fields->mtime, mtime);
}

void inode_move_begin(struct inode *inode)
{
	scoped_lock(&inode->lock);
	inode_update_mtime(inode);
	inode->moving++;
}

void inode_move_end(struct inode *inode)
{
	scoped_lock(&inode->lock);
	inode->moving--;
	object_mtime_note(inode);
}

/* The kernel's tick, which the data path can afford, or a little later. A write in the same tick as
 * the write before gets a time of its own if a program has seen the earlier time: the program must
 * be able to tell that the file has changed. */
static int64_t write_time(struct inode *inode)
{
	int64_t now = time_now_coarse();
	int64_t mtime = atomic_load_explicit(&inode->fields->mtime, memory_order_relaxed);

	if (now > mtime || mtime - now >= TICK_MAX)
		return now;
	if (!atomic_load(&inode->times_seen))
		return mtime;
	atomic_store(&inode->times_seen, false);
	return time_now();
}

void inode_touch_write(struct inode *inode)
{
	int64_t now = write_time(inode);

	if (inode_in_host(inode)) {
		scoped_lock(&inode->lock);
		object_mtime_note(inode);
	}
	time_set(&inode->fields->mtime, now);
	time_set(&inode->fields->ctime, now);
}

void inode_touch_change(struct inode *inode)
{
	time_set(&inode->fields->ctime, time_now());
}

/* Zeroed memory for an inode; a file follows directly behind the inode, because two allocations
 * would cost more, and then the fields, if no journal has them. */
static struct inode *inode_memory(const struct fs *fs, mode_t mode)
{
	size_t bytes = sizeof(struct inode) + (S_ISREG(mode) ? file_struct_bytes() : 0);
	struct inode *inode =
	    calloc(1, bytes + (fs->inodes->journal ? 0 : sizeof(struct inode_fields)));

	if (inode && !fs->inodes->journal)
		inode->fields = (struct inode_fields *)((char *)inode + bytes);
	return inode;
}

static struct file *inode_inline_file(struct inode *inode)
{
	return (struct file *)(inode + 1);
}

/* Makes the directory or file that the type needs. */
static int inode_new_content(struct inode *inode, mode_t mode)
{
	if (S_ISDIR(mode)) {
		inode->dir = dir_new();
		return inode->dir ? 0 : -ENOMEM;
	}
	if (S_ISREG(mode))
		inode->file = file_make(inode + 1, inode->volume);
	return 0;
}

static void inode_file_free(struct inode *inode, const struct file_call *call)
{
	if (inode->file == inode_inline_file(inode))
		file_end(inode->file, call);
	else
		file_free(inode->file, call);
}

uint32_t inode_count_metadata(const struct inode *inode)
{
	uint32_t bytes = METADATA_INODE + xattrs_metadata(inode->xattrs);

	if (S_ISLNK(inode->mode) && inode->target)
		bytes += (uint32_t)strlen(inode->target) * METADATA_COPIES;
	if (!S_ISDIR(inode->mode) && inode->nlink > 1)
		bytes += (inode->nlink - 1) * METADATA_NAME;
	return bytes;
}

void inode_count_file(const struct inode *inode, int files)
{
	if (inode->volume && S_ISREG(inode->mode))
		atomic_fetch_add_explicit(&inode->volume->files, files, memory_order_relaxed);
}

int inode_new(struct fs *fs, struct volume *volume, mode_t mode, uid_t uid, gid_t gid,
	      struct inode **inode)
{
	struct inode *new = inode_memory(fs, mode);
	struct inode_fields first = {0}; /* until the table has the inode */

	if (!new)
		return -ENOMEM;
	new->volume = volume;
	new->mode = mode;
	new->uid = uid;
	new->gid = gid;
	new->refs = 1;
	if (!new->fields)
		new->fields = &first;
	new->btime = time_now();
	new->fields->atime = new->fields->mtime = new->fields->ctime = new->btime;
	pthread_mutex_init(&new->lock, NULL);

	int error = owner_take_metadata(fs, new, METADATA_INODE, OWNER_WITHIN_LIMITS);

	if (error)
		goto free_inode;
	error = inode_new_content(new, mode);
	if (error)
		goto give;
	/* The first inode is the root, which has a fixed number. */
	error =
	    fs->root ? inode_table_add(fs->inodes, new) : inode_table_add_first(fs->inodes, new);
	if (error)
		goto free_content;
	inode_count_file(new, 1);
	*inode = new;
	return 0;

free_content:
	if (S_ISDIR(mode))
		dir_free(new->dir);
	else if (S_ISREG(mode))
		inode_file_free(new, &(struct file_call){0});
give:
	owner_give_metadata(fs, new, METADATA_INODE);
free_inode:
	pthread_mutex_destroy(&new->lock);
	free(new);
	return error;
}

struct inode *inode_restore_new(uint64_t ino)
{
	struct inode *new = calloc(1, sizeof(*new) + sizeof(struct inode_fields));

	if (!new)
		return NULL;
	new->ino = ino;
	new->fields = (struct inode_fields *)(new + 1);
	pthread_mutex_init(&new->lock, NULL);
	return new;
}

int inode_restore_type(struct inode *inode, struct volume *volume, mode_t mode)
{
	if (inode->mode && (inode->mode & S_IFMT) != (mode & S_IFMT))
		return -EUCLEAN;
	if (!inode->mode) {
		inode->volume = volume;
		/* The memory behind this inode was sized before the type was known, so the file
		 * gets its own allocation. */
		int rc =
		    S_ISREG(mode) ? file_new(volume, &inode->file) : inode_new_content(inode, mode);

		if (rc)
			return rc;
		if (S_ISREG(mode)) {
			file_set_fields(inode->file, &((struct journal_slot *)inode->fields)->file);
			file_set_was_leased(inode->file);
			if (file_is_paged(inode->file))
				atomic_store(&inode->unseen.pages, INODE_PAGES_ALL);
		}
	}
	if (!S_ISREG(mode))
		inode->volume = volume;
	inode->mode = mode;
	return 0;
}

void inode_restore_free(struct inode *inode)
{
	if (S_ISDIR(inode->mode))
		dir_free(inode->dir);
	else if (S_ISREG(inode->mode))
		file_restore_free(inode->file);
	else if (S_ISLNK(inode->mode))
		free(inode->target);
	xattr_free(inode->xattrs);
	pthread_mutex_destroy(&inode->lock);
	free(inode);
}

struct inode *inode_find(struct fs *fs, uint64_t ino)
{
	return inode_table_find(fs->inodes, ino);
}

void inode_uncount_held(struct inode *inode)
{
	if (inode->charges.counted)
		quota_force(inode->quota_dir, 0, -1);
	inode->charges.counted = false;
}

static void inode_uncount(struct fs *fs, struct inode *inode)
{
	brlock_token token = brlock_read_lock(&fs->topology);

	inode_uncount_held(inode);
	brlock_read_unlock(&fs->topology, token);
}

static void inode_count_unlinked_open(struct fs *fs, struct inode *inode, bool unlinked_open)
{
	if (inode->uses.unlinked_open == unlinked_open)
		return;
	inode->uses.unlinked_open = unlinked_open;
	atomic_fetch_add(&fs->inodes->n_unlinked_open, unlinked_open ? 1 : -1);
}

/* Frees the inode. Returns how many references the inode held to *ancestor, a directory; the caller
 * puts these references. */
static uint64_t inode_free(struct fs *fs, struct inode *inode, struct inode **ancestor)
{
	struct inode *quota_dir = inode->quota_dir, *parent = NULL;
	mode_t mode = inode->mode;
	struct inode_call call;

	/* The next inode that gets this slot overwrites the counters. */
	tsan_acquire(inode);
	if (S_ISREG(mode)) {
		inode_call_init(&call, fs, inode, worker_copier(fs));
		file_hold(inode->file, &call.call);
	}
	/* Record first: afterwards another inode can get the number, and another file the
	 * memory. */
	record_gone(fs, inode);
	inode_notify_freed(fs, inode);
	inode_table_remove(fs->inodes, inode);
	inode_count_unlinked_open(fs, inode, false);
	inode_count_file(inode, -1);
	if (S_ISREG(mode)) {
		inode_file_free(inode, &call.call);
	} else if (S_ISDIR(mode)) {
		parent = inode->dir->parent;
		dir_free(inode->dir);
	} else if (S_ISLNK(mode)) {
		free(inode->target);
	}
	if (quota_dir)
		inode_uncount(fs, inode);
	owner_give_metadata(fs, inode, inode->charges.metadata);
	xattr_free(inode->xattrs);
	pthread_mutex_destroy(&inode->lock);
	free(inode);
	/* For a directory below the top level, quota_dir and parent are the same directory; a
	 * top-level directory has no quota_dir. */
	*ancestor = quota_dir ? quota_dir : parent;
	return (quota_dir != NULL) + (parent != NULL);
}

void inode_call_init(struct inode_call *call, struct fs *fs, struct inode *inode,
		     struct copier *copier)
{
	*call = (struct inode_call){
	    .call = {.copier = copier,
		     .attrs = atomic_load_explicit(&inode->attrs, memory_order_relaxed),
		     .charge = quota_charge,
		     .charge_place = quota_charge_place,
		     .count_object = quota_object,
		     .find_limits = quota_limits,
		     .make_room = fs->make_room,
		     .holds = file_holds_of(fs),
		     .quota_owner = call,
		     .journal = fs->journal,
		     .ino = inode->ino},
	    .fs = fs,
	    .inode = inode,
	};
}

void inode_link_add(struct inode *inode, struct dentry *entry, struct inode *parent)
{
	entry->parent = parent;
	entry->next_link = inode->links;
	inode->links = entry;
}

void inode_link_remove(struct inode *inode, struct dentry *entry)
{
	struct dentry **link = &inode->links;

	while (*link != entry)
		link = &(*link)->next_link;
	*link = entry->next_link;
}

bool inode_may_drop(struct fs *fs, struct inode *inode)
{
	bool nameless = S_ISREG(inode->mode) && inode->nlink == 0;
	bool drop = nameless && !inode->uses.opens && !inode->uses.leases &&
		    !inode->uses.keep_data && !inode->uses.data_freed;

	if (drop)
		inode->uses.data_freed = true;
	inode_count_unlinked_open(fs, inode, nameless && !inode->uses.data_freed);
	inode_state_check(inode);
	return drop;
}

void inode_drop_data(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	file_truncate(inode->file, &call.call, 0);
	file_trim(inode->file, &call.call);
}

void inode_put(struct fs *fs, struct inode *inode, uint64_t n)
{
	/* A loop, not recursion: the freed inode may hold the last reference to its directory, and
	 * users choose the depth. */
	while (n && atomic_fetch_sub(&inode->refs, n) == n)
		n = inode_free(fs, inode, &inode);
}

void inode_looked_up(struct inode *inode)
{
	/* Release order: all changes through this lookup happen before the inode is freed. */
	atomic_fetch_add_explicit(&inode->fields->lookups, 1, memory_order_release);
}

void inode_forget(struct fs *fs, struct inode *inode, uint64_t n)
{
	uint64_t lookups = atomic_load(&inode->fields->lookups), fewer;

	/* Never subtract more lookups than the kernel holds: other references belong to the
	 * daemon. */
	do {
		fewer = n < lookups ? n : lookups;
	} while (!atomic_compare_exchange_weak(&inode->fields->lookups, &lookups, lookups - fewer));
	inode_put(fs, inode, fewer);
}

/* Programs take st_blksize for the size of their buffers: cat and cmp then send requests of the
 * largest size. And programs with O_DIRECT take it for the alignment, which is a page: llama.cpp,
 * with 64 KiB or more, waits for ever for an upload. */
#define BUFFERED_BLOCK (1 << 20)
#define DIRECT_BLOCK   4096

void inode_stat(struct inode *inode, struct stat *st)
{
	scoped_lock(&inode->lock);
	struct object_stat found =
	    S_ISREG(inode->mode) ? file_stat(inode->file) : (struct object_stat){0};

	mtime_update(inode, (int64_t)found.mtime);
	if (atomic_load(&inode->unseen.leases))
		inode_unseen_touch(inode);
	if (!atomic_load(&inode->times_seen))
		atomic_store(&inode->times_seen, true);
	*st = (struct stat){
	    .st_ino = inode->ino,
	    .st_mode = inode->mode,
	    .st_nlink = inode->nlink,
	    .st_uid = inode->uid,
	    .st_gid = inode->gid,
	    .st_blksize = inode->uses.direct_io ? DIRECT_BLOCK : BUFFERED_BLOCK,
	    .st_atim = file_time_to_spec(inode->fields->atime),
	    .st_mtim = file_time_to_spec(inode->fields->mtime),
	    .st_ctim = file_time_to_spec(inode->fields->ctime),
	};
	if (S_ISREG(st->st_mode)) {
		st->st_size = (off_t)found.size;
		st->st_blocks = (blkcnt_t)(found.allocated / 512);
		inode_unseen_count_block(inode, st);
	} else if (S_ISLNK(st->st_mode)) {
		st->st_size = (off_t)strlen(inode->target);
	} else if (S_ISDIR(st->st_mode)) {
		st->st_size = inode->dir->n_names;
	} else if (mode_is_device(st->st_mode)) {
		st->st_rdev = inode->rdev;
	}
}

static struct statx_timestamp statx_time(struct timespec time)
{
	return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (uint32_t)time.tv_nsec};
}

struct statx inode_statx(const struct stat *st, struct timespec btime)
{
	return (struct statx){
	    .stx_mask = STATX_BASIC_STATS | STATX_BTIME,
	    .stx_blksize = (uint32_t)st->st_blksize,
	    .stx_nlink = (uint32_t)st->st_nlink,
	    .stx_uid = st->st_uid,
	    .stx_gid = st->st_gid,
	    .stx_mode = (uint16_t)st->st_mode,
	    .stx_ino = st->st_ino,
	    .stx_size = (uint64_t)st->st_size,
	    .stx_blocks = (uint64_t)st->st_blocks,
	    .stx_atime = statx_time(st->st_atim),
	    .stx_mtime = statx_time(st->st_mtim),
	    .stx_ctime = statx_time(st->st_ctim),
	    .stx_btime = statx_time(btime),
	    .stx_rdev_major = major(st->st_rdev),
	    .stx_rdev_minor = minor(st->st_rdev),
	};
}
