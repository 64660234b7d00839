/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shows the results. */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include "tests/bench/bench.h"

/* In report_table.c: prints each case on standard output when the case ends. report_end returns the
 * number of failures. */
void report_head(const struct bench *bench);
void report_case(const struct bench *bench, const struct case_report *report);
unsigned report_end(const struct bench *bench);

/* Writes a file: 0, or -1 after an error message. */
int report_json(const struct bench *bench, const char *path);
/* A chart of size against rate, with a panel for each direction and number of threads. */
int report_svg(const struct bench *bench, const char *path);

#define FIGURE_TEXT_MAX 24
/* "5.32 GB/s", "12.3 us", "45.1 k/s", "312 B": three significant digits. */
const char *report_value(enum unit unit, double value, char text[FIGURE_TEXT_MAX]);
/* "64 B", "4 KiB": exact, for round sizes. */
const char *report_size(uint64_t bytes, char text[FIGURE_TEXT_MAX]);
const char *report_unit_name(enum unit unit); /* unit of the plain numbers in the JSON */
const char *report_machine(char *text, size_t size);

#endif
