/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* System memory for host/: one shared-memory object per file, which any process can map. */
#ifndef BACKEND_SYSTEM_H
#define BACKEND_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

struct system_memory;

/* Bounded by bytes: a private detached tmpfs (fsopen, CAP_SYS_ADMIN) whose size the kernel keeps,
 * also against page faults of mappings; else plain memfds, for which only system_usage tells. */
int system_memory_open(uint64_t bytes, struct system_memory **memory);
void system_memory_close(struct system_memory *memory);

enum system_pages { SYSTEM_PAGES_SMALL, SYSTEM_PAGES_HUGE /* transparent huge pages */ };
#define SYSTEM_KINDS 2

/* What holds the objects of a kind and bounds them, made if need be: its fd, which stays the
 * memory's, or -1 where they are memfds. adopt: that of a process that may be gone, whose objects
 * are still there, from then on in place of this one's, which has none; takes the fd over. */
int system_memory_mount(struct system_memory *memory, enum system_pages pages);
void system_memory_adopt(struct system_memory *memory, enum system_pages pages, int fd);

/* A new empty object, open read-write, close-on-exec; the caller owns the fd and the object lives
 * as long as fds and mappings of it. -ENOSPC where no more fds can be had (with a log line). */
int system_object_new(struct system_memory *memory, enum system_pages pages, int *fd);

/* Whether anybody else has the object open, or mapped, by a look that takes two system calls. False
 * where it cannot be told: of memfds. Callers ignore SIGIO. */
bool system_object_is_held(const struct system_memory *memory, int fd);

uint64_t system_bytes(const struct system_memory *memory);
struct system_usage {
	uint64_t total, free; /* bytes */
	bool bounded_by_kernel;
};
/* Counts what objects gained or, negative, lost. Where the kernel keeps no bound this one does:
 * -ENOSPC. */
int system_account(struct system_memory *memory, int64_t bytes);
/* The same for what is there already. */
void system_account_force(struct system_memory *memory, int64_t bytes);
int system_usage(struct system_memory *memory, struct system_usage *usage);

#endif
