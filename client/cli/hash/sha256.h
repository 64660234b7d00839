/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* SHA-256 by OpenSSL's libcrypto, which is loaded for the first sum: linking libcrypto would delay
 * the start of every command by 4 ms. */
#ifndef CLIENT_CLI_HASH_SHA256_H
#define CLIENT_CLI_HASH_SHA256_H

#include <stddef.h>

#define SHA256_BYTES 32

struct sha256;

/* -ELIBACC: libcrypto is missing. */
int sha256_new(struct sha256 **new_sum);
void sha256_update(struct sha256 *sum, const void *bytes, size_t length);
void sha256_digest(struct sha256 *sum, unsigned char digest[SHA256_BYTES]);
void sha256_free(struct sha256 *sum); /* or NULL */

#endif
