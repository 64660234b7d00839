/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/attribute_schema.h"

#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "common/number.h"

/* Longer than any value. */
#define VALUE_MAX 32

_Static_assert(ATTR_VALUES <= ATTRIBUTES_MAX, "a 17th attribute needs another layout");
_Static_assert(sizeof(struct attr_values) == sizeof(uint64_t), "loaded at once");
_Static_assert(ATTRIBUTE_CHOICES_MAX == 1 << ATTRIBUTE_BITS(ATTR_PRIORITY),
	       "a field holds a choice");

int attributes_find(const char *name)
{
	if (strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) != 0)
		return -ENODATA;
	for (int id = 0; id < ATTR_COUNT; id++)
		if (strcmp(name, attributes[id].full) == 0)
			return id;
	log_warn("%s: no such attribute (see gpumem(7))", name);
	return -EINVAL;
}

const char *attributes_name(enum attr_id id)
{
	return attributes[id].full;
}

bool attributes_read_only(enum attr_id id)
{
	return !*attributes[id].choices;
}

static int attribute_refuse(enum attr_id id, const char *text, size_t length, const char *path)
{
	int shown = length < VALUE_MAX ? (int)length : VALUE_MAX;
	log_warn("%s: %s=%.*s: not one of: %s", path, attributes[id].full, shown, text,
		 attributes[id].choices);
	return -EINVAL;
}

static bool text_is(const char *literal, const char *text, size_t length)
{
	return strlen(literal) == length && memcmp(literal, text, length) == 0;
}

static void set_value(enum attr_id id, uint64_t value, uint64_t is_set, struct attr_values *values)
{
	unsigned shift = ATTRIBUTE_SHIFT(id);

	values->bits &= ~(((1ULL << ATTRIBUTE_BITS(id)) - 1) << shift);
	values->bits |= value << shift;
	values->set = (values->set & ~(1ULL << id)) | is_set << id;
}

void attributes_take(enum attr_id id, struct attr_values *values, const struct attr_values *from)
{
	set_value(id, attributes_value(id, from), from->set >> id & 1, values);
}

int attributes_parse(enum attr_id id, const char *text, size_t length, const char *path,
		     struct attr_values *values)
{
	if (id >= ATTR_VALUES)
		return -EINVAL;
	const char *const *words = attributes[id].words;

	for (unsigned value = 0; value < ATTRIBUTE_CHOICES_MAX && words[value]; value++) {
		if (!text_is(words[value], text, length))
			continue;
		set_value(id, value, 1, values);
		return 0;
	}
	return attribute_refuse(id, text, length, path);
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
		return attribute_refuse(id, text, length, path);
	memcpy(number, text, length);
	number[length] = '\0';
	/* UINT64_MAX stands for "none". */
	if (parse_size(number, &value) < 0 || value == UINT64_MAX)
		return attribute_refuse(id, text, length, path);
	*limit = value;
	return 0;
}

const char *attributes_text(enum attr_id id, const struct attr_values *values)
{
	const char *word =
	    id < ATTR_VALUES ? attributes[id].words[attributes_value(id, values)] : NULL;

	return word ? word : "";
}

bool attributes_are_known(const struct attr_values *values)
{
	for (int id = 0; id < ATTR_VALUES; id++)
		if (!*attributes_text((enum attr_id)id, values))
			return false;
	return values->unused == 0 && values->set >> ATTR_VALUES == 0;
}

void attributes_reset(enum attr_id id, struct attr_values *values)
{
	if (id < ATTR_VALUES)
		set_value(id, 0, 0, values);
}
