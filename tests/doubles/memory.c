/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/doubles/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define IMPORTS_MAX 64
#define HEADER	    4096

static struct import {
	void *address; /* NULL: free */
	size_t bytes;
} imports[IMPORTS_MAX];

void double_misuse(const char *what)
{
	fprintf(stderr, "double: %s\n", what);
	abort();
}

bool double_setting(const char *name)
{
	return getenv(name) != NULL;
}

bool double_fails(const char *function)
{
	const char *name = getenv("GPUMEM_DOUBLE_FAIL");

	return name && strcmp(name, function) == 0;
}

void double_uuid(int gpu, uint8_t uuid[16])
{
	const char *text = getenv("GPUMEM_DOUBLE_UUID");
	char digits[3] = "";

	memset(uuid, gpu + 1, 16);
	if (gpu != DOUBLE_OWN || !text)
		return;
	for (unsigned i = 0; i < 16 && strlen(text) == 32; i++) {
		memcpy(digits, text + 2 * i, 2);
		uuid[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
}

static struct import *import_find(const void *address)
{
	for (unsigned i = 0; i < IMPORTS_MAX; i++)
		if (imports[i].address == address)
			return &imports[i];
	double_misuse(address ? "memory that was not imported is freed" : "too many imports");
}

void *double_import(int fd, size_t bytes)
{
	struct import *import = import_find(NULL);
	struct stat st;

	if (fstat(fd, &st) < 0 || (size_t)st.st_size < HEADER + bytes)
		return NULL;
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, HEADER);
	if (address == MAP_FAILED)
		return NULL;
	*import = (struct import){address, bytes};
	return address;
}

void double_free(void *address)
{
	struct import *import = import_find(address);

	munmap(address, import->bytes);
	*import = (struct import){0};
}

__attribute__((destructor)) static void double_end(void)
{
	for (unsigned i = 0; i < IMPORTS_MAX; i++)
		if (imports[i].address)
			fprintf(stderr, "double: %zu bytes were not freed\n", imports[i].bytes);
}
