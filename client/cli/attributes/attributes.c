/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/attributes/attributes.h"

#include <string.h>

#include "common/text/closest.h"

const struct attribute *attribute_find(const char *name)
{
	if (strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0)
		name += strlen(ATTRIBUTES_PREFIX);
	for (const struct attribute *attribute = attributes; attribute->name; attribute++)
		if (strcmp(attribute->name, name) == 0)
			return attribute;
	return NULL;
}

int attribute_unknown(const struct command *command, const char *name)
{
	struct closest closest = {.word = name};

	for (const struct attribute *attribute = attributes; attribute->name; attribute++)
		closest_try(&closest, attribute->name);
	if (closest.name)
		return cli_usage(command, "unknown attribute %s: did you mean %s?", name,
				 closest.name);
	return cli_usage(command, "unknown attribute %s (see gpumem(7))", name);
}
