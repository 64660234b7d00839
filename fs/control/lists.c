/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/mappings, and the list of leases for mappings and for stats.json. */
#include "fs/control/lists.h"

#include <inttypes.h>

#include "backend/bar_cache.h"
#include "common/text/utf8.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"

/* Leases that are read at a time. */
#define ROOM 32

int control_list_leases(struct control_list *list, FILE *out,
			void (*write)(struct control_list *list, FILE *out,
				      const struct lease_entry *lease))
{
	struct lease_entry found[ROOM];
	long begin = ftell(out);

	do {
		unsigned n = lease_list_next(lease_list_of(list->fs), &list->leases, &list->viewer,
					     found, ROOM);

		if (!n)
			return CONTROL_END;
		for (unsigned i = 0; i < n; i++) {
			write(list, out, &found[i]);
			list->written++;
			inode_put(list->fs, found[i].inode, 1);
			inode_put(list->fs, found[i].file, 1);
		}
	} while (ftell(out) - begin < CONTROL_PIECE_BYTES);
	return CONTROL_MORE;
}

const char *control_list_access(const struct lease_entry *lease)
{
	if (lease->private)
		return "copy";
	if (lease->produces)
		return "own";
	return lease->access == GPUMEM_ACCESS_WRITE ? "rw" : "ro";
}

void control_list_end(struct control_list *list)
{
	lease_list_leave(lease_list_of(list->fs), &list->leases);
}

/* The path is the last field of a line. Characters that a terminal obeys, line ends among them, are
 * escaped. */
static void write_path(struct control_list *list, FILE *out, struct inode *inode)
{
	char path[PATH_MAX], piece[512];

	viewer_path(list->fs, &list->viewer, inode, path);
	for (const char *at = path; *at;) {
		at = utf8_escape(at, "\\", piece, sizeof(piece));
		fputs(piece, out);
	}
	fputc('\n', out);
}

/* bytes, "bar", provider, leases, path */
static void write_mapping(struct control_list *list, FILE *out, struct inode *inode)
{
	uint64_t mapped = S_ISREG(inode->mode) ? file_mapped(inode->file) : 0;
	struct volume *volume = inode->volume;
	const char *why;

	/* The file may have moved to host/ meanwhile. */
	if (!mapped || !volume->device)
		return;
	fprintf(out, "%" PRIu64 "\tbar\t%s\t%u\t", mapped, device_bar_name(volume->device, &why),
		file_leases(inode->file));
	write_path(list, out, inode);
}

/* Whether the list is to read every inode. Some millions of inodes take a second, in a single
 * request where few files are mapped, so only privileged users get the list. */
static bool list_has_mapped(const struct control_list *list)
{
	struct fs *fs = list->fs;

	if (!list->viewer.sees_all)
		return false;
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device && bar_usage(fs->volumes[i].device).mapped)
			return true;
	return false;
}

static int write_mapped(struct control_list *list, FILE *out)
{
	struct inode *inode;
	long begin = ftell(out);

	if (!list->slot && !list_has_mapped(list))
		return CONTROL_END;
	while (ftell(out) - begin < CONTROL_PIECE_BYTES) {
		inode = inode_table_next(list->fs->inodes, &list->slot);
		if (!inode)
			return CONTROL_END;
		write_mapping(list, out, inode);
		inode_put(list->fs, inode, 1);
	}
	return CONTROL_MORE;
}

/* bytes, "lease", access, holder, path */
static void write_lease(struct control_list *list, FILE *out, const struct lease_entry *lease)
{
	fprintf(out, "%" PRIu64 "\tlease\t%s\tuid %u pid %d\t", file_size(lease->inode->file),
		control_list_access(lease), lease->uid, lease->pid);
	write_path(list, out, lease->file);
}

int control_mappings(struct control_list *list, FILE *out)
{
	if (list->part == 0 && write_mapped(list, out) == CONTROL_MORE)
		return CONTROL_MORE;
	list->part = 1;
	return control_list_leases(list, out, write_lease);
}
