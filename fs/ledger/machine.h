/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The memory that this machine has, and that the daemon may use. */
#ifndef FS_LEDGER_MACHINE_H
#define FS_LEDGER_MACHINE_H

#include <stdint.h>

/* 0: unknown. */
uint64_t machine_memory(void);

/* machine_memory, or the lowest limit of the daemon's control groups (memory.max of version 2,
 * memory.limit_in_bytes of version 1) if that is less. Control groups are below /sys/fs/cgroup. */
uint64_t machine_memory_allowed(void);

/* The lowest limit of the control groups that a file like /proc/self/cgroup names, below root;
 * UINT64_MAX: no limit. */
uint64_t cgroups_memory_limit(const char *groups, const char *root);

#endif
