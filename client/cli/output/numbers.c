/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/output/numbers.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Writes value / unit^n with the letter of the unit. A value that would be rounded up to 1 of the
 * next unit is shown in the next unit. */
static const char *number_scale(double value, double unit, const char *letters, const char *suffix,
				char *text)
{
	unsigned n = 0;

	while (value >= unit - 0.5 && letters[n + 1]) {
		value /= unit;
		n++;
	}
	char letter[2] = {letters[n] == ' ' ? '\0' : letters[n], '\0'};
	int digits = n == 0 || value >= 99.95 ? 0 : value >= 9.995 || unit > 1000 ? 1 : 2;

	if (unit > 1000 && value >= 9.95)
		digits = 0;
	snprintf(text, OUTPUT_TEXT_MAX, "%.*f%s%s", digits, value, letter, suffix);
	return text;
}

const char *output_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

const char *output_size(uint64_t bytes, char text[OUTPUT_TEXT_MAX])
{
	number_scale((double)bytes, 1024, " KMGTPE", "", text);
	/* 2.0M is written as 2M. */
	char *point = strstr(text, ".0");

	if (point)
		memmove(point, point + 2, strlen(point + 2) + 1);
	return text;
}

const char *output_rate(double rate, char text[OUTPUT_TEXT_MAX])
{
	char number[OUTPUT_TEXT_MAX];

	number_scale(rate < 0 ? 0 : rate, 1000, " kMGTP", "", number);
	size_t length = strlen(number);
	bool unit = length && isalpha((unsigned char)number[length - 1]);

	snprintf(text, OUTPUT_TEXT_MAX, "%.*s %.1sB/s", (int)(unit ? length - 1 : length), number,
		 unit ? number + length - 1 : "");
	return text;
}

const char *output_time(double seconds, char text[OUTPUT_TEXT_MAX])
{
	if (!(seconds >= 0 && seconds < 360000)) {
		snprintf(text, OUTPUT_TEXT_MAX, "-:--");
		return text;
	}
	unsigned whole = (unsigned)(seconds + 0.5);

	if (whole >= 3600)
		snprintf(text, OUTPUT_TEXT_MAX, "%u:%02u:%02u", whole / 3600, whole / 60 % 60,
			 whole % 60);
	else
		snprintf(text, OUTPUT_TEXT_MAX, "%u:%02u", whole / 60, whole % 60);
	return text;
}

const char *output_date(int64_t seconds, char text[OUTPUT_TEXT_MAX])
{
	time_t at = (time_t)seconds;
	struct tm date;

	if (!at || !localtime_r(&at, &date) ||
	    !strftime(text, OUTPUT_TEXT_MAX, "%Y-%m-%d %H:%M:%S", &date))
		snprintf(text, OUTPUT_TEXT_MAX, "-");
	return text;
}
