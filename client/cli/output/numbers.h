/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Numbers for people: sizes, rates and times. */
#ifndef CLIENT_CLI_OUTPUT_NUMBERS_H
#define CLIENT_CLI_OUTPUT_NUMBERS_H

#include <stdint.h>

#define OUTPUT_TEXT_MAX 32

/* The ending of a noun: "" or "s". */
const char *output_plural(uint64_t n);

/* "0", "512", "1.5K", "80G": three digits at most before the unit, rounded. */
const char *output_size(uint64_t bytes, char text[OUTPUT_TEXT_MAX]);
/* "1.30 TB/s", "55.2 GB/s", "0 B/s": decimal units, as in the data sheets of GPUs. */
const char *output_rate(double bytes_per_second, char text[OUTPUT_TEXT_MAX]);
/* "2026-11-29 14:37:30" of seconds since 1970, in the local time; "-" for 0. */
const char *output_date(int64_t seconds, char text[OUTPUT_TEXT_MAX]);
/* "0:07", "1:02:03"; "-:--" for an unknown (negative) time. */
const char *output_time(double seconds, char text[OUTPUT_TEXT_MAX]);

#endif
