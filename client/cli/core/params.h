/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem get and set for a mount: .gpumem/params, with a reason for each value that is refused. */
#ifndef CLIENT_CLI_CORE_PARAMS_H
#define CLIENT_CLI_CORE_PARAMS_H

#include <jansson.h>

#include "client/cli/core/mounts.h"

/* Sets all words "name=value", or none of them. Gives the exit status. */
int params_set(const struct place *place, int count, char **words);

/* Adds the parameters that can be set, by name; with filter only the parameter of that name, or of
 * that name of each GPU. How many there are, or -errno. */
int params_get(const struct place *place, const char *filter, json_t *values);

#endif
