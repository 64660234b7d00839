/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of mounts, in which users choose names: the first line of the input is the path that is
 * looked up, the rest is a table as in /proc/self/mountinfo. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/system/mounts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* Not strndup, of which the address sanitizer checks the byte behind the last one, too. */
static char *text_copy(const char *from, size_t length)
{
	char *text = calloc(1, length + 1);

	if (!text)
		abort();
	memcpy(text, from, length);
	return text;
}

/* The fields of a line are parts of the line, and each ends in the line. */
static void check_line(const char *from, size_t length)
{
	AUTO_FREE char *text = text_copy(from, length);
	size_t bytes = strlen(text);
	struct mount_line line;

	if (!mount_line_parse(text, &line))
		return;
	const char *const fields[] = {line.root, line.mountpoint, line.options, line.type,
				      line.super_options};
	for (unsigned i = 0; i < 5; i++) {
		require(fields[i] || i > 2);
		require(!fields[i] ||
			(fields[i] >= text && fields[i] + strlen(fields[i]) <= text + bytes));
	}
}

static void check_table(const char *path, FILE *table, dev_t device)
{
	struct mountinfo info = {0};

	bool is_fuse = mountinfo_read(table, path, "fuse", &info);
	rewind(table);
	bool is_mounted = mountinfo_find(table, path, "");
	require(is_mounted || !is_fuse);
	require(!is_fuse || mountinfo_has_device(table, info.device));
	mountinfo_has_device(table, device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *end = size ? memchr(data, '\n', size) : NULL;

	if (!end || end + 1 == (const char *)data + size)
		return 0;
	AUTO_FREE char *path = text_copy((const char *)data, (size_t)(end - (const char *)data));
	size_t bytes = size - (size_t)(end + 1 - (const char *)data);
	FILE *table = fmemopen((void *)(end + 1), bytes, "r");

	if (!table)
		abort();
	for (const char *at = end + 1, *next; bytes; at = next) {
		next = memchr(at, '\n', bytes);
		next = next ? next + 1 : at + bytes;
		check_line(at, (size_t)(next - at));
		bytes -= (size_t)(next - at);
	}
	check_table(path, table, 42);
	fclose(table);
	return 0;
}
