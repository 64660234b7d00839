/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Creates files with all of their memory. All functions return 0 or -errno. */
#ifndef CLIENT_LIB_CREATE_H
#define CLIENT_LIB_CREATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client_adoption;
struct gpumem;

/* gpumem_create and gpumem_publish. A failed publication leaves the file without a name for good.
 */
int client_create(const char *path, uint64_t bytes, size_t alignment, mode_t mode, int flags,
		  struct gpumem **file);
/* As client_create, with memory of this process. */
int client_create_adopted(const char *path, const struct client_adoption *from, mode_t mode,
			  int flags, struct gpumem **file);
int client_publish(struct gpumem *file);

/* Whether all mappings of files are aligned so: 0, or -EINVAL. */
int client_alignment_check(size_t alignment);

#endif
