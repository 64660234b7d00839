/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem verify with xxh64-tree: on the CPU, or on the file's GPU with checks by the CPU. */
#ifndef CLIENT_CLI_VERIFY_VERIFY_H
#define CLIENT_CLI_VERIFY_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/cli/hash/hash.h"

enum verify_device { VERIFY_AUTO, VERIFY_CPU, VERIFY_GPU };

struct verified {
	char sum[HASH_TEXT_MAX];
	uint64_t bytes;	  /* of the file */
	uint64_t on_gpu;  /* bytes that a GPU summed up */
	double seconds;	  /* the time of the GPU, without the preparation */
	uint64_t checked; /* bytes that the CPU has checked */
};

/* Whether a GPU is likely to be faster in all: the file is large, and has no holes, which sharing
 * would fill. */
bool verify_suits_gpu(const struct stat *st);

/* Opens a regular file so that reads get the bytes in GPU memory. Gives the fd, or -errno. */
int verify_open(const char *path, int flags);

/* Gives the exit status; errors are reported. */
int verify_tree(const char *path, enum verify_device device, struct verified *found);

#endif
