/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/copy/caller.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/preload/core/own.h"

/* A place in the program that calls a function. Sites are never removed. */
struct site {
	const char *name;
	const void *returns_to;
	void *function;
	struct site *next;
};

static struct site *_Atomic call_sites;

static bool is_own(const void *function)
{
	Dl_info function_info, own_info;

	return dladdr(function, &function_info) && dladdr((const void *)&call_sites, &own_info) &&
	       function_info.dli_fbase == own_info.dli_fbase;
}

struct search {
	const char *prefix; /* of the file's name */
	char path[4096];
};

static int library_match(struct dl_phdr_info *info, size_t bytes, void *argument)
{
	struct search *search = argument;
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	(void)bytes;
	if (strncmp(name, search->prefix, strlen(search->prefix)) != 0)
		return 0;
	snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
	return 1;
}

/* Looks in the first library with such a name. The handle stays open. */
static void *function_find_loaded(const char *name)
{
	struct search search = {.prefix =
				    strncmp(name, "cuda", 4) == 0 ? "libcudart.so" : "libcuda.so"};

	if (!dl_iterate_phdr(library_match, &search))
		return NULL;
	void *library = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
	return library ? dlsym(library, name) : NULL;
}

/* Looks in the caller's library and in the libraries that the caller was linked with. The handle
 * stays open, so that the function stays loaded. The last call of a function may be a jump, and
 * then the caller found here is the caller's caller. */
static void *function_find(const char *name, const void *returns_to)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (dladdr1(returns_to, &info, (void **)&map, RTLD_DL_LINKMAP) && map && *map->l_name) {
		void *library = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		void *found = library ? dlsym(library, name) : NULL;
		if (found && !is_own(found))
			return found;
	}
	void *next = dlsym(RTLD_NEXT, name);
	return next ? next : function_find_loaded(name);
}

void *caller_function(const char *name, const void *returns_to)
{
	struct site *newest = atomic_load_explicit(&call_sites, memory_order_acquire);

	for (const struct site *at = newest; at; at = at->next)
		if (at->returns_to == returns_to && at->name == name)
			return at->function;
	INSIDE();
	struct site *site = malloc(sizeof(*site));
	void *function = function_find(name, returns_to);
	if (!site || !function) {
		free(site);
		return function;
	}
	*site = (struct site){name, returns_to, function, newest};
	while (!atomic_compare_exchange_weak(&call_sites, &site->next, site))
		;
	return function;
}
