/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The context of the daemon: pointers to all parts, passed down to all functions. */
#ifndef FS_CORE_FS_H
#define FS_CORE_FS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/pool.h"
#include "common/brlock.h"
#include "common/cacheline.h"
#include "fs/core/capability.h"
#include "fs/core/limits.h"
#include "fs/core/part.h"
#include "fs/core/stats.h"
#include "fs/core/timeline.h"
#include "fs/options/options.h"

struct fdstore;
struct fdstore_ops;
struct file;
struct inode;
struct inode_table;
struct inode_hooks;
struct journal;
struct volume;

/* FS_MOUNT_KEPT: an earlier daemon served this mount, and the kernel still has open files and
 * lookups of inodes. FS_MOUNT_NEW: the kernel has no open files or lookups. */
enum fs_mount { FS_MOUNT_NEW, FS_MOUNT_KEPT };

/* Bits of fs->observers: an open .gpumem/accesslog, the trace, and, for a single request, the
 * sample of latencies. See trace/observe.h. */
enum { OBSERVE_ACCESS = 1, OBSERVE_TRACE = 2, OBSERVE_LATENCY = 4 };

/* The parts of a daemon. Each pointer belongs to the folder that declares the struct. fs_prepare
 * and fs_fill open the parts in the order of one table, and fs_close closes the parts in reverse.
 */
struct fs {
	struct options options;
	const struct fs_part *parts; /* ends with a part without a name */
	struct backend *backend;
	struct volume *volumes; /* GPUs in order, host/ last */
	unsigned n_volumes;
	struct pool_budget
	    budgets[PLACES]; /* of the places for files that left GPUs, not of GPUs */
	/* file_call.make_room for the files of this daemon: belongs to tiers. */
	bool (*make_room)(void *inode_call, const struct volume *volume, enum memory_place place,
			  enum place_short shortage, uint64_t bytes, const struct file *keep);
	struct inode_table *inodes;
	/* Set before fs_open: keeps descriptors for a later daemon, and may have the journal of an
	 * earlier daemon. NULL: there is no keeper and no journal. */
	const struct fdstore_ops *fdstore_ops;
	enum fs_mount mount;
	struct journal *journal; /* NULL: no journal */
	struct inode *root;
	/* Shared: a thread walks the chain of parents; exclusive: a thread changes the chain. */
	struct brlock topology;
	struct stats stats;
	atomic_uint observers; /* OBSERVE_* */
	struct capabilities can;
	struct fdstore *fdstore; /* the connection to the keeper; NULL: no keeper */
	struct timespec started; /* CLOCK_REALTIME */
	struct timeline timeline;
	void *states[FS_SLOTS]; /* of parts: each has its type in FS_STATE */
	const struct inode_hooks *inode_hooks[INODE_HOOKS_MAX + 1]; /* of parts; NULL at the end */
};

/* Defines accessor(fs), which gives the state of a part: NULL before the part is opened, and if the
 * mount does not have the part. */
#define FS_STATE(type, accessor, slot)                                                             \
	type *accessor(const struct fs *fs)                                                        \
	{                                                                                          \
		return fs->states[slot];                                                           \
	}

/* Opens backend and volumes and creates the tree: 0, or -errno after a line in the log. The fs owns
 * fs->options from then on. */
int fs_open(struct fs *fs);
/* The two halves of fs_open: fs_prepare does everything that is possible while another daemon still
 * serves the files, and fs_fill does the rest. After an error of either half everything is closed
 * again. */
int fs_prepare(struct fs *fs);
int fs_fill(struct fs *fs);
/* Closes after fs_prepare without fs_fill. */
void fs_unprepare(struct fs *fs);
/* Frees all memory. No request may be in progress. */
void fs_close(struct fs *fs);

#endif
