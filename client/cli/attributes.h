/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The attributes of gpumem(7), for listing, messages and completion. The daemon alone decides. */
#ifndef CLIENT_CLI_ATTRIBUTES_H
#define CLIENT_CLI_ATTRIBUTES_H

#include <stdbool.h>

struct attribute {
	const char *name;    /* without user.gpumem. */
	const char *choices; /* "auto 4K 64K"; empty: it can only be read */
	const char *help;
	bool lines; /* a value of many lines, which is not listed with the others */
};

/* Up to one without a name. */
extern const struct attribute attributes[];
/* NULL: there is none of this name; "user.gpumem." may stand before it. */
const struct attribute *attribute_find(const char *name);

#endif
