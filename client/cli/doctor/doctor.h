/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The findings of gpumem doctor about this machine, each with its remedy. */
#ifndef CLIENT_CLI_DOCTOR_DOCTOR_H
#define CLIENT_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

#include "client/cli/core/mounts.h"

enum doctor_level {
	DOCTOR_GOOD,
	DOCTOR_NOTE,  /* a fact without need for action */
	DOCTOR_LIMIT, /* slower, or with fewer features, than possible */
	DOCTOR_ERROR, /* does not work */
};

struct doctor {
	json_t *findings;
	json_t *decisions; /* of named_mount; NULL: no mount was named */
	enum doctor_level worst;
	const char *root; /* "", in tests a folder in front of /proc, /sys and /dev */
	const struct mount_at *named_mount; /* the mount to examine; NULL: all mounts */
	bool mounted; /* gpumemfs is mounted, so the mount's own findings count */
	bool gpu;     /* the machine has an NVIDIA GPU */
	bool driver;  /* the GPU's driver is loaded */
};

/* findings.c. Adds a finding. about: "fuse", a mount or a GPU. lift: the remedy, or NULL. */
void doctor_find(struct doctor *doctor, enum doctor_level level, const char *about,
		 const char *lift, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Writes the findings and gives the exit status. */
int doctor_findings_report(const struct doctor *doctor, int json);

/* machine.c */
void doctor_machine(struct doctor *doctor);
/* The first line of a file of the machine, allocated; NULL: the file cannot be read. */
char *doctor_line(const struct doctor *doctor, const char *path);
bool doctor_exists(const struct doctor *doctor, const char *path);

/* mounts.c */
/* Without any mount there is a finding too. */
void doctor_mounts(struct doctor *doctor, const struct mounts *mounts);

/* decisions.c: adds the settings that the daemon has chosen, from the text of its params. */
void doctor_decisions(struct doctor *doctor, const char *mountpoint, const char *params,
		      const json_t *volumes);
void doctor_decisions_write(const json_t *decisions);

/* FUSE over io_uring, and the remedy where the kernel has it switched off. */
#define DOCTOR_URING_PARAMETER "/sys/module/fuse/parameters/enable_uring"
/* With fewer processors the rings cost more than they save. */
#define DOCTOR_URING_CORES 4
#define DOCTOR_URING_LIFT                                                                          \
	"echo Y > " DOCTOR_URING_PARAMETER                                                         \
	"; for good: options fuse enable_uring=1 in /etc/modprobe.d; then mount again"

#endif
