/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which files have had most bytes moved lately by read, write and copy: each worker keeps the few
 * that it moves most for (Space-Saving, Metwally et al., ICDT 2005), in a few cache lines of its
 * own, so that counting costs nanoseconds and no file carries a counter. */
#ifndef FS_CORE_HOT_FILES_H
#define FS_CORE_HOT_FILES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BUSY_SLOTS 8

struct stats;

/* After so many a worker takes all that it knows for half as much. */
#define BUSY_HALF_LIFE 4096

/* What nobody touched for so long is not busy. */
#define BUSY_SECONDS 60

/* Written by its worker only. */
struct busy {
	_Alignas(64) _Atomic uint64_t ino[BUSY_SLOTS]; /* 0: free, or being replaced */
	_Atomic uint64_t weight[BUSY_SLOTS];	       /* by which the least is found */
	_Atomic uint64_t base[BUSY_SLOTS];	       /* of that, what others left in the slot */
	_Atomic uint64_t touched[BUSY_SLOTS];	       /* CLOCK_MONOTONIC seconds */
	unsigned adds;
};

uint64_t busy_now(void);
void busy_add(struct busy *busy, uint64_t ino, uint64_t bytes, uint64_t now);

struct busy_file {
	uint64_t ino;
	uint64_t bytes; /* moved since it came among the busiest, older ones counting less */
	uint64_t touched;
};

/* The busiest of all workers, the first most: how many. */
size_t busy_files(struct stats *stats, struct busy_file *files, size_t room, uint64_t now);

#endif
