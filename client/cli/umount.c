/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem umount: unmounts gpumemfs, also if the daemon has ended, and no other file system. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/fusermount.h"
#include "client/cli/mountpoint.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/system/mounts.h"

/* Fails for users other than the user of the mount: fusermount3 would say that there is no such
 * mount. */
static int user_check(const struct mountpoint *point)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");
	struct mountinfo info;

	if (!table || !mountinfo_read(table, point->path, MOUNTS_TYPE, &info) ||
	    info.user == getuid())
		return CLI_OK;
	cli_error("%s: only root and user %u, who mounted it, may unmount it", point->path,
		  info.user);
	return CLI_DENIED;
}

static int busy_fail(const struct mountpoint *point)
{
	/* Root may be refused by the mount of a user, which is not dead. */
	if (cli_status_of(-mounts_answers(point->mount)) == CLI_DEAD)
		cli_error("%s: busy: processes still have files or directories of the dead mount "
			  "open: --lazy detaches the mount all the same",
			  point->path);
	else
		cli_error("%s: busy: gpumem sharers shows the processes that share its memory, "
			  "fuser -vm %s all that use it; --lazy detaches the mount all the same",
			  point->path, point->path);
	return cli_status_of(EBUSY);
}

/* Flags are those of umount2(2). The path leads through the folder's descriptor, and is not
 * followed if the name is a link by now. */
static int mountpoint_unmount(const struct mountpoint *point, int flags)
{
	char path[BENEATH_THROUGH_MAX + NAME_MAX + 2], fd_path[BENEATH_THROUGH_MAX];
	int status = 0;

	snprintf(path, sizeof(path), "%s/%s", beneath_through(point->folder, fd_path), point->name);
	if (umount2(path, flags | UMOUNT_NOFOLLOW) == 0)
		return CLI_OK;
	if (errno == EPERM && geteuid() != 0) {
		status = user_check(point);
		if (!status)
			status = fusermount_execute(point->folder, point->name, flags);
	} else {
		status = errno == EBUSY ? -EBUSY : cli_fail(point->path, errno);
	}
	return status == -EBUSY ? busy_fail(point) : status;
}

static int path_unmount(const char *path, int flags)
{
	AUTO_MOUNTPOINT struct mountpoint point;
	int status = mountpoint_find(path, &point);

	return status ? status : mountpoint_unmount(&point, flags);
}

static int umount_run(struct cli_args *args)
{
	int code, flags = 0, status = CLI_OK;

	while ((code = cli_option(args)) > 0)
		flags = MNT_DETACH;
	if (code < 0)
		return CLI_USAGE;
	for (int i = 0; i < args->argc; i++) {
		int path_status = path_unmount(args->argv[i], flags);

		status = status ? status : path_status;
	}
	return status;
}

static const struct cli_option umount_options[] = {
    {'l', "lazy", NULL, "detach the mount now, also while processes use it"}, {0}};

const struct command command_umount = {
    .name = "umount",
    .words = "MOUNT...",
    .summary = "Unmount gpumemfs, also if the daemon has ended",
    .help =
	"The daemon ends, and the memory goes back to the driver. Files are lost, except files\n"
	"with persist=disk, which the daemon saves to the mount's spool.",
    .options = umount_options,
    .min_words = 1,
    .max_words = -1,
    .run = umount_run,
};
