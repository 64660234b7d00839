/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The only parser for numbers from outside: strict about range, overflow and trailing characters.
 */
#ifndef COMMON_NUMBER_H
#define COMMON_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits only, min <= value <= max: 0, -EINVAL (not a number) or -ERANGE. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* Digits with an optional unit: K, M, G and T, also written KiB, MiB, GiB and TiB, are powers of
 * 1024; kB, KB, MB, GB and TB powers of 1000, as in coreutils. 0, -EINVAL or -ERANGE (does not fit
 * in 64 bits). */
int parse_size(const char *text, uint64_t *bytes);

/* As parse_size, or N% (0 to 100) of whole. */
int parse_size_or_percent(const char *text, uint64_t whole, uint64_t *bytes);

/* Whether version a.b... is at least major.minor. */
bool version_at_least(const char *version, unsigned major, unsigned minor);

#endif
