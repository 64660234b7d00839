/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checksums of bytes and of files, for gpumem verify and cp. */
#ifndef CLIENT_CLI_HASH_HASH_H
#define CLIENT_CLI_HASH_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3 of 64 and of 128 bits, SHA-256, and the tree of verify/tree.h. */
enum hash_kind { HASH_64, HASH_128, HASH_SHA256, HASH_TREE };

/* 16, 32 or 64 lower-case hex digits, and a NUL. */
#define HASH_TEXT_MAX 65

/* "xxh3", "xxh128", "sha256", "xxh64-tree". */
const char *hash_name(enum hash_kind kind);
/* The kind of this name: 0 or -EINVAL. */
int hash_find(const char *name, enum hash_kind *kind);

uint64_t hash_bytes(const void *bytes, size_t length);

/* Computes the sum of an open file, for all kinds but HASH_TREE. Several threads read, and one
 * hashes in order. Sets bytes to the number of bytes read. 0 or -errno; -ELIBACC: the library for
 * sha256 is missing. */
int hash_file(int fd, enum hash_kind kind, unsigned threads, char text[HASH_TEXT_MAX],
	      uint64_t *bytes);

/* Parses a sum: 16 or 32 hex digits, with "xxh3:", "XXH3_" or the like in front; 64 digits, with or
 * without "sha256:"; or "xxh64-tree:" and 16 digits. Puts the digits into text in lower case. 0 or
 * -EINVAL. */
int hash_parse(const char *word, enum hash_kind *kind, char text[HASH_TEXT_MAX]);

#endif
