/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/fd_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_MIN 16

static struct kept_kind *kind_of(struct kept *held, uint64_t id)
{
	uint64_t kind = id >> KEPT_KIND_SHIFT;

	return kind < KEPT_KINDS ? &held->kinds[kind] : NULL;
}

/* Where the id is, or would be. */
static uint32_t place(const struct kept_kind *kind, uint64_t id)
{
	uint32_t low = 0, high = kind->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (kind->at[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct kept_one *find(const struct kept_kind *kind, uint64_t id)
{
	uint32_t at = place(kind, id);

	return at < kind->count && kind->at[at].id == id ? &kind->at[at] : NULL;
}

static void compact(struct kept_kind *kind)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < kind->count; i++)
		if (kind->at[i].fd >= 0)
			kind->at[left++] = kind->at[i];
	kind->count = left;
	kind->dropped = 0;
}

static int make_room(struct kept_kind *kind)
{
	if (kind->count < kind->room)
		return 0;
	uint32_t room = kind->room ? 2 * kind->room : ROOM_MIN;
	struct kept_one *more = reallocarray(kind->at, room, sizeof(*more));

	if (!more)
		return -ENOMEM;
	kind->at = more;
	kind->room = room;
	return 0;
}

int kept_put(struct kept *held, uint64_t id, int fd)
{
	struct kept_kind *kind = kind_of(held, id);

	if (!kind || fd < 0)
		return -EINVAL;
	struct kept_one *known = find(kind, id);

	if (known && known->fd >= 0) {
		close(known->fd);
		known->fd = fd;
		return 0;
	}
	if (known) {
		kind->dropped--;
	} else {
		if (make_room(kind))
			return -ENOMEM;
		uint32_t at = place(kind, id);

		known = &kind->at[at];
		memmove(known + 1, known, (kind->count - at) * sizeof(*known));
		known->id = id;
		kind->count++;
	}
	known->fd = fd;
	held->count++;
	return 0;
}

int kept_get(const struct kept *held, uint64_t id)
{
	uint64_t number = id >> KEPT_KIND_SHIFT;
	const struct kept_one *one = number < KEPT_KINDS ? find(&held->kinds[number], id) : NULL;

	return one && one->fd >= 0 ? one->fd : -ENOENT;
}

int kept_drop(struct kept *held, uint64_t id)
{
	struct kept_kind *kind = kind_of(held, id);
	struct kept_one *one = kind ? find(kind, id) : NULL;

	if (!one || one->fd < 0)
		return -ENOENT;
	close(one->fd);
	one->fd = -1;
	held->count--;
	/* Closing up each gap on its own would move all that follow, each time. */
	if (++kind->dropped > kind->count / 2)
		compact(kind);
	return 0;
}

int kept_next(const struct kept *held, uint64_t after, uint64_t *id, int *fd)
{
	for (uint64_t number = after >> KEPT_KIND_SHIFT; number < KEPT_KINDS; number++) {
		const struct kept_kind *kind = &held->kinds[number];

		for (uint32_t at = place(kind, after + 1); at < kind->count; at++) {
			if (kind->at[at].fd < 0)
				continue;
			*id = kind->at[at].id;
			*fd = kind->at[at].fd;
			return 0;
		}
	}
	return -ENOENT;
}

void kept_close(struct kept *held)
{
	for (unsigned number = 0; number < KEPT_KINDS; number++) {
		struct kept_kind *kind = &held->kinds[number];

		for (uint32_t i = 0; i < kind->count; i++)
			if (kind->at[i].fd >= 0)
				close(kind->at[i].fd);
		free(kind->at);
	}
	*held = (struct kept){0};
}
