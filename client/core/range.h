/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A reserved range of CPU addresses, into which system memory is mapped. The room behind the
 * mapping lets a file grow in place. */
#ifndef CLIENT_CORE_RANGE_H
#define CLIENT_CORE_RANGE_H

#include <stddef.h>

#include "client/core/answer.h"

struct client_range {
	char *base; /* NULL: no range */
	size_t reserved, mapped;
};

/* The number of bytes to reserve for a mapping: at least twice its size and 64 MiB, eight times its
 * size below 16 GiB. */
size_t client_range_room(size_t bytes);

/* Reserves room for a mapping of so many bytes, aligned to 2 MiB; less room if address space is
 * short. 0 or -ENOMEM. */
int client_range_reserve(struct client_range *range, size_t bytes);

/* Maps the objects of the chunks, from the end of the mapping to the end of the layout. -ENOSPC: no
 * room is left. After an error the range is as before. */
int client_range_map(struct client_range *range, const struct client_layout *layout,
		     int protection);
/* Unmaps everything, and keeps the range. */
void client_range_cut(struct client_range *range);

/* How mmap(2) may map the layout: PROT_READ, or with PROT_WRITE. */
int client_layout_protection(const struct client_layout *layout);

void client_range_free(struct client_range *range);

#endif
