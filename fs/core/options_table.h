/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What may stand after -o: our own options, one row each, and the generic ones of mount(8). Between
 * options.c and options_table.c only. */
#ifndef FS_CORE_OPTIONS_TABLE_H
#define FS_CORE_OPTIONS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "fs/core/options.h"

struct option_row {
	const char *name;
	const char *values;   /* what may follow the =; empty: a flag */
	const char *fallback; /* parsed before the command line; NULL: none */
	const char *help;
	/* Stores text at field, logging what is wrong with it. */
	int (*parse)(const struct option_row *row, const char *text, struct options *options);
	size_t field; /* offset in struct options */
	uint64_t min, max;
};

/* NULL: none of ours. name need not end at length. */
const struct option_row *option_find(const char *name, size_t length);
const struct option_row *option_at(unsigned index); /* NULL past the end */

/* Handed on to libfuse; or accepted because it asks for what is so anyway or is for mount(8) alone.
 */
enum option_generic { OPTION_UNKNOWN, OPTION_HANDED_ON, OPTION_IGNORED };
enum option_generic option_generic(const char *name, size_t length);

#endif
