/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A reserved range of CPU addresses, with room behind what is mapped so that a file can grow in
 * place; and system memory mapped into one. */
#ifndef CLIENT_CORE_RANGE_H
#define CLIENT_CORE_RANGE_H

#include <stddef.h>

#include "client/core/answer.h"

struct client_range {
	char *base; /* NULL: none */
	size_t reserved, mapped;
};

/* How much to reserve for so many bytes: at least twice that, and 64 MiB; eight times below 16 GiB.
 */
size_t client_range_room(size_t bytes);

/* Reserves room for bytes, aligned to 2 MiB; with less to spare where address space is short. 0 or
 * -ENOMEM. */
int client_range_reserve(struct client_range *range, size_t bytes);

/* Maps the chunks' objects from where the range's mapping ends to the end of the layout. 0, -ENOSPC
 * when there is no room left, or another -errno with the range as it was. */
int client_range_map(struct client_range *range, const struct client_layout *layout,
		     int protection);

/* How mmap(2) may map the layout: PROT_READ, or with PROT_WRITE. */
int client_layout_protection(const struct client_layout *layout);

void client_range_free(struct client_range *range);

#endif
