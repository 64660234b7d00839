/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* File descriptors by the ids under which they are kept. */
#ifndef FS_KEEPER_FD_TABLE_H
#define FS_KEEPER_FD_TABLE_H

#include <stdint.h>

/* Ids are kind << KEPT_KIND_SHIFT | number. */
#define KEPT_KIND_SHIFT 56
#define KEPT_KINDS	16

struct kept_one {
	uint64_t id;
	int fd; /* -1: dropped, its place not yet taken */
};

/* Of one kind, by id. Numbers mostly grow, so that what is new comes last. */
struct kept_kind {
	struct kept_one *at;
	uint32_t count, room, dropped;
};

struct kept {
	struct kept_kind kinds[KEPT_KINDS];
	uint32_t count; /* of fds */
};

/* Takes the fd over, and closes what was held under the id before: 0, -EINVAL (no such kind) or
 * -ENOMEM, with the fd the caller's. */
int kept_put(struct kept *held, uint64_t id, int fd);
/* The fd, which stays held, or -ENOENT. */
int kept_get(const struct kept *held, uint64_t id);
/* Closes it: 0 or -ENOENT. */
int kept_drop(struct kept *held, uint64_t id);
/* The next after an id, with its fd: 0, or -ENOENT past the last. Kinds begin at 1, so that 0 comes
 * before all. */
int kept_next(const struct kept *held, uint64_t after, uint64_t *id, int *fd);
/* Closes all. */
void kept_close(struct kept *held);

#endif
