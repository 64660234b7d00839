/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The keeper's state, and the functions that its files share. */
#ifndef FS_KEEPER_INTERNAL_H
#define FS_KEEPER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/system/runtime_dir.h"
#include "fs/keeper/daemonize.h"
#include "fs/keeper/fd_table.h"
#include "fs/keeper/ipc.h"
#include "fs/options/options.h"

/* A daemon that the keeper started or adopted. */
struct child {
	pid_t pid; /* 0: there is no such daemon */
	int pidfd; /* polls POLLIN when the process is gone altogether */
	int ipc;
	int program;	  /* O_PATH: the program that runs; the keeper's to close */
	int64_t start_ms; /* clock_ms */
	bool prepared, ready, ended;
};

/* The greatest number of daemons that are replaced within an hour because a GPU stopped working. */
#define REPLACEMENTS_MAX 3

struct keeper {
	const struct options *options;
	int argc;
	char **argv;
	struct daemon *launcher; /* waits for the first daemon, or NULL */
	struct fd_table held;
	unsigned held_changes; /* messages that added or removed a descriptor */
	int64_t changed_us;    /* clock_us, when the last batch of such messages was read */
	uint64_t holds_max;
	uint64_t generation;	    /* generation of the latest daemon; 0: none was started yet */
	struct child serving, next; /* next: getting ready to take over */
	struct child standby;	    /* takeover.c */
	int64_t standby_at;	    /* when to start a daemon that stands by; 0: at once */
	unsigned standby_failures;  /* standby daemons in a row that ended by themselves */
	int program;		    /* O_PATH: the program of new daemons */
	int signals;		    /* signalfd */
	struct runtime_socket address; /* the socket on which gpumemfs --upgrade connects */
	dev_t device;	   /* the mount's, after which address is named; 0: no mount yet */
	int upgrade_fd;	   /* connection of the upgrade under way, or -1 */
	int old_program;   /* the program to return to if the upgrade fails; -1: no upgrade is under
			      way */
	unsigned failures; /* crashes of daemons in a row */
	unsigned killed;   /* daemons in a row that were killed before they served */
	unsigned retries;  /* the number of attempts after FAILURES_MAX crashes */
	int64_t start_at;  /* when to start a daemon; 0: at once; KEEPER_NEVER */
	int64_t died;	   /* when the last daemon ended; 0: a daemon serves */
	/* When the last daemon's IPC socket closed, and when the last daemon was reaped; clock_us.
	 */
	int64_t seen_us, reaped_us;
	const char *wanted_gpu; /* UUID of the GPU for which the next daemon is started, or NULL */
	int64_t replacements[REPLACEMENTS_MAX]; /* when each of the latest was; 0: never */
	int refusing;	   /* /dev/fuse, while the keeper answers requests with EIO; -1 */
	FILE *mounts;	   /* while refusing: /proc/self/mountinfo */
	unsigned releases; /* while refusing: RELEASE requests left to the next daemon */
	bool ending, is_done;
	bool partial; /* an adopted daemon has not handed over all descriptors yet */
	int status;
};

#define KEEPER_NEVER INT64_MAX

/* end.c */
/* The record of FUSE's INIT message, or -1. */
int keeper_init_record(const struct keeper *keeper);
/* The mount's device number; 0: no daemon has mounted yet. */
dev_t keeper_mount_device(const struct keeper *keeper);
/* The keeper ends with this exit status once its events are handled. */
void keeper_finish(struct keeper *keeper, int status);
/* Closes all descriptors; the service manager may keep its copies. Also removes the sharing
 * socket's file, as a daemon does at its end. */
void keeper_close_held(struct keeper *keeper);
/* Ends the mount without a daemon: unmounts, and closes all descriptors. */
void keeper_end_alone(struct keeper *keeper, int status);

/* child.c: starts a daemon from a program: 0 or -errno. */
int child_start(struct keeper *keeper, struct child *child, int program);
/* For a process that has ended, after its last messages were read. Returns its wait status, or
 * CHILD_UNKNOWN for another process's child. */
#define CHILD_UNKNOWN (-1)
int child_reap(struct child *child);
void child_kill(const struct child *child);
/* Lets the daemon serve. No other daemon may be serving. */
void child_go(struct keeper *keeper, const struct child *child);

/* keeper.c: keeper->next becomes the serving daemon. */
void keeper_take_over(struct keeper *keeper);

/* failures.c: decides when the next daemon is started, from the end of the last daemon. */
void failure_schedule(struct keeper *keeper, const struct child *child, int status);
/* A daemon could not be started: schedules a later attempt. */
void failure_put_off(struct keeper *keeper);

/* serve.c: reads and handles a daemon's next message. False: no message waits. */
bool keeper_receive(struct keeper *keeper, struct child *child);

/* takeover.c. standby_due: when to start a standby daemon. standby_start: starts the daemon if the
 * time has come. */
int64_t standby_due(const struct keeper *keeper);
void standby_start(struct keeper *keeper);
/* Lets the standby daemon serve. False: no standby daemon. */
bool standby_serves(struct keeper *keeper);
void standby_died(struct keeper *keeper);
/* Ends a standby daemon that is no longer needed. */
void standby_end(struct keeper *keeper);

/* refuse.c: answers requests with EIO from now on, until a daemon serves. */
void refuse_start(struct keeper *keeper);
/* refuse_late: calls refuse_start if requests have waited too long. refuse_due: when refuse_late
 * must be called. */
void refuse_late(struct keeper *keeper);
int64_t refuse_due(const struct keeper *keeper);
void refuse_stop(struct keeper *keeper);
/* refuse_serve: /dev/fuse has a request to read. refuse_mounts: the mount table changed. 0, or
 * -ENODEV when the mount has ended. */
int refuse_serve(struct keeper *keeper);
int refuse_mounts(const struct keeper *keeper);

/* takeover.c: a GPU stopped working in the serving daemon. Starts another daemon of the same
 * program, which takes over if the GPU works there. */
void keeper_replace(struct keeper *keeper, const char *uuid);

/* Opens the address for upgrades anew if the mount has changed. */
void upgrade_follow_mount(struct keeper *keeper);
void upgrade_accept(struct keeper *keeper);

/* upgrade_answer.c: answers a process that asked for an upgrade, and closes the connection. error:
 * 0 or an errno. upgrade_tell: for the upgrade under way; without one has no effect. */
void upgrade_answer(int connection, int error, const char *text);
void upgrade_tell(struct keeper *keeper, int error, const char *text);

#endif
