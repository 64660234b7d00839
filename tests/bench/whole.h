/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Whole files: makes a file of the sources' data, and compares a file with the data. */
#ifndef TESTS_BENCH_WHOLE_H
#define TESTS_BENCH_WHOLE_H

#include "tests/bench/bench.h"

/* A path in a folder of a target. */
void whole_path(char path[PATH_MAX_], const char *dir, const char *name);

/* Creates a file with the bytes of the first lane's source, block after block, or overwrites an
 * existing file. 0 or -errno. */
int whole_make(const struct bench *bench, const char *path, uint64_t bytes);

/* Compares a file: 0, -EILSEQ (wrong bytes or wrong size) or another -errno. */
int whole_check(const struct bench *bench, const char *path, uint64_t bytes);

/* Compares memory that shows a file made by whole_make from its beginning. */
bool whole_is_right(const struct bench *bench, const char *memory, uint64_t bytes);

/* Writes the meaning of an error of these functions into the figure. */
void whole_explain(struct figure *figure, const char *what, int error);

#endif
