/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Moving bytes without a filesystem, by the means of the machine itself: the upper limits. */
#ifndef TESTS_BENCH_RAW_H
#define TESTS_BENCH_RAW_H

#include "tests/bench/bench.h"

struct raw {
	const struct target_ops *copy_ops, *bar_ops;
	char device[WHY_MAX]; /* "NVIDIA H200, driver 580.159, ..." */
	char copy_about[WHY_MAX], bar_about[WHY_MAX];
	char bar_absent[WHY_MAX]; /* "": BAR mappings work on this machine */
	char *bar;		  /* target of the BAR stores and source of the BAR loads */
	/* Copies, by the GPU, the data's first bytes into other memory of GPU 0 or 1, and waits: 0,
	 * -ENOTSUP (no such GPU, or not a peer) or another -errno. */
	int (*across)(struct raw *raw, unsigned gpu, uint64_t bytes);
	/* Reads the copy made by across. */
	int (*read_copy)(struct raw *raw, unsigned gpu, void *to, uint64_t bytes, uint64_t offset);
	/* Reads the memory at a device address of a context. */
	int (*fetch)(struct raw *raw, void *to, unsigned long long address, uint64_t bytes);
	/* Makes the context current for the calling thread: 0 or -errno. */
	int (*use)(struct raw *raw);
	void (*close)(struct raw *raw);
};

/* read and write of bar_ops: move bytes through raw->bar. */
ssize_t raw_bar_read(struct target *target, unsigned lane, void *to, size_t bytes, uint64_t offset);
ssize_t raw_bar_write(struct target *target, unsigned lane, const void *from, size_t bytes,
		      uint64_t offset);

/* copy_bytes: room for across. NULL with the reason in why. */
struct raw *raw_memory_open(const struct data *data, uint64_t copy_bytes, char *why);
struct raw *raw_cuda_open(const struct data *data, uint64_t copy_bytes, char *why);

/* Whether there is a GPU, without initialising CUDA in this process. */
bool raw_cuda_is_here(void);

#endif
