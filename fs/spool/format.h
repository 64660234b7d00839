/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What writing and reading a record have in common. */
#ifndef FS_SPOOL_FORMAT_H
#define FS_SPOOL_FORMAT_H

#include <stddef.h>

#define SPOOL_HEAD "gpumem-spool "
#define SPOOL_SUM  "sum "

/* The sum's line: 16 digits and the end. */
#define SPOOL_SUM_BYTES (sizeof(SPOOL_SUM) - 1 + 16 + 1)

/* Room for one more element in an array that grew by this alone: array points at its pointer. */
int spool_array_grow(void *array, size_t count, size_t size);

#endif
