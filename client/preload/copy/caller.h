/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The functions that this library replaces in libraries other than libc. A process may have several
 * versions of such a library, of which each caller is bound to its own. */
#ifndef CLIENT_PRELOAD_COPY_CALLER_H
#define CLIENT_PRELOAD_COPY_CALLER_H

/* The function that the code at the return address would have called without this library, or NULL.
 * name: a string constant. */
void *caller_function(const char *name, const void *returns_to);

#endif
