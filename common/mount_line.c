/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/mount_line.h"

#include <stddef.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "common/number.h"

#define FIELDS 6

static bool is_octal(char c, char most)
{
	return c >= '0' && c <= most;
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
	uint64_t id;

	text[strcspn(text, "\n")] = '\0';
	for (unsigned i = 0; i < FIELDS; i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i] || !*fields[i])
			return false;
	}
	*line = (struct mount_line){.root = octal_unescape(fields[3]),
				    .mountpoint = octal_unescape(fields[4]),
				    .options = fields[5]};
	if (parse_u64(fields[0], 0, UINT64_MAX, &id) < 0 || *line->mountpoint != '/' ||
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
