/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* File descriptors by the ids under which they are kept. */
#ifndef FS_HELD_H
#define FS_HELD_H

#include <stdint.h>

/* Ids are kind << HELD_KIND_SHIFT | number. */
#define HELD_KIND_SHIFT 56
#define HELD_KINDS	16

struct held_one {
	uint64_t id;
	int fd; /* -1: dropped, its place not yet taken */
};

/* Of one kind, by id. Numbers mostly grow, so that what is new comes last. */
struct held_kind {
	struct held_one *at;
	uint32_t count, room, dropped;
};

struct held {
	struct held_kind kinds[HELD_KINDS];
	uint32_t count; /* of fds */
};

/* Takes the fd over, and closes what was held under the id before: 0, -EINVAL (no such kind) or
 * -ENOMEM, with the fd the caller's. */
int held_put(struct held *held, uint64_t id, int fd);
/* The fd, which stays held, or -ENOENT. */
int held_get(const struct held *held, uint64_t id);
/* Closes it: 0 or -ENOENT. */
int held_drop(struct held *held, uint64_t id);
/* The next after an id, with its fd: 0, or -ENOENT past the last. Kinds begin at 1, so that 0 comes
 * before all. */
int held_next(const struct held *held, uint64_t after, uint64_t *id, int *fd);
/* Closes all. */
void held_close(struct held *held);

#endif
