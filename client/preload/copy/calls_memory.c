/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies in memory. A program that moves weights to a GPU through pinned memory copies them out of
 * the mapping by memcpy(3), as safetensors does from version 0.8 on. The GPU writes the bytes to
 * the pinned memory instead, and the mapping's pages are never filled. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "client/preload/copy/source.h"
#include "client/preload/core/calls.h"

/* From glibc 2.35 on. Takes no lock, so a call is safe in any thread and at any time. Without this
 * function all copies are the CPU's. */
int _dl_find_object(void *address, struct dl_find_object *found) __attribute__((weak));

static bool name_begins(const char *path, const char *with)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash ? slash + 1 : path, with, strlen(with)) == 0;
}

/* A driver that copies out of a mapping may hold locks that a copy by the GPU would wait for. */
static bool caller_may_be_served(void *returns_to)
{
	struct dl_find_object found;

	if (!_dl_find_object || _dl_find_object(returns_to, &found) != 0)
		return false;
	const char *path = found.dlfo_link_map->l_name;
	return !name_begins(path, "libcuda") && !name_begins(path, "libnvidia-");
}

static bool memory_copy(void *to, const void *from, size_t bytes, void *returns_to)
{
	return source_exists() && caller_may_be_served(returns_to) &&
	       source_copy_to_memory(to, from, bytes);
}

#define MEMORY_CALL(symbol)                                                                        \
	CALL(#symbol, void *, call_##symbol, void *to, const void *from, size_t bytes)             \
	{                                                                                          \
		if (__builtin_expect(bytes >= SOURCE_USE, 0) &&                                    \
		    memory_copy(to, from, bytes, __builtin_return_address(0)))                     \
			return to;                                                                 \
		return real.symbol(to, from, bytes);                                               \
	}
MEMORY_CALL(memcpy)
MEMORY_CALL(memmove)
