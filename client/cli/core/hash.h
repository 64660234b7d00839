/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checksums of bytes and of files, as gpumem verify has them. */
#ifndef CLIENT_CLI_CORE_HASH_H
#define CLIENT_CLI_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3, of 128 bits, SHA-256, and tree.h's */
enum hash_kind { HASH_64, HASH_128, HASH_SHA256, HASH_TREE };

/* Lower-case hex digits, 16, 32 or 64 of them, and a NUL. */
#define HASH_TEXT_MAX 65

/* "xxh3", "xxh128", "sha256", "xxh64-tree". */
const char *hash_name(enum hash_kind kind);
/* The other way round: 0 or -EINVAL. */
int hash_find(const char *name, enum hash_kind *kind);

uint64_t hash_bytes(const void *bytes, size_t length);

/* The sum, but for a tree's, of what an open file holds, read by several threads and hashed in
 * order; 0 or -errno (-ELIBACC: what computes sha256 is not here). bytes: how many there were. */
int hash_file(int fd, enum hash_kind kind, unsigned threads, char text[HASH_TEXT_MAX],
	      uint64_t *bytes);

/* Whether a word can be a sum: 16 hex digits, or 32, behind "xxh3:", "XXH3_" or the like, 64 or
 * "sha256:" and those, or "xxh64-tree:" and 16; the digits in lower case are put into text. 0 or
 * -EINVAL. */
int hash_parse(const char *word, enum hash_kind *kind, char text[HASH_TEXT_MAX]);

#endif
