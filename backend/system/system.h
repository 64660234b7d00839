/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* System memory for host/: a shared-memory object per file, for any process to map. */
#ifndef BACKEND_SYSTEM_SYSTEM_H
#define BACKEND_SYSTEM_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

struct system_memory;

/* The limit is bytes. With CAP_SYS_ADMIN objects are in a private detached tmpfs (fsopen) with a
 * size that the kernel enforces, also for page faults of mappings; otherwise objects are memfds,
 * limited by system_account alone. */
int system_memory_open(uint64_t bytes, struct system_memory **memory);
void system_memory_close(struct system_memory *memory);

enum system_pages { SYSTEM_PAGES_SMALL, SYSTEM_PAGES_HUGE /* transparent huge pages */ };
#define SYSTEM_KINDS 2

/* The tmpfs of an object: shared with other objects, or the object's own (bounded.h), whose size
 * limits the memory of this object alone. */
enum system_tmpfs { SYSTEM_TMPFS_SHARED, SYSTEM_TMPFS_OWN };

/* The tmpfs of a kind's objects, made if necessary: a descriptor, still the memory's; -1: objects
 * are memfds. adopt, before a tmpfs was made, uses an earlier process's tmpfs with its objects, and
 * takes the descriptor over. */
int system_memory_mount(struct system_memory *memory, enum system_pages pages);
void system_memory_adopt(struct system_memory *memory, enum system_pages pages, int fd);

/* Whether objects can have a tmpfs of their own: with CAP_SYS_ADMIN outside of user namespaces. */
bool system_has_own_tmpfs(const struct system_memory *memory);

/* A new empty object, open for reading and writing, close-on-exec. The descriptor is the caller's;
 * the object lives as long as its descriptors and mappings. SYSTEM_TMPFS_OWN is ignored where
 * objects cannot have a tmpfs of their own. -ENOSPC (with a line in the log): no descriptor left.
 */
int system_object_new(struct system_memory *memory, enum system_pages pages,
		      enum system_tmpfs tmpfs, int *fd);
enum system_tmpfs system_object_tmpfs(int fd);

/* The limit of an object with a tmpfs of its own. */
#define SYSTEM_UNLIMITED (1ULL << 60)
uint64_t system_object_limit(int fd);
/* bytes is at least 1. -EINVAL: the object has more memory. */
int system_object_set_limit(struct system_memory *memory, int fd, uint64_t bytes);
/* Sets the limit if the present one is lower, or if there is none. */
int system_object_raise_limit(struct system_memory *memory, int fd, uint64_t bytes);

/* Whether another process has the object open or mapped, found out by two system calls. False if
 * that is unknown: for memfds. The process must ignore SIGIO. */
bool system_object_is_held(const struct system_memory *memory, int fd);

uint64_t system_bytes(const struct system_memory *memory);
struct system_usage {
	uint64_t total, free; /* bytes */
	bool bounded_by_kernel;
};
/* Adds the bytes that an object gained or, negative, lost. -ENOSPC where the kernel does not
 * enforce the limit of all objects and it is reached. The kernel enforces that limit on objects
 * that share a tmpfs. */
int system_account(struct system_memory *memory, enum system_tmpfs tmpfs, int64_t bytes);
/* Adds the bytes of an existing object, whatever the limit is. */
void system_account_force(struct system_memory *memory, enum system_tmpfs tmpfs, int64_t bytes);
int system_usage(struct system_memory *memory, struct system_usage *usage);

#endif
