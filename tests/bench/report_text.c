/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <stdio.h>

#include "tests/bench/report.h"

static const char *scaled(double value, double base, const char *const *units, char *text)
{
	unsigned i = 0;

	while (value >= base * 0.9995 && units[i + 1]) {
		value /= base;
		i++;
	}
	snprintf(text, FIGURE_TEXT_MAX, "%.*f %s",
		 value >= 99.95	  ? 0
		 : value >= 9.995 ? 1
				  : 2,
		 value, units[i]);
	return text;
}

const char *report_value(enum unit unit, double value, char text[FIGURE_TEXT_MAX])
{
	static const char *const rates[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", NULL};
	static const char *const times[] = {"ns", "us", "ms", "s", NULL};
	static const char *const counts[] = {"/s", "k/s", "M/s", "G/s", NULL};
	static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", NULL};

	switch (unit) {
	case UNIT_RATE:
		return scaled(value, 1000, rates, text);
	case UNIT_SECONDS:
	case UNIT_ELAPSED:
		return scaled(value * 1e9, 1000, times, text);
	case UNIT_OPS:
		return scaled(value, 1000, counts, text);
	default:
		return scaled(value, 1024, sizes, text);
	}
}

const char *report_size(uint64_t bytes, char text[FIGURE_TEXT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;

	for (; bytes && bytes % 1024 == 0 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(text, FIGURE_TEXT_MAX, "%llu %s", (unsigned long long)bytes, units[unit]);
	return text;
}

const char *report_unit_name(enum unit unit)
{
	switch (unit) {
	case UNIT_RATE:
		return "bytes/s";
	case UNIT_SECONDS:
	case UNIT_ELAPSED:
		return "s";
	case UNIT_OPS:
		return "1/s";
	default:
		return "bytes";
	}
}
