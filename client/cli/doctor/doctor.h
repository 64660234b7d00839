/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What limits gpumemfs on this machine: findings, each with what lifts it. */
#ifndef CLIENT_CLI_DOCTOR_DOCTOR_H
#define CLIENT_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

#include "client/cli/core/mounts.h"

enum doctor_level {
	DOCTOR_GOOD,
	DOCTOR_NOTE,  /* so it is, and nothing need be done */
	DOCTOR_LIMIT, /* slower or less than could be */
	DOCTOR_ERROR, /* does not work */
};

struct doctor {
	json_t *findings;
	json_t *decisions; /* of the one mount; NULL: not asked for */
	enum doctor_level worst;
	const char *root;	     /* "" but in tests: stands before /proc, /sys and /dev */
	const struct mount_at *only; /* the one mount to look at; NULL: all */
	bool mounted;		     /* some gpumemfs is mounted, and says what it found itself */
	bool gpu;		     /* there is a GPU of NVIDIA's */
	bool driver;		     /* and its driver is loaded */
};

/* lift: what to do about it, or NULL. about: what it is about: "fuse", or a mount or a GPU. */
void doctor_find(struct doctor *doctor, enum doctor_level level, const char *about,
		 const char *lift, const char *format, ...) __attribute__((format(printf, 5, 6)));

void doctor_machine(struct doctor *doctor);
/* Without any mount there is something to say too. */
void doctor_mounts(struct doctor *doctor, const struct mounts *mounts);

/* doctor_decisions.c: what the daemon decided by itself, from the text of its params. */
void doctor_decisions(struct doctor *doctor, const char *where, const char *params,
		      const json_t *volumes);
void doctor_decisions_write(const json_t *decisions);

/* FUSE over io_uring, where it would pay and the kernel has it off: what lifts that. */
#define DOCTOR_URING_PARAMETER "/sys/module/fuse/parameters/enable_uring"
/* On fewer processors the rings cost more than they save. */
#define DOCTOR_URING_CORES 4
#define DOCTOR_URING_LIFT                                                                          \
	"echo Y > " DOCTOR_URING_PARAMETER                                                         \
	"; for good: options fuse enable_uring=1 in /etc/modprobe.d; then mount again"

/* A file of the machine, its first line, allocated; NULL: it cannot be read. */
char *doctor_line(const struct doctor *doctor, const char *path);
bool doctor_exists(const struct doctor *doctor, const char *path);

#endif
