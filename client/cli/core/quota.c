/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/quota.h"

#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/facts.h"
#include "client/cli/output/numbers.h"
#include "common/cleanup.h"

/* A quota of a directory, of bytes or of files. */
struct quota {
	uint64_t limit, used;
};

/* False: the directory has no such quota. */
static bool quota_read(const char *dir, const char *limit, const char *used, struct quota *quota)
{
	AUTO_FREE char *text = NULL;

	if (facts_attribute(dir, limit, &text) < 0 || *text < '0' || *text > '9')
		return false;
	*quota = (struct quota){strtoull(text, NULL, 10), facts_attribute_number(dir, used)};
	return true;
}

static bool quota_refuses(const struct quota *quota, uint64_t needed)
{
	return quota->used >= quota->limit || needed > quota->limit - quota->used;
}

/* Of a single directory. */
static bool quota_text_of(const char *dir, uint64_t needed, char text[QUOTA_TEXT_MAX])
{
	char used[OUTPUT_TEXT_MAX], limit[OUTPUT_TEXT_MAX];
	struct quota quota;

	if (quota_read(dir, "quota.max_bytes", "rbytes", &quota) &&
	    (needed == 0 || quota_refuses(&quota, needed))) {
		snprintf(text, QUOTA_TEXT_MAX, "the quota of %s allows no more: %s of %s are used",
			 dir, output_size(quota.used, used), output_size(quota.limit, limit));
		return true;
	}
	if (quota_read(dir, "quota.max_files", "rfiles", &quota) && quota_refuses(&quota, 1)) {
		snprintf(text, QUOTA_TEXT_MAX, "the quota of %s allows no more: %ju of %ju file%s",
			 dir, (uintmax_t)quota.used, (uintmax_t)quota.limit,
			 output_plural(quota.limit));
		return true;
	}
	return false;
}

static bool has_quotas(const char *dir)
{
	AUTO_FREE char *text = NULL;

	return facts_attribute(dir, "rfiles", &text) == 0;
}

const char *quota_text(const char *path, uint64_t needed, char text[QUOTA_TEXT_MAX])
{
	AUTO_FREE char *word = strdup(path), *dir = word ? realpath(dirname(word), NULL) : NULL;

	/* Up to the root of the mount, which has no attributes of this file system. */
	while (dir && *dir && has_quotas(dir)) {
		if (quota_text_of(dir, needed, text))
			return text;
		*strrchr(dir, '/') = '\0';
	}
	snprintf(text, QUOTA_TEXT_MAX,
		 "a limit of one user allows no more (gpumem users shows whose files take what)");
	return text;
}
