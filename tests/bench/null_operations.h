/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The operations of the null daemons, on files in plain memory. A read is answered straight from
 * the file's memory: the only copy is the kernel's. */
#ifndef TESTS_BENCH_NULL_OPERATIONS_H
#define TESTS_BENCH_NULL_OPERATIONS_H

#include <fuse_lowlevel.h>

extern const struct fuse_lowlevel_ops null_operations;

#endif
