/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/range.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/error.h"

/* Addresses are free, but mapping a file again elsewhere costs 20 ms per GiB through a BAR: so a
 * file can grow eightfold in place. A large file can grow twofold, because a process has 128 TiB of
 * addresses. */
#define ROOM_MIN   (64ULL << 20)
#define ROOM_LARGE (16ULL << 30)

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

size_t client_range_room(size_t bytes)
{
	size_t room = ROOM_MIN / 2;

	while (room < bytes && room <= SIZE_MAX / 4)
		room *= 2;
	if (room < bytes)
		return bytes;
	return room < ROOM_LARGE && room > ROOM_MIN / 2 ? 8 * room : 2 * room;
}

static char *address_reserve(size_t bytes)
{
	size_t align = CLIENT_CHUNK_ALIGN;
	char *at = mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);

	if (at == MAP_FAILED)
		return NULL;
	char *base = (char *)round_up((uintptr_t)at, align);
	if (base > at)
		munmap(at, (size_t)(base - at));
	munmap(base + bytes, align - (size_t)(base - at));
	return base;
}

int client_range_reserve(struct client_range *range, size_t bytes)
{
	size_t room = client_range_room(bytes);
	char *base = address_reserve(room);

	if (!base) {
		room = round_up(bytes, CLIENT_CHUNK_ALIGN);
		base = address_reserve(room);
	}
	if (!base)
		return client_fail(ENOMEM, "no address space for a mapping of %zu bytes", bytes);
	*range = (struct client_range){.base = base, .reserved = room};
	return 0;
}

static int chunk_map_part(char *base, const struct client_chunk *chunk, size_t from, size_t to,
			  int protection)
{
	size_t start = from > chunk->offset ? from : chunk->offset;
	size_t end = to < chunk->offset + chunk->bytes ? to : chunk->offset + chunk->bytes;

	if (start >= end)
		return 0;
	void *at = mmap(base + start, end - start, protection, MAP_SHARED | MAP_FIXED, chunk->fd,
			(off_t)(start - chunk->offset));
	return at == MAP_FAILED ? client_fail(errno, "mmap: %s", strerror(errno)) : 0;
}

int client_range_map(struct client_range *range, const struct client_layout *layout, int protection)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t from = round_up(range->mapped, page), to = layout->bytes;
	int rc = 0;

	if (round_up(to, page) > range->reserved)
		return client_fail(ENOSPC, "the file has outgrown the room behind its mapping: "
					   "unmap it and map it again");
	for (uint32_t i = 0; rc == 0 && i < layout->n_chunks; i++)
		rc = chunk_map_part(range->base, &layout->chunks[i], from, to, protection);
	if (rc == 0) {
		range->mapped = to;
		return 0;
	}
	if (to > from)
		(void)mmap(range->base + from, round_up(to - from, page), PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return rc;
}

void client_range_cut(struct client_range *range)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (range->mapped)
		(void)mmap(range->base, round_up(range->mapped, page), PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	range->mapped = 0;
}

int client_layout_protection(const struct client_layout *layout)
{
	return layout->flags & GPUMEM_LAYOUT_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
}

void client_range_free(struct client_range *range)
{
	if (range->base)
		munmap(range->base, range->reserved);
	*range = (struct client_range){0};
}
