/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The texts of .gpumem/ that grow with the mount, written a piece at a time. */
#ifndef FS_CONTROL_LISTS_H
#define FS_CONTROL_LISTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fs/share/lease_list.h"
#include "fs/share/viewer.h"

struct fs;

/* So far is a piece filled, and so much is taken for it; only long paths make one longer. */
#define CONTROL_PIECE_BYTES 8192
#define CONTROL_LIST_BYTES  16384

/* Where the writer of one list is. Zeroed but for fs and viewer at first. */
struct control_list {
	struct fs *fs;
	struct viewer viewer;
	unsigned part;	  /* the writer's own */
	uint32_t slot;	  /* of the inode table */
	uint64_t written; /* leases */
	struct lease_place leases;
};

enum control_more { CONTROL_END, CONTROL_MORE };

/* The next piece: enum control_more, or -errno. */
int control_mappings(struct control_list *list, FILE *out);
int control_stats(struct control_list *list, FILE *out);

/* For both: the next few leases, each written by the function. CONTROL_END: there are no more. */
int control_list_leases(struct control_list *list, FILE *out,
			void (*write)(struct control_list *list, FILE *out,
				      const struct lease_entry *lease));
const char *control_list_access(const struct lease_entry *lease);
void control_list_end(struct control_list *list);

#endif
