/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* mount -o remount: the kernel changes the flags of a mount; the daemon takes no part. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/fuse/internal.h"
#include "fs/options/options.h"

/* Not in older headers of libc. */
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

/* Options that set a flag, and options that clear the flag. */
static const struct {
	const char *set, *clear;
	unsigned long flag;
} mount_flags[] = {
    {"ro", "rw", MS_RDONLY},
    {"nosuid", "suid", MS_NOSUID},
    {"nodev", "dev", MS_NODEV},
    {"noexec", "exec", MS_NOEXEC},
    {"sync", "async", MS_SYNCHRONOUS},
    {"dirsync", "", MS_DIRSYNC},
    {"nosymfollow", "symfollow", MS_NOSYMFOLLOW},
};

/* Changes the flags by each option of the list, which is cut up. */
static void flags_change(char *list, unsigned long *flags)
{
	for (const char *name; (name = strsep(&list, ","));)
		for (size_t i = 0; i < sizeof(mount_flags) / sizeof(mount_flags[0]); i++)
			if (strcmp(name, mount_flags[i].set) == 0)
				*flags |= mount_flags[i].flag;
			else if (strcmp(name, mount_flags[i].clear) == 0)
				*flags &= ~mount_flags[i].flag;
}

/* The daemon itself updates times of access, and learns of noatime when it starts. */
static int remount_check(const struct options *options, const char *present)
{
	const char *path = options->mountpoint;

	if (!present) {
		log_error("%s: gpumemfs is not mounted here", path);
		return -EINVAL;
	}
	if (option_list_has(options->mount_options, "noatime") &&
	    !option_list_has(present, "noatime")) {
		log_error("%s: option 'noatime' cannot be changed by a remount", path);
		return -EINVAL;
	}
	return 0;
}

int session_remount(const struct options *options)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *present =
	    table ? mountinfo_options(table, options->mountpoint, FSTYPE) : NULL;
	AUTO_FREE char *changes = strdup(options->mount_options ?: "");
	unsigned long flags = 0;
	int error = changes ? remount_check(options, present) : -ENOMEM;

	if (error)
		return error;
	/* The kernel replaces all of these flags, and keeps the flags of atime if none is given. */
	flags_change(present, &flags);
	flags_change(changes, &flags);
	if (options->fake || mount(NULL, options->mountpoint, NULL, MS_REMOUNT | flags, NULL) == 0)
		return 0;
	error = -errno;
	log_error("cannot remount %s: %s%s", options->mountpoint, strerror(-error),
		  error == -EBUSY ? " (a file is open for writing)" : "");
	return error;
}
