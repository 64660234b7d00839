/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The command line. One table in options.c drives parsing, the help and the man page's test. */
#ifndef FS_CORE_OPTIONS_H
#define FS_CORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "common/log.h"

enum cache_mode { CACHE_NONE, CACHE_AUTO, CACHE_ALWAYS };
enum switch_mode { SWITCH_AUTO, SWITCH_ON, SWITCH_OFF };
/* What becomes of a mount whose daemon dies; see gpumemfs(8). RECOVERY_AUTO: while options are
 * parsed. */
enum recovery_mode { RECOVERY_AUTO, RECOVERY_OFF, RECOVERY_REMOUNT, RECOVERY_TRANSPARENT };
enum standby_mode { STANDBY_OFF, STANDBY_ON };
/* When the bytes of files in the spool are brought back: when somebody opens them, or at once. */
enum restore_mode { RESTORE_LAZY, RESTORE_NOW };

#define RECOVERY_WHY_MAX 128

/* What the process was started as. */
enum role {
	ROLE_MOUNT,   /* by somebody who wants a mount */
	ROLE_DAEMON,  /* by its keeper */
	ROLE_KEEPER,  /* by a daemon whose keeper is gone */
	ROLE_UPGRADE, /* to take over a mount */
	ROLE_BINDER,  /* by a daemon whose sharing socket gets its name */
};

/* Bytes, or a percentage of a device's memory. */
struct amount {
	bool given, percent;
	uint64_t value;
};

struct options {
	char *source;	    /* as given, or NULL */
	char *mountpoint;   /* absolute */
	bool foreground;    /* -f; also implied by debug */
	bool debug;	    /* -d: log_level=debug and libfuse's messages */
	bool help, version; /* -h, -V: nothing else was looked at */
	bool fake; /* a mount helper's -f: everything was checked, nothing is to be mounted */

	enum role role;
	int line; /* of the daemon and the keeper: to the other; of the binder: the socket */

	enum backend_kind backend;
	char *gpus; /* ascending, comma-separated, each once; NULL: all */
	struct amount size, reserve;
	struct amount host_size; /* of the machine's memory; always given: 50% */
	unsigned host_gpus;
	enum cache_mode cache;
	enum bar_provider bar;
	enum switch_mode io_uring;
	enum recovery_mode recovery;	     /* decided, where it was auto */
	char recovery_why[RECOVERY_WHY_MAX]; /* how auto was decided; empty: it was given */
	char *spool;			     /* absolute; NULL: none */
	enum restore_mode restore;
	enum standby_mode standby;
	unsigned threads; /* 0: choose by the machine */
	bool uid_given, gid_given;
	uid_t uid; /* owner of the top directories; not given: who mounts */
	gid_t gid;
	mode_t umask;	  /* taken from 01777 for the mode of the top directories */
	bool allow_other; /* default: on for root, off otherwise */
	bool allow_other_given;
	uint64_t max_chunk;	  /* bytes */
	unsigned user_leases;	  /* at most, of one user */
	unsigned user_host_files; /* the same; 0: by the limit of open files */
	unsigned lease_timeout;	  /* seconds; 0: leases are not dropped for their age */
	enum log_level log_level;
	/* Generic ones for mount(2) and fusermount3, comma-separated: "ro,noexec"; or NULL. */
	char *mount_options;
};

/* 0, or -EINVAL after one line on stderr that names the bad option or argument. */
int options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);
void options_help(FILE *out, const char *program);

/* The amount in bytes of a whole; fallback where it was not given. */
uint64_t amount_bytes(const struct amount *amount, uint64_t whole, uint64_t fallback);

/* For the tests: the table's names and value texts, in order; NULL past the end. The text is empty
 * where an option takes no value. The generic mount options follow our own. */
const char *options_name(unsigned index);
const char *options_values(unsigned index);

#endif
