/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* File descriptors by the ids under which they are kept. */
#ifndef FS_KEEPER_FD_TABLE_H
#define FS_KEEPER_FD_TABLE_H

#include <stdint.h>

/* Ids are kind << FD_TABLE_KIND_SHIFT | number. */
#define FD_TABLE_KIND_SHIFT 56
#define FD_TABLE_KINDS	    16

struct fd_table_entry {
	uint64_t id;
	int fd; /* -1: dropped, its place not yet taken */
};

/* Of one kind, by id. Numbers mostly grow, so that what is new comes last. */
struct fd_table_kind {
	struct fd_table_entry *at;
	uint32_t count, room, dropped;
};

struct fd_table {
	struct fd_table_kind kinds[FD_TABLE_KINDS];
	uint32_t count; /* of fds */
};

/* Takes the fd over, and closes what was held under the id before: 0, -EINVAL (no such kind) or
 * -ENOMEM, with the fd the caller's. */
int fd_table_put(struct fd_table *held, uint64_t id, int fd);
/* The fd, which stays held, or -ENOENT. */
int fd_table_get(const struct fd_table *held, uint64_t id);
/* Closes it: 0 or -ENOENT. */
int fd_table_drop(struct fd_table *held, uint64_t id);
/* The next after an id, with its fd: 0, or -ENOENT past the last. Kinds begin at 1, so that 0 comes
 * before all. */
int fd_table_next(const struct fd_table *held, uint64_t after, uint64_t *id, int *fd);
/* Closes all. */
void fd_table_close(struct fd_table *held);

#endif
