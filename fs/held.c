/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_MIN 16

static struct held_kind *kind_of(struct held *held, uint64_t id)
{
	uint64_t kind = id >> HELD_KIND_SHIFT;

	return kind < HELD_KINDS ? &held->kinds[kind] : NULL;
}

/* Where the id is, or would be. */
static uint32_t place(const struct held_kind *kind, uint64_t id)
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

static struct held_one *find(const struct held_kind *kind, uint64_t id)
{
	uint32_t at = place(kind, id);

	return at < kind->count && kind->at[at].id == id ? &kind->at[at] : NULL;
}

static void compact(struct held_kind *kind)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < kind->count; i++)
		if (kind->at[i].fd >= 0)
			kind->at[left++] = kind->at[i];
	kind->count = left;
	kind->dropped = 0;
}

static int make_room(struct held_kind *kind)
{
	if (kind->count < kind->room)
		return 0;
	uint32_t room = kind->room ? 2 * kind->room : ROOM_MIN;
	struct held_one *more = reallocarray(kind->at, room, sizeof(*more));

	if (!more)
		return -ENOMEM;
	kind->at = more;
	kind->room = room;
	return 0;
}

int held_put(struct held *held, uint64_t id, int fd)
{
	struct held_kind *kind = kind_of(held, id);

	if (!kind || fd < 0)
		return -EINVAL;
	struct held_one *known = find(kind, id);

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

int held_get(const struct held *held, uint64_t id)
{
	uint64_t number = id >> HELD_KIND_SHIFT;
	const struct held_one *one = number < HELD_KINDS ? find(&held->kinds[number], id) : NULL;

	return one && one->fd >= 0 ? one->fd : -ENOENT;
}

int held_drop(struct held *held, uint64_t id)
{
	struct held_kind *kind = kind_of(held, id);
	struct held_one *one = kind ? find(kind, id) : NULL;

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

int held_next(const struct held *held, uint64_t after, uint64_t *id, int *fd)
{
	for (uint64_t number = after >> HELD_KIND_SHIFT; number < HELD_KINDS; number++) {
		const struct held_kind *kind = &held->kinds[number];

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

void held_close(struct held *held)
{
	for (unsigned number = 0; number < HELD_KINDS; number++) {
		struct held_kind *kind = &held->kinds[number];

		for (uint32_t i = 0; i < kind->count; i++)
			if (kind->at[i].fd >= 0)
				close(kind->at[i].fd);
		free(kind->at);
	}
	*held = (struct held){0};
}
