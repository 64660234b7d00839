/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_LIB_PARK_H
#define CLIENT_LIB_PARK_H

struct gpumem;

/* Whether the memory behind the file's mappings can be given up, and the addresses kept. Under the
 * file's lock. */
int client_may_park(const struct gpumem *file);
/* gpumem_park and gpumem_unpark, under the file's lock. */
int client_park(struct gpumem *file);
int client_unpark(struct gpumem *file);

#endif
