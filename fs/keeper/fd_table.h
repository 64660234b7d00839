/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A table of file descriptors by id: the keeper's descriptors, and each daemon's copy. */
#ifndef FS_KEEPER_FD_TABLE_H
#define FS_KEEPER_FD_TABLE_H

#include <stdint.h>

/* An id is (kind << FD_TABLE_KIND_SHIFT) | number. */
#define FD_TABLE_KIND_SHIFT 56
#define FD_TABLE_KINDS	    16

struct fd_table_entry {
	uint64_t id;
	int fd; /* -1: dropped; the entry's place is free */
};

/* The entries of one kind, sorted by id. Numbers mostly grow, so that a new entry mostly goes to
 * the end. */
struct fd_table_kind {
	struct fd_table_entry *at;
	uint32_t count, dropped;
};

struct fd_table {
	struct fd_table_kind kinds[FD_TABLE_KINDS];
	uint32_t count; /* of open descriptors */
};

/* Takes over fd, and closes the descriptor that the id had before: 0, -EINVAL (no such kind) or
 * -ENOMEM. After an error fd still belongs to the caller. */
int fd_table_put(struct fd_table *held, uint64_t id, int fd);
/* The descriptor, which stays in the table, or -ENOENT. */
int fd_table_get(const struct fd_table *held, uint64_t id);
/* Closes the descriptor: 0 or -ENOENT. */
int fd_table_drop(struct fd_table *held, uint64_t id);
/* The entry with the smallest id above last_id: 0, or -ENOENT past the last entry. Kinds begin at
 * 1, so that 0 comes before all ids. */
int fd_table_next(const struct fd_table *held, uint64_t last_id, uint64_t *id, int *fd);
/* Closes all descriptors and empties the table. */
void fd_table_close(struct fd_table *held);

#endif
