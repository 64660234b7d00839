/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The long texts of .gpumem/ (mappings, stats.json), whose length grows with the number of files
 * and leases: they are written a piece at a time. */
#ifndef FS_CONTROL_LISTS_H
#define FS_CONTROL_LISTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fs/share/lease_list.h"
#include "fs/share/viewer.h"

struct fs;

/* A piece ends after this many bytes, or later if a path is long. A user is charged
 * CONTROL_LIST_BYTES for a list. */
#define CONTROL_PIECE_BYTES 8192
#define CONTROL_LIST_BYTES  16384

/* The place of the writer in a list. All zero at first, but for fs and viewer. */
struct control_list {
	struct fs *fs;
	struct viewer viewer;
	unsigned part;	  /* for the writer's own use */
	uint32_t slot;	  /* of the inode table */
	uint64_t written; /* leases */
	struct lease_place leases;
};

enum control_more { CONTROL_END, CONTROL_MORE };

/* Both write the next piece of a text: enum control_more, or -errno. */
int control_mappings(struct control_list *list, FILE *out);
int control_stats(struct control_list *list, FILE *out);

/* For both texts: writes the next few leases, each by the given function. CONTROL_END: no lease is
 * left. */
int control_list_leases(struct control_list *list, FILE *out,
			void (*write)(struct control_list *list, FILE *out,
				      const struct lease_entry *lease));
const char *control_list_access(const struct lease_entry *lease);
void control_list_end(struct control_list *list);

#endif
