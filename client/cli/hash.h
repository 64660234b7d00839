/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* XXH3 of bytes and of files. */
#ifndef CLIENT_CLI_HASH_H
#define CLIENT_CLI_HASH_H

#include <stddef.h>
#include <stdint.h>

enum hash_kind { HASH_64, HASH_128 };

/* Lower-case hex digits, 16 or 32 of them, and a NUL. */
#define HASH_TEXT_MAX 33

uint64_t hash_bytes(const void *bytes, size_t length);

/* The sum of what an open file holds, read by several threads and hashed in order; 0 or -errno.
 * bytes: how many there were. */
int hash_file(int fd, enum hash_kind kind, unsigned threads, char text[HASH_TEXT_MAX],
	      uint64_t *bytes);

/* Whether a word can be a sum: "xxh3:" or "XXH3_" and 16 hex digits, or 32; the digits in lower
 * case are put into text. */
int hash_parse(const char *word, enum hash_kind *kind, char text[HASH_TEXT_MAX]);

#endif
