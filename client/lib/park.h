/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_LIB_PARK_H
#define CLIENT_LIB_PARK_H

struct gpumem;

/* Whether the memory behind the file's mappings can be given up, and the addresses kept. Under the
 * file's lock. */
int client_may_park(const struct gpumem *file);
/* Unmaps the layout, for the device and the CPU, and keeps the addresses: 0 or the device's -errno,
 * and nothing is mapped. client_mappings_take maps the layout there: 0 or -errno. Both leave what
 * was not mapped. Under the file's lock, as the next. */
int client_mappings_give(struct gpumem *file);
int client_mappings_take(struct gpumem *file);
/* Ends the lease of a file that is not mapped: it is parked. */
void client_lease_give(struct gpumem *file);
/* gpumem_park and gpumem_unpark, under the file's lock. */
int client_park(struct gpumem *file);
int client_unpark(struct gpumem *file);

#endif
