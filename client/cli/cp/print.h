/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_CLI_CP_PRINT_H
#define CLIENT_CLI_CP_PRINT_H

#include <stdbool.h>

/* Whether a target means standard output. */
bool cp_prints_to(const char *word);
/* Writes the sources to standard output. Gives the exit status, and whether a source or standard
 * output is on a mount. */
int cp_print(char **words, int count, bool *uses_mount);

#endif
