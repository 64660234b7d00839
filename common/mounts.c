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
#include "common/number.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The kernel writes blanks, tabs, newlines and backslashes as \ooo. Changes the text in place. */
static void octal_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && is_octal(from[1]) && is_octal(from[2]) &&
		    is_octal(from[3])) {
			*to++ =
			    (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

struct line {
	char *device, *mountpoint, *type;
	char *options; /* of the file system; NULL: none */
};

/* id parent DEVICE root MOUNTPOINT options [tag...] - TYPE source OPTIONS */
static bool line_split(char *text, struct line *line)
{
	char *rest = NULL;
	char *field = strtok_r(text, " \n", &rest);

	*line = (struct line){0};
	for (unsigned i = 0; field && i < 6; i++) {
		if (i == 2)
			line->device = field;
		if (i == 4)
			line->mountpoint = field;
		field = strtok_r(NULL, " \n", &rest);
	}
	while (field && strcmp(field, "-") != 0)
		field = strtok_r(NULL, " \n", &rest);
	line->type = field ? strtok_r(NULL, " \n", &rest) : NULL;
	if (!line->type || *line->mountpoint != '/')
		return false;
	if (strtok_r(NULL, " \n", &rest))
		line->options = strtok_r(NULL, " \n", &rest);
	return true;
}

/* Reads up to the next line about a mount on the path. *text is allocated or NULL. */
static bool line_find(FILE *table, const char *path, const char *fstype_prefix, char **text,
		      struct line *line)
{
	size_t room = 0;

	free(*text);
	*text = NULL;
	while (getline(text, &room, table) > 0) {
		if (!line_split(*text, line))
			continue;
		octal_unescape(line->mountpoint);
		if (strcmp(line->mountpoint, path) == 0 &&
		    strncmp(line->type, fstype_prefix, strlen(fstype_prefix)) == 0)
			return true;
	}
	return false;
}

bool mountinfo_find(FILE *table, const char *path, const char *fstype_prefix)
{
	AUTO_FREE char *text = NULL;
	struct line line;

	return line_find(table, path, fstype_prefix, &text, &line);
}

/* "MAJOR:MINOR" */
static bool device_read(const char *text, dev_t *device)
{
	const char *minor = strchr(text, ':');
	char major[16];
	uint64_t numbers[2];

	if (!minor || (size_t)(minor - text) >= sizeof(major))
		return false;
	memcpy(major, text, (size_t)(minor - text));
	major[minor - text] = '\0';
	if (parse_u64(major, 0, UINT32_MAX, &numbers[0]) ||
	    parse_u64(minor + 1, 0, UINT32_MAX, &numbers[1]))
		return false;
	*device = makedev((unsigned)numbers[0], (unsigned)numbers[1]);
	return true;
}

/* From the device field, and "user_id=N" among the options. */
static bool line_read(struct line *line, struct mountinfo *info)
{
	char *user = line->options ? strstr(line->options, "user_id=") : NULL;
	uint64_t number;
	dev_t device;

	if (!user || !device_read(line->device, &device))
		return false;
	user += strlen("user_id=");
	user[strcspn(user, ",")] = '\0';
	if (parse_u64(user, 0, UINT32_MAX, &number))
		return false;
	*info = (struct mountinfo){.device = device, .user = (uid_t)number};
	return true;
}

bool mountinfo_read(FILE *table, const char *path, const char *fstype_prefix,
		    struct mountinfo *found)
{
	AUTO_FREE char *text = NULL;
	struct line line;
	bool any = false;

	while (line_find(table, path, fstype_prefix, &text, &line))
		any = line_read(&line, found) || any;
	return any;
}

bool mountinfo_has_device(FILE *table, dev_t device)
{
	AUTO_FREE char *text = NULL;
	struct line line;
	size_t room = 0;
	dev_t found;

	rewind(table);
	while (getline(&text, &room, table) > 0)
		if (line_split(text, &line) && device_read(line.device, &found) && found == device)
			return true;
	return ferror(table);
}

bool mountinfo_is_mounted(const char *path, const char *fstype_prefix)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	if (!table) {
		log_warn("/proc/self/mountinfo: %s: cannot tell what is mounted", strerror(errno));
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

	/* Somebody may have unmounted it and mounted something else there. */
	if (device && unmount_device(mountpoint, &there) == 0 && there != device)
		return;
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0)
		return;
	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ) == 0)
		waitpid(pid, NULL, 0);
}
