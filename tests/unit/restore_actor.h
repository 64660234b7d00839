/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Random operations on a tree. Each operation acts like a request of the kernel: an inode in an
 * answer counts as looked up, and an open file counts as open. */
#ifndef TESTS_UNIT_RESTORE_ACTOR_H
#define TESTS_UNIT_RESTORE_ACTOR_H

#include <sys/xattr.h>

#include "fs/attributes/inode_attributes.h"
#include "fs/file/export.h"
#include "fs/holders/inode_lease.h"
#include "fs/tree/record.h"
#include "tests/unit/journal_fixture.h"
#include "tests/unit/unit.h"

#define HANDLES 6
#define NAMES	8
#define MIB	(1ULL << 20)

/* The first nine acts change names and attributes, each in a single step; the last three also
 * change memory and open files. */
enum { ACTS_OF_ONE_STEP = 9, ACTS = 12 };

struct actor {
	uint64_t random;
	struct inode *open[HANDLES]; /* all looked up and open for writing */
	struct inode *leased;
};

static inline uint64_t pick(struct actor *actor, uint64_t below)
{
	return unit_random(&actor->random) % below;
}

/* Does the same as op_open and op_release. */
static inline void handle_open(struct inode *inode)
{
	pthread_mutex_lock(&inode->lock);
	inode->uses.opens++;
	inode->uses.writers++;
	inode_may_drop(&fixture, inode);
	record_open(&fixture, inode, JOURNAL_COMPLETED_OPEN);
	pthread_mutex_unlock(&inode->lock);
}

static inline void handle_close(struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	pthread_mutex_lock(&inode->lock);
	inode->uses.opens--;
	inode->uses.writers--;
	bool drop = inode_may_drop(&fixture, inode);

	record_open(&fixture, inode, JOURNAL_COMPLETED_CLOSE);
	pthread_mutex_unlock(&inode->lock);
	if (drop)
		inode_drop_data(&fixture, inode);
	else if (inode->uses.writers == 0)
		file_trim(inode->file, &call.call);
}

static inline void actor_put(struct actor *actor, unsigned n)
{
	struct inode *inode = actor->open[n];

	if (!inode)
		return;
	actor->open[n] = NULL;
	handle_close(inode);
	inode_forget(&fixture, inode, 1);
}

/* Takes over the reference. */
static inline void actor_keep(struct actor *actor, struct inode *inode)
{
	unsigned n = (unsigned)pick(actor, HANDLES);

	actor_put(actor, n);
	inode_looked_up(inode);
	handle_open(inode);
	actor->open[n] = inode;
}

/* Returns a random directory with a reference. */
static inline struct inode *some_dir(struct actor *actor)
{
	unsigned volume = (unsigned)pick(actor, fixture.n_volumes);
	struct inode *dir = inode_find(&fixture, fixture.volumes[volume].root_ino);
	char name[16];

	inode_ref(dir);
	for (unsigned depth = (unsigned)pick(actor, 4); depth; depth--) {
		struct inode *below;

		snprintf(name, sizeof(name), "n%u", (unsigned)pick(actor, NAMES));
		if (tree_lookup(&fixture, dir, name, &below))
			break;
		if (!S_ISDIR(below->mode)) {
			inode_put(&fixture, below, 1);
			break;
		}
		inode_put(&fixture, dir, 1);
		dir = below;
	}
	return dir;
}

static inline void act_create(struct actor *actor, struct inode *dir, const char *name,
			      unsigned acts)
{
	static const mode_t modes[] = {S_IFREG | 0640,	S_IFREG | 02755, S_IFDIR | 0755,
				       S_IFDIR | 02770, S_IFLNK | 0777,	 S_IFIFO | 0600};
	static const mode_t specials[] = {S_IFIFO | 0600, S_IFCHR | 0600, S_IFBLK | 0660};
	struct tree_new what = {.mode = modes[pick(actor, 6)],
				.uid = (uid_t)pick(actor, 3),
				.gid = (gid_t)pick(actor, 3),
				.target = "some/where",
				.rdev = MADE_RDEV};
	struct inode *inode;
	int error;

	if (S_ISFIFO(what.mode))
		what.mode = specials[what.uid];
	if (acts == ACTS && pick(actor, 5) == 0) {
		what.mode = S_IFREG | 0600;
		error = tree_tmpfile(&fixture, dir, &what, &inode);
	} else {
		error = tree_create(&fixture, dir, name, &what, &inode);
	}
	if (error)
		return;
	if (acts == ACTS && S_ISREG(inode->mode) && (pick(actor, 2) || !inode->nlink))
		actor_keep(actor, inode);
	else
		inode_put(&fixture, inode, 1);
}

static inline void act_rename(struct actor *actor, struct inode *dir, const char *name)
{
	static const unsigned flags[] = {0, RENAME_WHITEOUT, RENAME_NOREPLACE, RENAME_EXCHANGE};
	struct inode *to = some_dir(actor);
	char new_name[16];

	snprintf(new_name, sizeof(new_name), "n%u", (unsigned)pick(actor, NAMES));
	rename_to(dir, name, to, new_name, flags[pick(actor, 4)]);
	inode_put(&fixture, to, 1);
}

static inline void act_link(struct actor *actor, struct inode *dir, const char *name)
{
	struct inode *inode = actor->open[pick(actor, HANDLES)];

	/* The kernel never links a file again after the file's last name was removed. */
	if (inode && inode->charges.counted && tree_link(&fixture, inode, dir, name) == 0)
		inode_put(&fixture, inode, 1);
}

static inline uint64_t some_size(struct actor *actor)
{
	static const uint64_t most[] = {5000, 100000, 3 * MIB, 9 * MIB};

	return pick(actor, most[pick(actor, 4)]);
}

/* As the thread of fs/tier/compact.c, with all chunks that have room. */
static inline void act_compact(struct actor *actor, struct inode *inode, struct file_call *call)
{
	struct pool *pool =
	    volume_pool(file_volume(inode->file), (enum memory_place)pick(actor, PLACES));
	uint64_t moved;

	if (!pool)
		return;
	pool_drain(pool, 0);
	file_compact(inode->file, call, &moved);
	pool_drain_end(pool);
}

static inline void act_bytes(struct actor *actor, struct inode *inode)
{
	static char data[4 * MIB];
	struct inode *other = actor->open[pick(actor, HANDLES)];
	uint64_t offset = some_size(actor), bytes = some_size(actor) % sizeof(data) + 1;
	struct inode_call call;
	uint64_t moved;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	switch (pick(actor, 9)) {
	case 0:
	case 1:
		memset(data, (int)pick(actor, 100), bytes);
		file_write(inode->file, &call.call, data, bytes, offset);
		break;
	case 2:
		file_truncate(inode->file, &call.call, offset);
		break;
	case 3:
		file_allocate(inode->file, &call.call, pick(actor, 2) ? FALLOC_FL_KEEP_SIZE : 0,
			      offset, bytes);
		break;
	case 4:
		file_allocate(inode->file, &call.call, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      offset, bytes);
		break;
	case 5:
		if (other)
			file_copy(other->file, some_size(actor), inode->file, &call.call, offset,
				  bytes);
		break;
	case 6:
		file_place(inode->file, &call.call, (enum memory_place)pick(actor, PLACES), bytes,
			   &moved);
		break;
	case 7:
		act_compact(actor, inode, &call.call);
		break;
	default:
		file_trim(inode->file, &call.call);
	}
	inode_touch_write(inode);
}

/* Hands out the first chunks of a leased file. */
static inline void act_export(struct inode *inode)
{
	struct file_chunk chunks[4];
	struct file_place place;
	int n = file_export(inode->file, fixture.journal, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0,
			    chunks, 4, &place);

	ck_assert_int_ge(n, 0);
	file_chunks_close(chunks, (uint32_t)n);
}

static inline void act_lease(struct actor *actor, struct inode *inode)
{
	struct inode_call call;

	if (actor->leased) {
		file_unlease(actor->leased->file, 1);
		inode_lease_put(&fixture, actor->leased, 1);
		inode_put(&fixture, actor->leased, 1);
		actor->leased = NULL;
		return;
	}
	/* At the end of a trial, the test thread gives up leases and would empty an object that the
	 * frozen state shares with this daemon. */
	if (inode->volume->system || inode_lease_get(&fixture, inode))
		return;
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	if (file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT)) {
		inode_lease_put(&fixture, inode, 1);
		return;
	}
	act_export(inode);
	inode_ref(inode);
	actor->leased = inode;
}

static inline void act_attribute(struct actor *actor, struct inode *inode)
{
	static const char *const sizes[] = {"auto", "4K", "64K", "2M"};
	static const char *const places[] = {"gpu", "host"};
	const char *size = sizes[pick(actor, 4)], *place = places[pick(actor, 2)];
	const char *quota = pick(actor, 2) ? "20M" : "none";
	struct tree_attrs attrs = {.mask = (unsigned)pick(actor, 32),
				   .mode = (mode_t)pick(actor, 01000),
				   .uid = (uid_t)pick(actor, 9),
				   .gid = (gid_t)pick(actor, 9),
				   .atime = (int64_t)pick(actor, 1000000),
				   .mtime = (int64_t)pick(actor, 1000000)};
	struct copier *copier = worker_copier(&fixture);

	switch (pick(actor, 5)) {
	case 0:
		tree_set_attrs(&fixture, inode, &attrs);
		break;
	case 1:
		inode_attr_set(&fixture, copier, inode, ATTR_PAGE_SIZE, size, strlen(size), 0);
		break;
	case 2:
		inode_attr_remove(&fixture, copier, inode, ATTR_PAGE_SIZE, 0);
		break;
	case 3:
		inode_attr_set(&fixture, copier, inode, ATTR_RESIDENT, place, strlen(place), 0);
		break;
	default:
		if (S_ISDIR(inode->mode))
			inode_attr_set(&fixture, copier, inode, ATTR_QUOTA_BYTES, quota,
				       strlen(quota), 0);
	}
}

static inline void act(struct actor *actor, unsigned acts)
{
	struct inode *dir = some_dir(actor), *inode = actor->open[pick(actor, HANDLES)];
	char name[16];

	snprintf(name, sizeof(name), "n%u", (unsigned)pick(actor, NAMES));
	switch (pick(actor, acts)) {
	case 0:
	case 1:
	case 2:
		act_create(actor, dir, name, acts);
		break;
	case 3:
		tree_unlink(&fixture, dir, name);
		break;
	case 4:
		tree_rmdir(&fixture, dir, name);
		break;
	case 5:
	case 6:
		act_rename(actor, dir, name);
		break;
	case 7:
		act_link(actor, dir, name);
		break;
	case 9:
		actor_put(actor, (unsigned)pick(actor, HANDLES));
		break;
	case 8:
		act_attribute(actor, inode && pick(actor, 2) ? inode : dir);
		break;
	case 10:
		if (inode)
			act_lease(actor, inode);
		break;
	default:
		if (inode)
			act_bytes(actor, inode);
	}
	inode_put(&fixture, dir, 1);
}

static inline void actor_end(struct actor *actor)
{
	for (unsigned n = 0; n < HANDLES; n++)
		actor_put(actor, n);
	if (actor->leased)
		act_lease(actor, NULL);
}

#endif
