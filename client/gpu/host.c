/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/core/error.h"

static bool is_bar(const struct client_layout *layout)
{
	return layout->kind == GPUMEM_KIND_DEVICE;
}

static int protection(const struct client_layout *layout)
{
	return layout->flags & GPUMEM_LAYOUT_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
}

/* The reservation from a byte on; what lies before is the pieces'. */
static void give_rest(const struct client_range *range, size_t from)
{
	if (from < range->reserved)
		munmap(range->base + from, range->reserved - from);
}

/* Pieces from first on, and the room behind them: what a way unmaps is anybody's from then on, and
 * is not to be touched again. */
static void unmap_pieces(struct client_host_map *map, uint32_t first)
{
	size_t end = 0, kept = 0;

	for (uint32_t i = 0; i < map->n_pieces; i++) {
		if (i == first)
			kept = end;
		if ((char *)map->pieces[i].at == map->range.base + end)
			end += map->pieces[i].bytes;
	}
	if (first >= map->n_pieces)
		kept = end;
	give_rest(&map->range, end);
	for (uint32_t i = first; i < map->n_pieces; i++)
		client_bar_unmap(map->bar, &map->pieces[i]);
	map->n_pieces = first;
	map->range.reserved = kept;
}

/* A mapping that could not be put in its place will do where it is, for a file of one chunk: then
 * there is no room behind it. */
static int accept_elsewhere(struct client_host_map *map, const struct client_layout *layout,
			    char *why)
{
	const struct client_bar_piece *piece = &map->pieces[0];

	if (layout->n_chunks > 1) {
		snprintf(why, BAR_REASON_MAX,
			 "the file has %u chunks, and each is mapped at an address of its own",
			 layout->n_chunks);
		return -ENOTSUP;
	}
	give_rest(&map->range, 0);
	map->range = (struct client_range){.base = piece->at, .reserved = piece->bytes};
	return 0;
}

static int map_piece(struct client_host_map *map, const struct client_layout *layout, uint32_t i,
		     char *why)
{
	const struct client_chunk *chunk = &layout->chunks[i];
	char *at = map->range.base + chunk->offset;

	int rc = client_bar_map(map->bar, chunk, at, &map->pieces[i], why);
	if (rc < 0)
		return rc;
	map->n_pieces = i + 1;
	if (map->pieces[i].at != at)
		rc = accept_elsewhere(map, layout, why);
	return rc;
}

static int map_pieces(struct client_host_map *map, const struct client_layout *layout, char *why)
{
	uint32_t had = map->n_pieces;
	struct client_bar_piece *pieces =
	    realloc(map->pieces, layout->n_chunks * sizeof(*map->pieces));
	int rc = 0;

	if (!pieces) {
		snprintf(why, BAR_REASON_MAX, "no memory");
		return -ENOMEM;
	}
	map->pieces = pieces;
	for (uint32_t i = had; rc == 0 && i < layout->n_chunks; i++)
		rc = map_piece(map, layout, i, why);
	if (rc == 0)
		map->range.mapped = layout->bytes;
	return rc;
}

static void unmap_bar(struct client_host_map *map)
{
	unmap_pieces(map, 0);
	free(map->pieces);
	*map = (struct client_host_map){0};
}

static int map_through(struct client_bar *bar, struct client_host_map *map,
		       const struct client_layout *layout, int file, char *why)
{
	struct client_host_map made = {.bar = bar};

	int rc = client_range_reserve(&made.range, layout->bytes);
	if (rc < 0) {
		snprintf(why, BAR_REASON_MAX, "no address space");
		return rc;
	}
	rc = map_pieces(&made, layout, why);
	if (rc == 0)
		rc = client_bar_prove(
		    bar, made.range.base, layout->size, file,
		    layout->flags & GPUMEM_LAYOUT_PRIVATE ? CLIENT_BAR_COPY : CLIENT_BAR_FILE, why);
	if (rc < 0)
		unmap_bar(&made);
	else
		*map = made;
	return rc;
}

/* Through the best way that works; when none does, what was wrong with each, and the errno that
 * says most: a full BAR can have room again. */
static int map_bar(struct client_host_map *map, const struct client_layout *layout, int file)
{
	char all[240] = "", why[BAR_REASON_MAX];
	struct client_bar *bar;
	int error = ENOTSUP;

	for (unsigned turn = 0;; turn++) {
		why[0] = '\0';
		int rc = client_bar_open(layout->uuid, turn, &bar, why);
		if (rc == -ENOENT)
			break;
		if (rc == 0)
			rc = map_through(bar, map, layout, file, why);
		if (rc == 0)
			return 0;
		if (rc == -ENOSPC || rc == -ENOMEM)
			error = -rc;
		size_t at = strlen(all);
		snprintf(all + at, sizeof(all) - at, "%s%.110s", at ? "; " : "", why);
	}
	return client_fail(error, "no CPU mapping of the file's GPU memory works here: %s", all);
}

int client_host_map(struct client_host_map *map, const struct client_layout *layout, int file)
{
	struct client_host_map made = {0};

	if (map->range.base)
		return 0;
	if (is_bar(layout))
		return map_bar(map, layout, file);
	int rc = client_range_reserve(&made.range, layout->bytes);
	if (rc < 0)
		return rc;
	rc = client_range_map(&made.range, layout, protection(layout));
	if (rc < 0)
		client_range_free(&made.range);
	else
		*map = made;
	return rc;
}

int client_host_extend(struct client_host_map *map, const struct client_layout *layout)
{
	uint32_t had = map->n_pieces;
	char why[BAR_REASON_MAX];

	if (!map->bar)
		return client_range_map(&map->range, layout, protection(layout));
	if (layout->bytes > map->range.reserved)
		return client_fail(ENOSPC, "the file has outgrown the room behind its mapping: "
					   "unmap it and map it again");
	int rc = map_pieces(map, layout, why);
	if (rc == 0)
		return 0;
	unmap_pieces(map, had);
	return client_fail(rc == -ENOTSUP ? ENOSPC : -rc, "mapping what the file grew by: %s", why);
}

void client_host_unmap(struct client_host_map *map)
{
	if (map->bar)
		unmap_bar(map);
	else
		client_range_free(&map->range);
}

const char *client_host_provider(const struct client_host_map *map)
{
	if (!map->range.base)
		return "";
	return map->bar ? map->bar->way->name : "mmap";
}
