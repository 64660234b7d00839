/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The targets: made ready before the first case, and taken down after the last. */
#ifndef TESTS_BENCH_TARGETS_H
#define TESTS_BENCH_TARGETS_H

#include "tests/bench/bench.h"

/* Starts the daemons, makes folders and files of data. A target that cannot be opened is listed
 * with the reason. Returns 0, or -1 after an error message if the bench cannot run at all. */
int targets_open(struct bench *bench);
void targets_close(struct bench *bench);

/* Size of the files for copy_file_range and for the commands. */
uint64_t targets_file_bytes(const struct bench *bench);

/* A new target, whose file is read and written by calls. */
struct target *target_add(struct bench *bench, const char *name, enum target_kind kind);
/* Records that the target is not measured, and why; error is an errno. */
void target_absent(struct target *target, const char *what, int error);
/* dir/name; "" if the path is too long. */
void path_join(char out[PATH_MAX_], const char *dir, const char *name);

#endif
