/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The directories in which frameworks keep compiled code. */
#ifndef CLIENT_CLI_CACHES_H
#define CLIENT_CLI_CACHES_H

/* Sets the variables of the environment that are not set yet to directories below path, which are
 * made. An exit status; an error was reported. */
int caches_set(const char *path);

#endif
