/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/attribute_schema.h"

#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "common/number.h"

#define CHOICES_MAX 5

/* Longer than any value. */
#define VALUE_MAX 32

struct row {
	const char *name;
	const char *choices; /* as attributes_choices says */
	/* The texts of the values, in the order of their enum; empty for what is no choice. */
	const char *texts[CHOICES_MAX];
	size_t field; /* offset in struct attr_values */
};

#define NAME(text)  ATTRIBUTES_PREFIX text
#define FIELD(name) offsetof(struct attr_values, name)
#define QUOTA	    "none, or a number such as 5000, 10G, 10GiB or 10GB"

static const struct row table[ATTR_COUNT] = {
    [ATTR_PAGE_SIZE] = {.name = NAME("page_size"),
			.choices = "auto 4K 64K 2M 1G",
			.texts = {"auto", "4K", "64K", "2M", "1G"},
			.field = FIELD(page_size)},
    [ATTR_PERSIST] = {.name = NAME("persist"),
		      .choices = "volatile restart disk",
		      .texts = {"volatile", "restart", "disk"},
		      .field = FIELD(persist)},
    [ATTR_MAPPING] = {.name = NAME("mapping"),
		      .choices = "auto persistent transient",
		      .texts = {"auto", "persistent", "transient"},
		      .field = FIELD(mapping)},
    [ATTR_COPY] = {.name = NAME("copy"),
		   .choices = "auto bar dma",
		   .texts = {"auto", "bar", "dma"},
		   .field = FIELD(copy)},
    [ATTR_FORCE_PCIE] = {.name = NAME("force_pcie"),
			 .choices = "0 1",
			 .texts = {"0", "1"},
			 .field = FIELD(force_pcie)},
    [ATTR_SHARE] = {.name = NAME("share"),
		    .choices = "private trusted",
		    .texts = {"private", "trusted"},
		    .field = FIELD(share)},
    [ATTR_QUOTA_BYTES] = {.name = NAME("quota.max_bytes"), .choices = QUOTA},
    [ATTR_QUOTA_FILES] = {.name = NAME("quota.max_files"), .choices = QUOTA},
    [ATTR_DEVICE] = {.name = NAME("device"), .choices = ""},
    [ATTR_EXTENTS] = {.name = NAME("extents"), .choices = ""},
    [ATTR_RESIDENT] = {.name = NAME("resident"), .choices = ""},
    [ATTR_MAPPED] = {.name = NAME("mapped"), .choices = ""},
    [ATTR_LEASES] = {.name = NAME("leases"), .choices = ""},
    [ATTR_RBYTES] = {.name = NAME("rbytes"), .choices = ""},
    [ATTR_RFILES] = {.name = NAME("rfiles"), .choices = ""},
};

_Static_assert(ATTR_VALUES <= 8 * sizeof(((struct attr_values *)0)->set), "a bit per value");

int attributes_find(const char *name)
{
	if (strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) != 0)
		return -ENODATA;
	for (int id = 0; id < ATTR_COUNT; id++)
		if (strcmp(name, table[id].name) == 0)
			return id;
	log_warn("%s: no such attribute (see gpumem(7))", name);
	return -EINVAL;
}

const char *attributes_name(enum attr_id id)
{
	return table[id].name;
}

bool attributes_read_only(enum attr_id id)
{
	return id >= ATTR_DEVICE;
}

const char *attributes_choices(enum attr_id id)
{
	return table[id].choices;
}

static int refuse(enum attr_id id, const char *text, size_t length, const char *path)
{
	int shown = length < VALUE_MAX ? (int)length : VALUE_MAX;
	log_warn("%s: %s=%.*s: not one of: %s", path, table[id].name, shown, text,
		 table[id].choices);
	return -EINVAL;
}

static bool text_is(const char *known, const char *text, size_t length)
{
	return strlen(known) == length && memcmp(known, text, length) == 0;
}

int attributes_parse(enum attr_id id, const char *text, size_t length, const char *path,
		     struct attr_values *values)
{
	const struct row *row = &table[id];

	if (id >= ATTR_VALUES)
		return -EINVAL;
	for (unsigned value = 0; value < CHOICES_MAX && row->texts[value]; value++) {
		if (!text_is(row->texts[value], text, length))
			continue;
		((uint8_t *)values)[row->field] = (uint8_t)value;
		values->set |= (uint8_t)(1U << id);
		return 0;
	}
	return refuse(id, text, length, path);
}

int attributes_parse_quota(enum attr_id id, const char *text, size_t length, const char *path,
			   uint64_t *limit)
{
	char number[VALUE_MAX];
	uint64_t value;

	if (text_is("none", text, length)) {
		*limit = UINT64_MAX;
		return 0;
	}
	if (length == 0 || length >= sizeof(number) || memchr(text, '\0', length))
		return refuse(id, text, length, path);
	memcpy(number, text, length);
	number[length] = '\0';
	/* The largest number is how "none" is kept. */
	if (parse_size(number, &value) < 0 || value == UINT64_MAX)
		return refuse(id, text, length, path);
	*limit = value;
	return 0;
}

const char *attributes_text(enum attr_id id, const struct attr_values *values)
{
	if (id >= ATTR_VALUES)
		return "";
	unsigned value = ((const uint8_t *)values)[table[id].field];
	return value < CHOICES_MAX && table[id].texts[value] ? table[id].texts[value] : "";
}

bool attributes_are_known(const struct attr_values *values)
{
	for (int id = 0; id < ATTR_VALUES; id++)
		if (!*attributes_text((enum attr_id)id, values))
			return false;
	return true;
}

void attributes_reset(enum attr_id id, struct attr_values *values)
{
	if (id >= ATTR_VALUES)
		return;
	((uint8_t *)values)[table[id].field] = 0;
	values->set &= (uint8_t) ~(1U << id);
}
