/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef CLIENT_LIB_DROP_H
#define CLIENT_LIB_DROP_H

#include <stdint.h>

/* GPUMEM_IOC_DROP on a file, which is open for reading: 0 with how many leases there were, or
 * -errno with a text. */
int client_drop_leases(int fd, uint64_t *leases);

#endif
