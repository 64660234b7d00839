/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the daemon has: one of these, passed down. */
#ifndef FS_CORE_FS_H
#define FS_CORE_FS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "backend/backend.h"
#include "common/brlock.h"
#include "common/cacheline.h"
#include "fs/core/capability.h"
#include "fs/core/options.h"
#include "fs/core/stats.h"
#include "fs/core/timeline.h"

struct access_file;
struct access_log;
struct calibration;
struct fdstore;
struct fdstore_ops;
struct host_outs;
struct idle_release;
struct inode;
struct inode_table;
struct inode_watch;
struct journal;
struct lease_list;
struct session;
struct settings;
struct share;
struct snapshots;
struct spool;
struct trace;
struct unclaimed_leases;
struct user_limits;
struct volume;

/* Whether the mount is the one that the last daemon served, with the kernel's open files and
 * lookups, or another one, which has none. */
enum fs_mount { FS_MOUNT_NEW, FS_MOUNT_KEPT };

/* Threads that poll for a request instead of sleeping: at most so many, and so many now. */
struct busy_poll {
	unsigned most;
	atomic_uint now;
};

/* Bits of fs->observers: an open .gpumem/accesslog, the trace, and, of one request, the sample of
 * latencies. See trace/observe.h. */
enum { OBSERVE_ACCESS = 1, OBSERVE_TRACE = 2, OBSERVE_LATENCY = 4 };

/* The parts of a daemon. Each pointer belongs to the room that declares the struct; fs_prepare and
 * fs_fill open the parts in the order of one table, and fs_close closes them in reverse. */
struct fs {
	struct options options;
	struct backend *backend;
	struct volume *volumes; /* GPUs in order, host/ last */
	unsigned n_volumes;
	struct inode_table *inodes;
	/* Set before fs_open: who holds what a later daemon needs, and may hold a journal of an
	 * earlier one. NULL: nobody, and there is no journal. */
	const struct fdstore_ops *holder;
	enum fs_mount mount;
	struct journal *journal; /* NULL: none */
	struct unclaimed_leases *unclaimed_leases;
	struct inode *root;
	/* Shared: the chain of parents is being walked; exclusive: it changes. */
	struct brlock topology;
	/* The daemon's own memory for the tree: account.c. This and the next move with every name
	 * that comes or goes, and nothing else is on their lines. */
	_Alignas(CACHELINE_ALIGN) _Atomic int64_t metadata_bytes;
	/* Files without names whose memory has not gone yet: ops_io.c. */
	_Atomic int64_t n_unlinked_open;
	_Alignas(CACHELINE_ALIGN) struct busy_poll busy_poll;
	struct calibration *calibrations; /* one for each volume */
	int64_t metadata_max;
	struct idle_release *idle_release;
	struct share *_Atomic share; /* NULL: files are not shared by path, or not yet */
	char *_Atomic not_shared;    /* why not, allocated; NULL: they are, or will be */
	atomic_bool socket_bound;    /* .gpumem/socket exists: set while share is still NULL */
	struct user_limits *users;
	struct host_outs *outs;
	struct lease_list *leases;
	struct snapshots *snapshots; /* texts of open files of .gpumem/ */
	struct stats stats;
	atomic_uint observers; /* OBSERVE_* */
	struct access_log *access_log;
	struct trace *trace;
	struct access_file *access_file; /* its readers; set while requests are served */
	struct capabilities can;
	struct session *session;		       /* that serves it; session.c */
	struct spool *spool;			       /* persist=disk; NULL: there is none */
	const struct inode_watch *_Atomic inode_watch; /* the spool's; NULL: none */
	struct settings *settings;		       /* see settings.h; NULL: not kept */
	struct fdstore *fdstore;		       /* NULL: nothing outlives this daemon */
	struct timespec started;		       /* CLOCK_REALTIME */
	struct timeline timeline;
	bool noatime; /* the mount option */
};

/* Opens backend and volumes and makes the tree: 0, or -errno after a line in the log. options are
 * taken over. */
int fs_open(struct fs *fs);
/* Its two halves: what can be done while another daemon still serves the files, and what cannot. A
 * failure of either leaves nothing open. */
int fs_prepare(struct fs *fs);
int fs_fill(struct fs *fs);
/* Instead of fs_fill and fs_close. */
void fs_unprepare(struct fs *fs);
/* Gives all memory back. No request is in flight. */
void fs_close(struct fs *fs);

#endif
