/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The command line. One table, in table.c, drives parsing, the help text and the test of
 * the man page. */
#ifndef FS_OPTIONS_OPTIONS_H
#define FS_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "common/log.h"

enum cache_mode { CACHE_NONE, CACHE_AUTO, CACHE_ALWAYS };
enum switch_mode { SWITCH_AUTO, SWITCH_ON, SWITCH_OFF };
/* The fate of a mount when the daemon dies; see gpumemfs(8). RECOVERY_AUTO occurs only during
 * parsing. */
enum recovery_mode { RECOVERY_AUTO, RECOVERY_OFF, RECOVERY_REMOUNT, RECOVERY_TRANSPARENT };
enum standby_mode { STANDBY_OFF, STANDBY_ON };
/* When the daemon restores the bytes of files in the spool: when a file is opened, or at once. */
enum restore_mode { RESTORE_LAZY, RESTORE_NOW };

#define RECOVERY_WHY_MAX 128

/* How the process was started. */
enum role {
	ROLE_MOUNT,   /* by a user or mount(8), to mount */
	ROLE_DAEMON,  /* by the keeper, to serve */
	ROLE_KEEPER,  /* by a daemon whose keeper died */
	ROLE_UPGRADE, /* by a user, to replace the program of a mount */
	ROLE_REMOUNT, /* by a user or mount(8), to change flags of a mount: -o remount */
	ROLE_BINDER,  /* by a daemon, to give the sharing socket its name */
};

/* Bytes, or a percentage of a device's memory. */
struct amount {
	bool given, percent;
	uint64_t value;
};

/* How much of a full GPU a user keeps, beside users without a row, whose weight is 1. */
struct user_share {
	uid_t uid;
	unsigned weight;
};
#define USER_SHARES_MAX 256
#define WEIGHT_MAX	1000

struct options {
	char *source;	    /* as given, or NULL */
	char *mountpoint;   /* absolute */
	bool foreground;    /* -f; also implied by debug */
	bool debug;	    /* -d: log_level=debug and libfuse's messages */
	bool help, version; /* -h, -V: the other arguments were not parsed */
	bool fake; /* -f of a mount helper: everything is checked, but nothing is mounted */

	enum role role;
	int line; /* of a daemon and of a keeper: the connection to the other; of the binder: the
		     socket */

	enum backend_kind backend;
	char *gpus; /* names and UUIDs, then numbers: ascending, each once; commas; NULL: all */
	struct amount size, reserve;
	struct amount spill;	   /* system memory for all GPUs together */
	struct amount spill_disk;  /* the same on the disk of the spool */
	struct amount keep_free;   /* files leave each GPU until this much is free; needs spill */
	struct user_share *shares; /* each user once; needs spill */
	unsigned n_shares;
	struct amount host_size; /* a share of the machine's memory; always given: 50% */
	unsigned host_gpus;
	enum cache_mode cache;
	enum bar_provider bar;
	enum switch_mode io_uring;
	enum recovery_mode recovery;	     /* after parsing never RECOVERY_AUTO */
	char recovery_why[RECOVERY_WHY_MAX]; /* the reason for recovery=auto's choice; empty if
						another value was given */
	char *spool;			     /* absolute; NULL: none */
	enum restore_mode restore;
	enum standby_mode standby;
	unsigned threads; /* 0: by the number of processors */
	bool uid_given, gid_given;
	uid_t uid; /* owner of the top directories; default: the user that mounts */
	gid_t gid;
	mode_t umask;	  /* removed from 01777 for the mode of the top directories */
	bool allow_other; /* default: on for root, off otherwise */
	bool allow_other_given;
	uint64_t max_chunk;	  /* bytes */
	unsigned user_leases;	  /* the limit for a single user */
	unsigned user_host_files; /* the limit for a single user; 0: by the limit of open files */
	struct amount metadata;	  /* the daemon's memory for names and attributes */
	struct amount user_metadata; /* of metadata, for a single user */
	struct amount user_spill;    /* of each place in spill, for a single user */
	unsigned lease_timeout;	     /* seconds; 0: the age of a lease does not matter */
	enum log_level log_level;
	/* Generic options for mount(2) and fusermount3, comma-separated: "ro,noexec"; or NULL. */
	char *mount_options;
	bool noatime; /* in mount_options */
};

/* 0, or -EINVAL after one line on stderr with the bad option or argument. */
int options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);
void options_help(FILE *out, const char *program);

/* The amount in bytes, as a share of whole if in percent; fallback if not given. */
uint64_t amount_bytes(const struct amount *amount, uint64_t whole, uint64_t fallback);

/* The user's weight in the shares of a full GPU: 1 if not given. */
unsigned options_weight(const struct options *options, uid_t uid);

/* For tests: the names and value texts of the table, in order; NULL past the end. The text is empty
 * if an option takes no value. Our own options come first, then the generic options of mount(8). */
const char *options_name(unsigned index);
const char *options_values(unsigned index);

#endif
