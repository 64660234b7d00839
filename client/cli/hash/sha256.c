/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/hash/sha256.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

/* The functions of <openssl/evp.h> that are used; the build needs no header of OpenSSL. */
struct sha256 {
	void *library, *context;
	void *(*context_new)(void);
	void (*context_free)(void *context);
	const void *(*algorithm)(void);
	int (*init)(void *context, const void *algorithm, void *engine);
	int (*update)(void *context, const void *bytes, size_t length);
	int (*final)(void *context, unsigned char *digest, unsigned *length);
};

static int libcrypto_load(struct sha256 *sum)
{
	const struct {
		const char *name;
		void *at;
	} symbols[] = {
	    {"EVP_MD_CTX_new", &sum->context_new}, {"EVP_MD_CTX_free", &sum->context_free},
	    {"EVP_sha256", &sum->algorithm},	   {"EVP_DigestInit_ex", &sum->init},
	    {"EVP_DigestUpdate", &sum->update},	   {"EVP_DigestFinal_ex", &sum->final},
	};

	sum->library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
	for (unsigned i = 0; sum->library && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*(void **)symbols[i].at = dlsym(sum->library, symbols[i].name);
		if (!*(void **)symbols[i].at)
			return -ELIBACC;
	}
	return sum->library ? 0 : -ELIBACC;
}

int sha256_new(struct sha256 **new_sum)
{
	struct sha256 *sum = calloc(1, sizeof(*sum));
	int error = sum ? libcrypto_load(sum) : -ENOMEM;

	if (!error) {
		sum->context = sum->context_new();
		error = sum->context && sum->init(sum->context, sum->algorithm(), NULL) == 1
			    ? 0
			    : -ENOMEM;
	}
	if (error)
		sha256_free(sum);
	else
		*new_sum = sum;
	return error;
}

void sha256_update(struct sha256 *sum, const void *bytes, size_t length)
{
	sum->update(sum->context, bytes, length);
}

void sha256_digest(struct sha256 *sum, unsigned char digest[SHA256_BYTES])
{
	sum->final(sum->context, digest, NULL);
}

void sha256_free(struct sha256 *sum)
{
	if (!sum)
		return;
	if (sum->context)
		sum->context_free(sum->context);
	if (sum->library)
		dlclose(sum->library);
	free(sum);
}
