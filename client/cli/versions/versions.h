/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The versions of a set (client/lib/versions), for gpumem publish, versions and rollback. */
#ifndef CLIENT_CLI_VERSIONS_VERSIONS_H
#define CLIENT_CLI_VERSIONS_VERSIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cli/core/mounts.h"

struct version {
	char name[NAME_MAX + 1];
	uint64_t published;	/* ns since 1970; 0: never */
	uint64_t bytes, leases; /* of the files together */
	bool is_current, is_previous;
	bool is_unreadable; /* in part: bytes and leases are of the rest */
	pid_t *users;	    /* processes that have its files leased, each once */
	size_t n_users;
};

struct version_list {
	struct version *versions; /* the version that was published last is first */
	size_t n;
};

/* Opens the set at the place: a descriptor, or the negative exit status after a message. */
int version_set_open(const char *word, struct place *place);
/* The versions of a set. The exit status, after a message. */
int version_list_read(const struct place *place, int set, struct version_list *list);
void version_list_free(struct version_list *list);

/* Removes a version with all of its files: 0 or -errno; -EBUSY: it is current by now. */
int version_remove(int set, const char *name);
/* Removes what processes have left that were killed when they made or removed a version. */
void version_remove_left(int set);

#endif
