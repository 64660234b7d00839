/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* CPU addresses of GPU memory, through the best of the ways of cuda/bar.h: the chunks are mapped
 * side by side into one reserved range. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "client/core/error.h"
#include "client/gpu/cuda/bar.h"
#include "client/gpu/cuda_ops.h"

struct host_map {
	struct client_range range;
	struct client_bar *bar;
	struct client_bar_piece *pieces;
	uint32_t n_pieces;
};

/* Frees the reservation from a byte on; the bytes before belong to the pieces. */
static void range_free_from(const struct client_range *range, size_t from)
{
	if (from < range->reserved)
		munmap(range->base + from, range->reserved - from);
}

/* Unmaps the pieces from first on, and the room behind them. Any thread may map an address that a
 * way has unmapped, so this function does not touch that address again. */
static void pieces_unmap(struct host_map *map, uint32_t first)
{
	size_t end = 0, bytes_kept = 0;

	for (uint32_t i = 0; i < map->n_pieces; i++) {
		if (i == first)
			bytes_kept = end;
		if ((char *)map->pieces[i].at == map->range.base + end)
			end += map->pieces[i].bytes;
	}
	if (first >= map->n_pieces)
		bytes_kept = end;
	range_free_from(&map->range, end);
	for (uint32_t i = first; i < map->n_pieces; i++)
		client_bar_unmap(map->bar, &map->pieces[i]);
	map->n_pieces = first;
	map->range.reserved = bytes_kept;
}

/* Accepts a mapping that could not be moved to its place, for a file of one chunk. There is no room
 * behind such a mapping. */
static int piece_accept_elsewhere(struct host_map *map, const struct client_layout *layout,
				  char *reason)
{
	const struct client_bar_piece *piece = &map->pieces[0];

	if (layout->n_chunks > 1) {
		snprintf(reason, BAR_REASON_MAX,
			 "the file has %u chunks, and each is mapped at an address of its own",
			 layout->n_chunks);
		return -ENOTSUP;
	}
	range_free_from(&map->range, 0);
	map->range = (struct client_range){.base = piece->at, .reserved = piece->bytes};
	return 0;
}

static int piece_map(struct host_map *map, const struct client_layout *layout, uint32_t i,
		     char *reason)
{
	const struct client_chunk *chunk = &layout->chunks[i];
	char *at = map->range.base + chunk->offset;

	int rc = client_bar_map(map->bar, chunk, at, &map->pieces[i], reason);
	if (rc < 0)
		return rc;
	map->n_pieces = i + 1;
	if (map->pieces[i].at != at)
		rc = piece_accept_elsewhere(map, layout, reason);
	return rc;
}

static int pieces_map(struct host_map *map, const struct client_layout *layout, char *reason)
{
	uint32_t had = map->n_pieces;
	struct client_bar_piece *pieces =
	    realloc(map->pieces, layout->n_chunks * sizeof(*map->pieces));
	int rc = 0;

	if (!pieces) {
		snprintf(reason, BAR_REASON_MAX, "no memory");
		return -ENOMEM;
	}
	map->pieces = pieces;
	for (uint32_t i = had; rc == 0 && i < layout->n_chunks; i++)
		rc = piece_map(map, layout, i, reason);
	if (rc == 0)
		map->range.mapped = layout->bytes;
	return rc;
}

static void host_map_undo(struct host_map *map)
{
	pieces_unmap(map, 0);
	free(map->pieces);
}

static int host_map_through(struct host_map *map, const struct client_layout *layout, int file,
			    char *reason)
{
	int rc = client_range_reserve(&map->range, layout->bytes);
	if (rc < 0) {
		snprintf(reason, BAR_REASON_MAX, "no address space");
		return rc;
	}
	rc = pieces_map(map, layout, reason);
	if (rc == 0)
		rc = client_bar_prove(map->bar, map->range.base + layout->skip, layout->size, file,
				      layout->flags & GPUMEM_LAYOUT_PRIVATE ? CLIENT_BAR_COPY
									    : CLIENT_BAR_FILE,
				      reason);
	if (rc < 0)
		host_map_undo(map);
	return rc;
}

/* Whether memory of the file is in system memory. A private copy is on the GPU. */
static bool has_left_the_gpu(const struct client_layout *layout, int file)
{
	char text[128];

	if (layout->flags & GPUMEM_LAYOUT_PRIVATE)
		return false;
	ssize_t n = fgetxattr(file, "user.gpumem.resident", text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return strstr(text, " host:");
}

static int rank_first(const struct client_layout *layout, int file)
{
	if (layout->kind == GPUMEM_KIND_VULKAN)
		return CLIENT_BAR_VULKAN;
	return has_left_the_gpu(layout, file) ? CLIENT_BAR_SYSTEM : 0;
}

/* Maps through the best way that works. If no way works, the error text has the reason of each way,
 * and the errno is that of a full BAR, which can have room again, or else ENOTSUP. */
static int host_map_best(struct host_map *map, const struct client_layout *layout, int file)
{
	char reasons[240] = "", reason[BAR_REASON_MAX];
	int error = ENOTSUP, last = INT_MAX, rank = rank_first(layout, file);

	if (rank == CLIENT_BAR_VULKAN)
		last = rank;
	for (; rank <= last; rank++) {
		reason[0] = '\0';
		*map = (struct host_map){0};
		int rc = client_bar_open(layout->uuid, rank, &map->bar, reason);
		if (rc == -ENOENT)
			break;
		if (rc == 0)
			rc = host_map_through(map, layout, file, reason);
		if (rc == 0)
			return 0;
		if (rc == -ENOSPC || rc == -ENOMEM)
			error = -rc;
		size_t at = strlen(reasons);
		snprintf(reasons + at, sizeof(reasons) - at, "%s%.110s", at ? "; " : "", reason);
	}
	return client_fail(error, "no CPU mapping of the file's GPU memory works here: %s",
			   reasons);
}

int cuda_host_map(struct client_host_map *map, const struct client_layout *layout, int file)
{
	if (map->range.base)
		return 0;
	struct host_map *new_map = malloc(sizeof(*new_map));
	if (!new_map)
		return client_fail(ENOMEM, "no memory");
	int rc = host_map_best(new_map, layout, file);
	if (rc < 0)
		free(new_map);
	else
		*map = (struct client_host_map){.range = new_map->range, .state = new_map};
	return rc;
}

int cuda_host_extend(struct client_host_map *map, const struct client_layout *layout)
{
	struct host_map *state = map->state;
	uint32_t had = state->n_pieces;
	char reason[BAR_REASON_MAX];

	if (layout->bytes > state->range.reserved)
		return client_fail(ENOSPC, "the file has outgrown the room behind its mapping: "
					   "unmap it and map it again");
	int rc = pieces_map(state, layout, reason);
	if (rc < 0)
		pieces_unmap(state, had);
	map->range = state->range;
	if (rc == 0)
		return 0;
	return client_fail(rc == -ENOTSUP ? ENOSPC : -rc, "mapping the new part of the file: %s",
			   reason);
}

void cuda_host_unmap(struct client_host_map *map)
{
	struct host_map *state = map->state;

	if (state)
		host_map_undo(state);
	free(state);
	*map = (struct client_host_map){0};
}

/* Frees what is left of a range of which another thread has taken a part. */
static void host_map_lose(struct client_host_map *map, size_t end)
{
	struct host_map *state = map->state;

	for (uint32_t i = 0; i < state->n_pieces; i++)
		if (state->pieces[i].at)
			munmap(state->pieces[i].at, state->pieces[i].bytes);
	range_free_from(&state->range, end);
	cuda_host_forget(map);
}

void cuda_host_park(struct client_host_map *map)
{
	struct host_map *state = map->state;
	bool all = true;
	size_t end = 0;

	for (uint32_t i = 0; i < state->n_pieces; i++) {
		struct client_bar_piece *piece = &state->pieces[i];

		end += piece->bytes;
		if (client_bar_park(state->bar, piece))
			continue;
		piece->at = NULL;
		all = false;
	}
	if (!all) {
		host_map_lose(map, end);
		return;
	}
	state->n_pieces = 0;
	state->range.mapped = 0;
	map->range = state->range;
}

void cuda_host_forget(struct client_host_map *map)
{
	struct host_map *state = map->state;

	if (state)
		free(state->pieces);
	free(state);
	*map = (struct client_host_map){0};
}

const char *cuda_host_provider(const struct client_host_map *map)
{
	return ((const struct host_map *)map->state)->bar->way->name;
}

const struct client_cuda *cuda_host_driver(const struct client_host_map *map)
{
	const struct host_map *state = map->state;

	return state ? state->bar->cuda : NULL;
}
