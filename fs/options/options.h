/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The command line. One list, in list.h, drives parsing, the help text, the members of struct
 * options and the test of the man page. */
#ifndef FS_OPTIONS_OPTIONS_H
#define FS_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "common/log.h"
#include "fs/options/list.h"

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

#define OPTION_MEMBER(type, name, ...) type name;

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

	OPTION_LIST(OPTION_MEMBER)
	struct amount spill_disk; /* the part of spill on the disk of the spool */
	unsigned n_shares;
	char recovery_why[RECOVERY_WHY_MAX]; /* the reason for recovery=auto's choice; empty if
						another value was given */
	bool uid_given, gid_given, allow_other_given;
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
