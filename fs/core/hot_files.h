/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the files from and to which read, write and copy moved most bytes lately. Each worker keeps
 * the few files with most bytes (Space-Saving, Metwally et al., ICDT 2005) in a few cache lines of
 * its own, so that counting costs nanoseconds and no file has a counter. */
#ifndef FS_CORE_HOT_FILES_H
#define FS_CORE_HOT_FILES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BUSY_SLOTS 8

struct stats;

/* After this number of additions a worker halves all its weights. */
#define BUSY_HALF_LIFE 4096

/* A file without a transfer for this long is not busy. */
#define BUSY_SECONDS 60

/* Only the worker writes; any thread may read. */
struct busy {
	_Alignas(64) _Atomic uint64_t ino[BUSY_SLOTS]; /* 0: free, or being replaced */
	_Atomic uint64_t weight[BUSY_SLOTS];	       /* the file with the least is replaced */
	_Atomic uint64_t base[BUSY_SLOTS];	       /* of weight, the part of earlier files */
	_Atomic uint64_t touched[BUSY_SLOTS];	       /* CLOCK_MONOTONIC seconds */
	unsigned adds;
};

uint64_t busy_now(void);
void busy_add(struct busy *busy, uint64_t ino, uint64_t bytes, uint64_t now);

struct busy_file {
	uint64_t ino;
	uint64_t bytes; /* moved since the file got a slot; older bytes count less */
	uint64_t touched;
};

/* The busiest files of all workers, in descending order: the number of files. */
size_t busy_files(struct stats *stats, struct busy_file *files, size_t room, uint64_t now);

#endif
