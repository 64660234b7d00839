/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The options of -o: our own options, one row each, and the generic options of mount(8). Only
 * options.c and table.c use this header. */
#ifndef FS_OPTIONS_TABLE_H
#define FS_OPTIONS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "fs/options/options.h"

struct option_row {
	const char *name;
	const char *values;   /* the possible values; empty: a flag */
	const char *fallback; /* parsed before the command line; NULL: no default */
	const char *help;
	/* Parses text into the field; logs errors. */
	int (*parse)(const struct option_row *row, const char *text, struct options *options);
	size_t field; /* offset in struct options */
	uint64_t min, max;
};

/* The row of our own option whose name is name[0..length); NULL: not our own option. */
const struct option_row *option_find(const char *name, size_t length);
const struct option_row *option_at(unsigned index); /* NULL past the end */

/* OPTION_HANDED_ON: for libfuse. OPTION_IGNORED: accepted without effect, because the option asks
 * for the default or is only for mount(8). */
enum option_generic { OPTION_UNKNOWN, OPTION_HANDED_ON, OPTION_IGNORED };
enum option_generic option_generic(const char *name, size_t length);

#endif
