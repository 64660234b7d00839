/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of attributes, by the names that users type. */
#ifndef CLIENT_CLI_ATTRIBUTES_ATTRIBUTES_H
#define CLIENT_CLI_ATTRIBUTES_ATTRIBUTES_H

#include "client/cli/core/cli.h"
#include "common/attributes.h"

/* Finds an attribute by its name, with or without "user.gpumem." in front; NULL: no such attribute.
 */
const struct attribute *attribute_find(const char *name);
/* Says that there is no such attribute, and which may be meant. Gives the exit status. */
int attribute_unknown(const struct command *command, const char *name);

#endif
