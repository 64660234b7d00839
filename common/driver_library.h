/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The libraries of GPU drivers and frameworks, which are loaded at run time. */
#ifndef COMMON_DRIVER_LIBRARY_H
#define COMMON_DRIVER_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A row of a library's symbol table: which function goes where in the library's struct. */
struct driver_symbol {
	const char *name;
	size_t field; /* offset in the struct */
	enum { REQUIRED, OPTIONAL } need;
};

/* Loads a library and fills its struct: 0, or -ENODEV with the missing thing as a line in reason
 * (at most size bytes). A library stays loaded: the drivers' threads do not survive unloading. */
int driver_load(const char *soname, const struct driver_symbol *symbols, size_t n, void *functions,
		char *reason, size_t size, void **library);

/* Whether the program has loaded a library by this name. Loads nothing. */
bool driver_is_loaded(const char *soname);

#endif
