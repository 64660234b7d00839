/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char size_suffixes[] = "KMGT";

/* Reads the digits at *text and moves *text past the digits, after an overflow as well: a malformed
 * number of any size is -EINVAL. */
static int number_digits(const char **text, uint64_t *value)
{
	const char *at = *text;
	uint64_t sum = 0;
	int rc = 0;

	if (*at < '0' || *at > '9')
		return -EINVAL;
	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(sum, 10, &sum) ||
		    __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum))
			rc = -ERANGE;
	*text = at;
	*value = sum;
	return rc;
}

/* Reads an optional unit, and returns its bytes. */
static uint64_t number_unit(const char **text)
{
	const char *suffix = **text ? strchr(size_suffixes, **text == 'k' ? 'K' : **text) : NULL;
	uint64_t base = 1024, unit = 1;

	if (!suffix || (**text == 'k' && (*text)[1] != 'B'))
		return 1;
	++*text;
	if (**text == 'B') {
		base = 1000;
		++*text;
	} else if (strncmp(*text, "iB", 2) == 0) {
		*text += 2;
	}
	for (const char *power = size_suffixes; power <= suffix; power++)
		unit *= base;
	return unit;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	uint64_t number = 0;
	int rc = number_digits(&text, &number);
	if (rc == -EINVAL || *text)
		return -EINVAL;
	if (rc < 0 || number < min || number > max)
		return -ERANGE;
	*value = number;
	return 0;
}

int parse_size(const char *text, uint64_t *bytes)
{
	uint64_t number = 0;
	int rc = number_digits(&text, &number);
	if (rc == -EINVAL)
		return rc;
	uint64_t unit = number_unit(&text);
	if (*text)
		return -EINVAL;
	if (rc < 0 || __builtin_mul_overflow(number, unit, &number))
		return -ERANGE;
	*bytes = number;
	return 0;
}

int parse_size_or_percent(const char *text, uint64_t whole, uint64_t *bytes)
{
	const char *end = text;
	uint64_t percent = 0;
	int rc = number_digits(&end, &percent);
	if (rc == -EINVAL || strcmp(end, "%") != 0)
		return parse_size(text, bytes);
	if (rc < 0 || percent > 100)
		return -ERANGE;
	/* In two parts, because whole * percent may overflow. */
	*bytes = whole / 100 * percent + whole % 100 * percent / 100;
	return 0;
}

bool version_at_least(const char *version, unsigned major, unsigned minor)
{
	char *end;
	unsigned long first = strtoul(version, &end, 10);
	unsigned long second = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	return first > major || (first == major && second >= minor);
}
