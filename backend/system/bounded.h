/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Bounded objects: shared-memory objects in a tmpfs of their own, whose size limits the object's
 * memory. A process that was given a descriptor of the object can make the object longer, but gets
 * no memory beyond the limit.
 *
 * The tmpfs ends with the last descriptor or mapping of the object. No descriptor is kept of the
 * root: the object's attribute trusted.gpumemfs.root, which only processes with CAP_SYS_ADMIN can
 * read, has the handle by which this daemon and later daemons open the root. */
#ifndef BACKEND_SYSTEM_BOUNDED_H
#define BACKEND_SYSTEM_BOUNDED_H

#include <stdbool.h>
#include <stdint.h>

/* As open(2), with a limit of SYSTEM_UNLIMITED. huge: as the mount option of tmpfs. */
int bounded_new(const char *huge);
bool bounded_is(int fd);
/* Bytes; 0 for a descriptor below 0. */
uint64_t bounded_limit(int fd);
/* bytes is at least 1, as 0 would be no limit. -EINVAL: the object has more memory. */
int bounded_set_limit(int fd, uint64_t bytes);

#endif
