/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/driver_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ABSENCES 16

int driver_load(const char *soname, const struct driver_symbol *symbols, size_t n, void *functions,
		char *reason, size_t size, void **library)
{
	void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		const char *message = dlerror();
		snprintf(reason, size, "%s", message ? message : soname);
		return -ENODEV;
	}
	for (size_t i = 0; i < n; i++) {
		void *function = dlsym(handle, symbols[i].name);
		if (!function && symbols[i].need == REQUIRED) {
			snprintf(reason, size, "%s has no %s: the driver is too old", soname,
				 symbols[i].name);
			dlclose(handle);
			return -ENODEV;
		}
		memcpy((char *)functions + symbols[i].field, &function, sizeof(function));
	}
	*library = handle;
	return 0;
}

/* Libraries that were not loaded when the process had loaded so many in all: looking for one on the
 * disk takes 0.1 ms, and programs that use no GPU ask at each copy out of a mapping. */
static struct absence {
	const char *_Atomic soname;
	atomic_ullong loads;
} driver_absences[ABSENCES];

static int loads_get(struct dl_phdr_info *info, size_t bytes, void *loads)
{
	(void)bytes;
	*(unsigned long long *)loads = info->dlpi_adds;
	return 1;
}

/* NULL: the table is full. */
static struct absence *absence_find(const char *soname)
{
	for (unsigned i = 0; i < ABSENCES; i++) {
		const char *free = NULL;

		if (atomic_compare_exchange_strong(&driver_absences[i].soname, &free, soname) ||
		    strcmp(free, soname) == 0)
			return &driver_absences[i];
	}
	return NULL;
}

bool driver_is_loaded(const char *soname)
{
	struct absence *absence = absence_find(soname);
	unsigned long long loads = 0;

	dl_iterate_phdr(loads_get, &loads);
	if (absence && loads && atomic_load(&absence->loads) == loads)
		return false;
	void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	else if (absence)
		atomic_store(&absence->loads, loads);
	return library != NULL;
}
