/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem verify with xxh64-tree: by the CPU, or by the file's GPU with the CPU looking over it. */
#ifndef CLIENT_CLI_VERIFY_VERIFY_H
#define CLIENT_CLI_VERIFY_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/cli/core/hash.h"

enum verify_on { VERIFY_AUTO, VERIFY_CPU, VERIFY_GPU };

struct verified {
	char sum[HASH_TEXT_MAX];
	uint64_t bytes;	  /* of the file */
	uint64_t on_gpu;  /* bytes of them that a GPU summed up, */
	double seconds;	  /* in so long, without what came before; */
	uint64_t checked; /* and bytes of those that the CPU read too */
};

/* Whether a GPU is likely to be done sooner, all in all, if the file is on one: it is large, and
 * has no holes, which sharing would fill. */
bool verify_suits_gpu(const struct stat *st);

/* Opens a regular file so that its resident bytes are what is read. fd; or -errno. */
int verify_open(const char *path, int flags);

/* The exit status; what is wrong was said. */
int verify_tree(const char *path, enum verify_on on, struct verified *found);

#endif
