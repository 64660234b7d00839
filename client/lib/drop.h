/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_LIB_DROP_H
#define CLIENT_LIB_DROP_H

#include <stdint.h>

/* Ends the leases of a file (GPUMEM_IOC_DROP). fd is open for reading. 0 with the number of ended
 * leases, or -errno with a text. */
int client_drop_leases(int fd, uint64_t *leases);

#endif
