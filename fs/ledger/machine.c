/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ledger/machine.h"

#include <linux/limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "common/cleanup.h"
#include "common/number.h"

uint64_t machine_memory(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit;
}

/* The number in a file; UINT64_MAX: no such file, or "max". */
static uint64_t limit_read(const char *path)
{
	FILE *in AUTO_FCLOSE = fopen(path, "re");
	char text[32];
	uint64_t limit;

	if (!in || !fgets(text, sizeof(text), in))
		return UINT64_MAX;
	text[strcspn(text, "\n")] = 0;
	return parse_u64(text, 0, UINT64_MAX, &limit) ? UINT64_MAX : limit;
}

/* The lowest limit of a control group and of all groups above. A container may see only the groups
 * at the end of the path, so missing groups are skipped. */
static uint64_t group_limit(const char *root, const char *group, const char *file)
{
	char ancestor[PATH_MAX], path[2 * PATH_MAX];
	uint64_t lowest = UINT64_MAX;

	snprintf(ancestor, sizeof(ancestor), "%s", group);
	for (;;) {
		snprintf(path, sizeof(path), "%s%s/%s", root, ancestor, file);
		uint64_t limit = limit_read(path);
		char *slash = strrchr(ancestor, '/');

		if (limit < lowest)
			lowest = limit;
		if (!slash)
			return lowest;
		*slash = 0;
	}
}

/* A line of /proc/self/cgroup: "0::/GROUP" for version 2, or "NUMBER:CONTROLLER,...:/GROUP". */
static uint64_t line_limit(char *line, const char *root)
{
	char *controllers = strchr(line, ':'),
	     *group = controllers ? strchr(controllers + 1, ':') : NULL;
	char memory_root[PATH_MAX];

	if (!group)
		return UINT64_MAX;
	*group++ = 0;
	group[strcspn(group, "\n")] = 0;
	if (!*++controllers)
		return group_limit(root, group, "memory.max");
	if (strcmp(controllers, "memory") != 0)
		return UINT64_MAX;
	snprintf(memory_root, sizeof(memory_root), "%s/memory", root);
	return group_limit(memory_root, group, "memory.limit_in_bytes");
}

uint64_t cgroups_memory_limit(const char *groups, const char *root)
{
	FILE *in AUTO_FCLOSE = fopen(groups, "re");
	char *line AUTO_FREE = NULL;
	uint64_t lowest = UINT64_MAX;
	size_t room = 0;

	while (in && getline(&line, &room, in) > 0) {
		uint64_t limit = line_limit(line, root);

		if (limit < lowest)
			lowest = limit;
	}
	return lowest;
}

uint64_t machine_memory_allowed(void)
{
	uint64_t all = machine_memory();
	uint64_t limit = cgroups_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup");

	return limit < all ? limit : all;
}
