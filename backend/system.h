/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* System memory for host/: a shared-memory object per file, which any process can map. */
#ifndef BACKEND_SYSTEM_H
#define BACKEND_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

struct system_memory;

/* Bounded by bytes: a private detached tmpfs (fsopen, CAP_SYS_ADMIN) whose size the kernel
 * enforces, also against page faults of mappings; without CAP_SYS_ADMIN plain memfds, and only
 * system_usage counts. */
int system_memory_open(uint64_t bytes, struct system_memory **memory);
void system_memory_close(struct system_memory *memory);

enum system_pages { SYSTEM_PAGES_SMALL, SYSTEM_PAGES_HUGE /* transparent huge pages */ };
#define SYSTEM_KINDS 2

/* The mount that holds and bounds the objects of a kind, made at the first call: the fd, owned by
 * memory, or -1 for memfds. system_memory_adopt takes over the fd of a mount of an earlier process,
 * with the objects that still exist, in place of a mount of this process, which must not exist. */
int system_memory_mount(struct system_memory *memory, enum system_pages pages);
void system_memory_adopt(struct system_memory *memory, enum system_pages pages, int fd);

/* A new empty object, open read-write, close-on-exec. The caller owns the fd; the object lives as
 * long as fds and mappings of the object. -ENOSPC without free fds (with a log line). */
int system_object_new(struct system_memory *memory, enum system_pages pages, int *fd);

/* Whether another process has the object open or mapped, by a check of two system calls. False for
 * memfds, for which the kernel cannot tell. Callers ignore SIGIO. */
bool system_object_is_held(const struct system_memory *memory, int fd);

uint64_t system_bytes(const struct system_memory *memory);
struct system_usage {
	uint64_t total, free; /* bytes */
	bool bounded_by_kernel;
};
/* Counts bytes that objects gained or, if negative, lost. For memfds the bound is enforced here:
 * -ENOSPC. */
int system_account(struct system_memory *memory, int64_t bytes);
/* The same for bytes that exist already. */
void system_account_force(struct system_memory *memory, int64_t bytes);
int system_usage(struct system_memory *memory, struct system_usage *usage);

#endif
