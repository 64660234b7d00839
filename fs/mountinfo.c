/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/mountinfo.h"

#include <errno.h>
#include <string.h>

#include "common/defer.h"
#include "common/log.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The kernel writes blanks, tabs, newlines and backslashes as \ooo. In place. */
static void unescape(char *text)
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

/* id parent major:minor root MOUNTPOINT options [tag...] - TYPE source options */
static bool line_split(char *line, char **mountpoint, char **type)
{
	char *rest = NULL;
	char *field = strtok_r(line, " \n", &rest);

	*mountpoint = NULL;
	for (unsigned i = 0; field && i < 6; i++) {
		if (i == 4)
			*mountpoint = field;
		field = strtok_r(NULL, " \n", &rest);
	}
	while (field && strcmp(field, "-") != 0)
		field = strtok_r(NULL, " \n", &rest);
	*type = field ? strtok_r(NULL, " \n", &rest) : NULL;
	return *type && **mountpoint == '/';
}

bool mountinfo_find(FILE *table, const char *path, const char *fstype_prefix)
{
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	char *mountpoint, *type;

	while (getline(&line, &room, table) > 0) {
		if (!line_split(line, &mountpoint, &type))
			continue;
		unescape(mountpoint);
		if (strcmp(mountpoint, path) == 0 &&
		    strncmp(type, fstype_prefix, strlen(fstype_prefix)) == 0)
			return true;
	}
	return false;
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
