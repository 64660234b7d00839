/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Whether the pages of a private mapping are still the file's. */
#ifndef CLIENT_PRELOAD_COPY_PAGES_H
#define CLIENT_PRELOAD_COPY_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* False: the program has stored into one of the pages, or the kernel does not tell. Takes 5 ns for
 * a page that was never touched, and 40 ns for a page that is there (of 4 KiB, on a slow machine).
 */
bool pages_are_of_file(const void *address, size_t bytes);

#endif
