/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/attributes.h"

#include <string.h>

#include "common/closest.h"

const struct attribute *attribute_find(const char *name)
{
	if (strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0)
		name += strlen(ATTRIBUTES_PREFIX);
	for (const struct attribute *one = attributes; one->name; one++)
		if (strcmp(one->name, name) == 0)
			return one;
	return NULL;
}

int attribute_unknown(const struct command *command, const char *name)
{
	struct closest closest = {.word = name};

	for (const struct attribute *one = attributes; one->name; one++)
		closest_try(&closest, one->name);
	if (closest.name)
		return cli_usage(command, "unknown attribute %s: did you mean %s?", name,
				 closest.name);
	return cli_usage(command, "unknown attribute %s (see gpumem(7))", name);
}
