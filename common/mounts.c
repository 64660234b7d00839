/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/mount_line.h"
#include "common/number.h"

/* Reads up to the next line about a mount on the path. *text is allocated or NULL. */
static bool line_find(FILE *table, const char *path, const char *fstype_prefix, char **text,
		      struct mount_line *line)
{
	size_t room = 0;

	free(*text);
	*text = NULL;
	while (getline(text, &room, table) > 0) {
		if (!mount_line_parse(*text, line) || !line->type)
			continue;
		if (strcmp(line->mountpoint, path) == 0 &&
		    strncmp(line->type, fstype_prefix, strlen(fstype_prefix)) == 0)
			return true;
	}
	return false;
}

bool mountinfo_find(FILE *table, const char *path, const char *fstype_prefix)
{
	AUTO_FREE char *text = NULL;
	struct mount_line line;

	return line_find(table, path, fstype_prefix, &text, &line);
}

/* From the device field, and "user_id=N" among the options. */
static bool line_read(struct mount_line *line, struct mountinfo *info)
{
	char *user = line->super_options ? strstr(line->super_options, "user_id=") : NULL;
	uint64_t number;

	if (!user)
		return false;
	user += strlen("user_id=");
	user[strcspn(user, ",")] = '\0';
	if (parse_u64(user, 0, UINT32_MAX, &number))
		return false;
	*info = (struct mountinfo){.device = line->device, .user = (uid_t)number};
	return true;
}

bool mountinfo_read(FILE *table, const char *path, const char *fstype_prefix,
		    struct mountinfo *found)
{
	AUTO_FREE char *text = NULL;
	struct mount_line line;
	bool any = false;

	while (line_find(table, path, fstype_prefix, &text, &line))
		any = line_read(&line, found) || any;
	return any;
}

bool mountinfo_has_device(FILE *table, dev_t device)
{
	AUTO_FREE char *text = NULL;
	struct mount_line line;
	size_t room = 0;

	rewind(table);
	while (getline(&text, &room, table) > 0)
		if (mount_line_parse(text, &line) && line.device == device)
			return true;
	return ferror(table);
}

bool mountinfo_is_mounted(const char *path, const char *fstype_prefix)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	if (!table) {
		log_warn("/proc/self/mountinfo: %s: cannot read the mount table", strerror(errno));
		return false;
	}
	return mountinfo_find(table, path, fstype_prefix);
}

int unmount_device(const char *path, dev_t *device)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st))
		return -errno;
	*device = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

/* Another file system may have been mounted there since. */
void unmount_lazily(const char *mountpoint, dev_t device)
{
	char *const arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)mountpoint, NULL};
	extern char **environ;
	pid_t pid;
	dev_t there;

	if (device && unmount_device(mountpoint, &there) == 0 && there != device)
		return;
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0)
		return;
	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ) == 0)
		waitpid(pid, NULL, 0);
}
