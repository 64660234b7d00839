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

static bool name_begins(const char *path, const char *prefix)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash ? slash + 1 : path, prefix, strlen(prefix)) == 0;
}

/* A driver that copies out of a mapping may hold locks that a copy by the GPU would wait for.
 * _dl_find_object takes no lock, so a call is safe in any thread and at any time. Without this
 * function, before glibc 2.35, all copies are the CPU's. Its address comes from dlsym(3): a
 * reference, even a weak one, would bind the library to glibc 2.35. */
static bool caller_may_be_served(void *returns_to)
{
	struct dl_find_object found;

	if (!real._dl_find_object || real._dl_find_object(returns_to, &found) != 0)
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
