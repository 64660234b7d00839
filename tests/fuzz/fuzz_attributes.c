/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Input: an attribute's name, a NUL and a value, as setxattr(2) would pass them. The fuzzer
 * requires an accepted value to read back unchanged, and a refused value to change nothing. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "fs/core/attribute_schema.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void try_value(enum attr_id id, const char *value, size_t length)
{
	const struct attr_values before = {.page_size = PAGE_SIZE_1G, .copy = COPYING_DMA};
	struct attr_values after = before;

	if (attributes_parse(id, value, length, "/gpu0/file", &after) < 0) {
		require(memcmp(&after, &before, sizeof(after)) == 0);
		return;
	}
	const char *text = attributes_text(id, &after);
	require(strlen(text) == length && memcmp(text, value, length) == 0);
	require(after.set == 1U << id);
	attributes_reset(id, &after);
	require(after.set == 0);
}

static void try_quota(enum attr_id id, const char *value, size_t length)
{
	uint64_t limit = 77;

	if (attributes_parse_quota(id, value, length, "/gpu0", &limit) < 0)
		require(limit == 77);
	else if (limit == UINT64_MAX)
		require(length == 4 && memcmp(value, "none", 4) == 0);
	else
		require(length > 0 && value[0] >= '0' && value[0] <= '9');
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	/* Log lines are formatted, then discarded. */
	log_setup(LOG_LEVEL_DEBUG, 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *nul = size ? memchr(data, '\0', size) : NULL;
	if (!nul)
		return 0;
	const char *name = (const char *)data, *value = nul + 1;
	size_t length = size - (size_t)(value - name);

	int id = attributes_find(name);
	require(id < ATTR_COUNT);
	if (id < 0)
		return 0;
	require(strcmp(attributes_name(id), name) == 0);
	try_value(id, value, length);
	if (id == ATTR_QUOTA_BYTES || id == ATTR_QUOTA_FILES)
		try_quota(id, value, length);
	return 0;
}
