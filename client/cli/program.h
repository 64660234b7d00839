/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds programs and other files that are installed or built beside gpumem, and sets the
 * environment of the programs that gpumem executes. */
#ifndef CLIENT_CLI_PROGRAM_H
#define CLIENT_CLI_PROGRAM_H

#include <limits.h>

/* The folder of this program's file: 0 or -errno. */
int program_folder(char folder[PATH_MAX]);

/* The first of the places that has the file, as an allocated path without symbolic links; NULL: no
 * place has the file. Places are relative to the folder, as patterns of glob(3), and the list ends
 * with NULL. A file of a user other than root and the owner of this program is no match: some of
 * the places may be in a folder such as /tmp, where any user can put a file. */
char *program_search(const char *folder, const char *const *places, const char *file);

/* Puts the word first in a list in the environment, unless the list has the word. The list's words
 * are separated by any of the characters, and a colon is written. 0 or -errno. */
int environment_prepend(const char *name, const char *separators, const char *word);

#endif
