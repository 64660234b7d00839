/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/mounts.h"

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
#include "common/number.h"

#define FIELDS 6

static bool is_octal(char c, char max)
{
	return c >= '0' && c <= max;
}

char *octal_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && is_octal(from[1], '3') && is_octal(from[2], '7') &&
		    is_octal(from[3], '7')) {
			*to++ =
			    (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
	return text;
}

/* "MAJOR:MINOR" */
static bool device_parse(char *text, dev_t *device)
{
	char *minor_text = text;
	const char *major_text = strsep(&minor_text, ":");
	uint64_t numbers[2];

	if (!minor_text || parse_u64(major_text, 0, UINT32_MAX, &numbers[0]) < 0 ||
	    parse_u64(minor_text, 0, UINT32_MAX, &numbers[1]) < 0)
		return false;
	*device = makedev((unsigned)numbers[0], (unsigned)numbers[1]);
	return true;
}

/* id parent DEVICE ROOT MOUNTPOINT OPTIONS [tag...] - TYPE source SUPER_OPTIONS */
bool mount_line_parse(char *text, struct mount_line *line)
{
	char *fields[FIELDS], *rest = text, *tag;

	text[strcspn(text, "\n")] = '\0';
	for (unsigned i = 0; i < FIELDS; i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i] || !*fields[i])
			return false;
	}
	*line = (struct mount_line){.root = octal_unescape(fields[3]),
				    .mountpoint = octal_unescape(fields[4]),
				    .options = fields[5]};
	if (parse_u64(fields[0], 0, UINT64_MAX, &line->id) < 0 || *line->mountpoint != '/' ||
	    !device_parse(fields[2], &line->device))
		return false;
	do {
		tag = strsep(&rest, " ");
	} while (tag && strcmp(tag, "-") != 0);
	line->type = strsep(&rest, " ");
	(void)strsep(&rest, " "); /* the source */
	line->super_options = strsep(&rest, " ");
	return true;
}

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

char *mountinfo_options(FILE *table, const char *path, const char *fstype)
{
	AUTO_FREE char *text = NULL;
	char *options = NULL;
	struct mount_line line;

	while (line_find(table, path, "", &text, &line)) {
		free(options);
		options = NULL;
		if (strcmp(line.type, fstype) == 0 &&
		    asprintf(&options, "%s,%s", line.options, line.super_options ?: "") < 0)
			return NULL;
	}
	return options;
}

bool option_list_has(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, length) == 0 && strchr(",=", at[length]))
			return true;
	}
	return false;
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

int unmount_device(const char *path, dev_t *device)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st))
		return -errno;
	*device = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

/* "start-end flags offset device:device inode path", whose numbers but the inode are hexadecimal.
 */
struct maps_line maps_line_parse(const char *line)
{
	struct maps_line parsed;
	char *at;

	parsed.start = strtoull(line, &at, 16);
	parsed.end = strtoull(at + (*at == '-'), &at, 16);
	at += strspn(at, " ");
	at += strcspn(at, " ");
	parsed.offset = strtoull(at, &at, 16);
	unsigned upper = (unsigned)strtoul(at, &at, 16);
	unsigned lower = (unsigned)strtoul(at + (*at == ':'), &at, 16);

	parsed.device = makedev(upper, lower);
	parsed.inode = strtoull(at, &at, 10);
	parsed.path = at + strspn(at, " ");
	return parsed;
}

/* Another file system may have been mounted there since. */
void unmount_lazily(const char *mountpoint, dev_t device)
{
	char *const arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)mountpoint, NULL};
	extern char **environ;
	pid_t pid;
	dev_t mounted_device;

	if (device && unmount_device(mountpoint, &mounted_device) == 0 && mounted_device != device)
		return;
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0)
		return;
	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ) == 0)
		waitpid(pid, NULL, 0);
}
