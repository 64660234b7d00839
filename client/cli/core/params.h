/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem set of a mount: what .gpumem/params takes, with the reason where it does not. */
#ifndef CLIENT_CLI_CORE_PARAMS_H
#define CLIENT_CLI_CORE_PARAMS_H

#include "client/cli/core/mounts.h"

/* Words "name=value": all of them are set, or none. The exit status. */
int params_set(const struct place *place, int count, char **words);

#endif
