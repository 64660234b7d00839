/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The keeper's own. */
#ifndef FS_KEEPER_INTERNAL_H
#define FS_KEEPER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/daemonize.h"
#include "common/runtime_dir.h"
#include "fs/core/options.h"
#include "fs/keeper/fd_table.h"
#include "fs/keeper/ipc.h"

/* A daemon. */
struct child {
	pid_t pid; /* 0: there is none */
	int pidfd; /* readable when it is gone altogether */
	int ipc;
	int program;   /* from which it was started; the keeper's to close */
	int64_t since; /* clock_ms */
	bool prepared, ready, ended;
};

/* For broken GPUs. */
#define REPLACEMENTS_MAX 3

struct keeper {
	const struct options *options;
	int argc;
	char **argv;
	struct daemon *launcher; /* who waits for the first daemon, or NULL */
	struct fd_table held;
	uint64_t holds_max;
	uint64_t turns;		       /* daemons started so far */
	struct child serving, next;    /* next: getting ready to take over */
	struct child standby;	       /* takeover.c */
	int64_t standby_at;	       /* when to start one; 0: now */
	unsigned standby_failures;     /* that ended unasked, one after the other */
	int program;		       /* what is started; -1: the keeper's own */
	int signals;		       /* signalfd */
	struct runtime_socket address; /* where programs ask for an upgrade */
	dev_t device;		       /* of the mount that the address is for; 0: none yet */
	int asking;		       /* who asked for the upgrade under way, or -1 */
	int before;		       /* the program to go back to should the upgrade fail; -1 */
	unsigned failures;	       /* of daemons, one after the other */
	unsigned killed;	       /* daemons in a row that were killed before they served */
	unsigned retries;	       /* after too many failures */
	int64_t start_at;	       /* when to start one; 0: now; KEEPER_NEVER */
	int64_t died;		       /* when the last one did; 0: it has been replaced */
	int64_t seen_us, reaped_us;    /* its line closed; nothing was left of it: clock_us */
	const char *wanted;	       /* the GPU that the next daemon is for, or NULL */
	int64_t replacements[REPLACEMENTS_MAX]; /* when each of the last ones was; 0: never */
	int refusing;	   /* /dev/fuse, while requests are answered with EIO; or -1 */
	FILE *mounts;	   /* then: whether the mount is there */
	unsigned releases; /* left to the next daemon meanwhile */
	bool ending, done;
	bool partial; /* of what is held, until the daemon that hands it over has come to the end */
	int status;
};

#define KEEPER_NEVER INT64_MAX

/* The mount's device number; 0: no daemon has mounted yet. */
dev_t keeper_mount_device(const struct keeper *keeper);

/* keeper_child.c. Starts a daemon from a program: 0 or -errno. */
int child_start(struct keeper *keeper, struct child *child, int program);
/* It is gone: what it said last must have been read. Its wait status, or CHILD_UNKNOWN where
 * another process is its parent. */
#define CHILD_UNKNOWN (-1)
int child_reap(struct child *child);
void child_kill(const struct child *child);
/* It serves from now on, and nobody else. */
void child_go(struct keeper *keeper, const struct child *child);

/* keeper.c: the next daemon serves. */
void keeper_take_over(struct keeper *keeper);
/* The mount's end, without a daemon to do it. */
void keeper_end_alone(struct keeper *keeper, int status);

/* keeper_failures.c: when another daemon is started, by how the one before died. */
void failure_schedule(struct keeper *keeper, const struct child *was, int status);
/* None can be started just now. */
void failure_put_off(struct keeper *keeper);

/* keeper_serve.c: what a daemon says. False: nothing (more) for now. */
bool keeper_hear(struct keeper *keeper, struct child *child);

/* takeover.c. When one is to be started, and starts it then. */
int64_t standby_due(const struct keeper *keeper);
void standby_start(struct keeper *keeper);
/* Instead of starting a daemon to serve: false where none stands by. */
bool standby_serves(struct keeper *keeper);
void standby_died(struct keeper *keeper);
/* It is of no use any more. */
void standby_end(struct keeper *keeper);

/* keeper_refuse.c. From here on, until a daemon serves, requests are answered with EIO. */
void refuse_start(struct keeper *keeper);
/* The same where requests have waited for too long, and when that will be. */
void refuse_late(struct keeper *keeper);
int64_t refuse_due(const struct keeper *keeper);
void refuse_stop(struct keeper *keeper);
/* There are requests, or mounts have changed: 0, or -ENODEV where the mount has ended. */
int refuse_serve(struct keeper *keeper);
int refuse_mounts(const struct keeper *keeper);

/* takeover.c. A GPU works no more for the daemon that serves: another one, of the same
 * program, takes over if it does there. */
void keeper_replace(struct keeper *keeper, const char *uuid);

/* takeover.c */
/* The mount may be another one than before: its address is made anew then. */
void upgrade_follow_mount(struct keeper *keeper);
void upgrade_accept(struct keeper *keeper);
/* Tells who asked what became of it, and forgets him. error: 0 or an errno. */
void upgrade_tell(struct keeper *keeper, int error, const char *text);

#endif
