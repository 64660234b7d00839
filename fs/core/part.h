/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A part of the daemon: a feature, or what features need. A part is a folder, or sources of a
 * folder, and a row of the table in fs/daemon/lifecycle.c (docs/new-feature.md). */
#ifndef FS_CORE_PART_H
#define FS_CORE_PART_H

#include <stddef.h>

struct control_file;
struct fact_group;
struct fs;
struct inode_hooks;

/* The indexes of fs->states. Their order has no meaning. */
enum fs_slot {
	FS_ACCESS_FILE,
	FS_ACCESS_LOG,
	FS_AHEAD,
	FS_CALIBRATIONS,
	FS_COMPACTION,
	FS_ENDED_FILES,
	FS_HOLDS,
	FS_HOST_OUTS,
	FS_IDLE_RELEASE,
	FS_LEASES,
	FS_LEDGER,
	FS_SESSION,
	FS_SETTINGS,
	FS_SHARING,
	FS_SNAPSHOTS,
	FS_SPOOL,
	FS_TIERS,
	FS_TRACE,
	FS_TURNS,
	FS_UNCLAIMED_LEASES,
	FS_SLOTS
};

#define INODE_HOOKS_MAX 7

/* Each function may be NULL. A daemon opens its parts in the order of the table while an earlier
 * daemon may still serve the mount, and starts the parts in the same order once no other daemon
 * serves. The daemon ends in reverse: all parts are stopped, and then all parts are closed. */
struct fs_part {
	const char *name;
	/* 0, or -errno after a line in the log; then nothing of the part is left. */
	int (*open)(struct fs *fs);
	int (*start)(struct fs *fs);
	void (*stop)(struct fs *fs);
	void (*close)(struct fs *fs);
	const struct inode_hooks *inode; /* or NULL */
	const struct fact_group *facts;	 /* that .gpumem/ shows; or NULL */
	const struct control_file
	    *files; /* of .gpumem/; or NULL; ends with a file without a name */
};

#endif
