/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* tmpfs mounts that are mounted nowhere: only their descriptors lead to them. Making and resizing
 * needs CAP_SYS_ADMIN. */
#ifndef BACKEND_SYSTEM_TMPFS_H
#define BACKEND_SYSTEM_TMPFS_H

#include <stdint.h>

/* A descriptor of the root, or -errno. huge: as the mount option. */
int tmpfs_new(uint64_t bytes, const char *huge);
/* An object without a name, of the caller's user alone: as open(2). */
int tmpfs_object(int root);
/* Bytes in use; 0 for a descriptor below 0. */
uint64_t tmpfs_used(int fd);
/* -EINVAL: the tmpfs holds more. */
int tmpfs_resize(int root, uint64_t bytes);

#endif
