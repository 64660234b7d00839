/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which processes use which files of mounts, and how: by the leases that the daemons tell, and by
 * the mappings and descriptors in /proc that the caller may read. */
#ifndef CLIENT_CLI_EXPLAIN_USES_H
#define CLIENT_CLI_EXPLAIN_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cli/core/mounts.h"

/* A file in use by a process. */
struct use {
	pid_t pid;
	uid_t uid; /* of the process */
	dev_t device;
	uint64_t inode;
	char *path;	   /* or "MOUNT: inode N" for a file that the caller may not see */
	const char *lease; /* struct sharer: access; NULL: the process has no lease */
	uint64_t mapped;   /* bytes of the kernel's mappings in the process */
	bool in_host;	   /* a file of host/: the kernel maps its memory */
	bool open;
};

struct uses {
	struct use *at;
	size_t count;
	unsigned hidden; /* processes of which the caller may not see the mappings */
};

struct use_filter {
	pid_t pid;    /* 0: all processes */
	dev_t device; /* 0: all files, else the file with the inode */
	uint64_t inode;
};

/* Finds the uses, ordered by process: 0 or -errno; -ESRCH: there is no process pid. The daemons
 * answer. */
int uses_find(const struct mounts *mounts, const struct use_filter *filter, struct uses *uses);
void uses_free(struct uses *uses);

/* How the process gets the bytes, in one or two words. */
const char *use_manner(const struct use *use);
/* How the process could have the memory itself; NULL: the process has the memory. */
const char *use_advice(const struct use *use);

#endif
