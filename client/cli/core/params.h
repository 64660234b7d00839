/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem set for a mount: writes .gpumem/params, with a reason for each value that is refused. */
#ifndef CLIENT_CLI_CORE_PARAMS_H
#define CLIENT_CLI_CORE_PARAMS_H

#include "client/cli/core/mounts.h"

/* Sets all words "name=value", or none of them. Gives the exit status. */
int params_set(const struct place *place, int count, char **words);

#endif
