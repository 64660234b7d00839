/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/walk.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/cli.h"

/* Deeper directories are opened again. */
#define DESCRIPTORS 32

/* nftw(3) gives its function no argument. */
static struct {
	const struct place *top;
	walk_visit *visit;
	void *context;
	int status; /* of the first failure */
} walk_state;

static void status_note(int status)
{
	if (!walk_state.status)
		walk_state.status = status;
}

static int tree_visit(const char *path, const struct stat *st, int type, struct FTW *at)
{
	/* Other programs may remove entries meanwhile. */
	if (type == FTW_NS && at->level > 0 && access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	if (type == FTW_NS || type == FTW_DNR)
		status_note(cli_fail(path, EACCES));
	if (type == FTW_NS || !(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)))
		return 0;
	if (at->level == 0 && place_is_mount(walk_state.top))
		return 0;
	const struct walk_entry entry = {
	    .place = {.mount = walk_state.top->mount, .path = (char *)path},
	    .is_directory = S_ISDIR(st->st_mode),
	};

	status_note(walk_state.visit(&entry, walk_state.context));
	return 0;
}

int walk_tree(const struct place *place, walk_visit *visit, void *context)
{
	walk_state.top = place;
	walk_state.visit = visit;
	walk_state.context = context;
	walk_state.status = CLI_OK;
	if (nftw(place->path, tree_visit, DESCRIPTORS, FTW_PHYS | FTW_MOUNT) < 0)
		status_note(cli_fail(place->path, errno));
	return walk_state.status;
}
