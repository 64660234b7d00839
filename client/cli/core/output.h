/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How facts are shown: sizes, bars, tables, colours; and as JSON. */
#ifndef CLIENT_CLI_CORE_OUTPUT_H
#define CLIENT_CLI_CORE_OUTPUT_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define OUTPUT_TEXT_MAX 32

/* "0", "512", "1.5K", "80G": three digits at most before the unit, rounded. */
const char *output_size(uint64_t bytes, char text[OUTPUT_TEXT_MAX]);
/* "1.30 TB/s", "55.2 GB/s", "0 B/s": decimal units, as the makers of GPUs quote them. */
const char *output_rate(double bytes_per_second, char text[OUTPUT_TEXT_MAX]);
/* "0:07", "1:02:03"; "-:--" for what cannot be told (negative). */
const char *output_time(double seconds, char text[OUTPUT_TEXT_MAX]);

enum output_glyphs { OUTPUT_ASCII, OUTPUT_UNICODE };
/* Whether the terminal's locale has block characters. */
enum output_glyphs output_glyphs(void);

/* A bar of width cells, part of whole of it full: text has room for OUTPUT_BAR_BYTES(width). Part
 * is more than nothing: it is seen. Part is less than whole: that is seen too. */
#define OUTPUT_BAR_BYTES(width) (3 * (width) + 1)
const char *output_bar(uint64_t part, uint64_t whole, unsigned width, enum output_glyphs glyphs,
		       char *text);
/* A curve of values, the last one right, against the largest of them. */
const char *output_curve(const double *values, unsigned count, enum output_glyphs glyphs,
			 char *text);

/* How many columns a terminal needs to show the text. */
unsigned output_width(const char *text);

/* Names may hold anything. What a terminal would obey becomes \ooo (utf8_escape), and with it the
 * characters of also: "\\" makes it a name that output_unescape takes back. Allocated; NULL: no
 * memory. */
char *output_shown(const char *text, const char *also);
char *output_escape(const char *text);
/* As fprintf, with all that the format and the arguments make shown so; "\n" comes from
 * output_line, and colours come between. */
void output_text(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void output_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void output_vtext(FILE *out, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* Puts the byte in the place of every \ooo, as the kernel's tables and the daemon write them; the
 * text. */
char *output_unescape(char *text);

enum output_colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_WARN, COLOUR_BAD, COLOUR_DIM, COLOUR_STRONG };

/* Whether this stream gets colours: a terminal that has them, and no NO_COLOR in the environment.
 */
bool output_coloured(FILE *out);
/* The escape sequence, or "" where there are no colours. COLOUR_NONE ends one. */
const char *output_colour(FILE *out, enum output_colour colour);

/* A table whose columns are as wide as they need to be. */
#define OUTPUT_COLUMNS_MAX 16
struct table {
	unsigned columns;
	unsigned right; /* bit per column: aligned to the right */
	struct table_cell *cells;
	size_t count;
	bool failed;
};
/* The first row is the head. Texts are copied. */
void table_cell(struct table *table, enum output_colour colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void table_write(const struct table *table, FILE *out);
void table_free(struct table *table);

/* The end of a command that lists: the list, which is let go, as JSON under its name, or by table
 * where there is anything in it. The exit status: the command's so far, or that of writing. */
int output_list(const char *name, json_t *list, bool json, int status,
		void (*table)(const json_t *list));
/* What gpumem(1) promises of the documents: another number where a name goes or means another. */
#define OUTPUT_SCHEMA 1
/* Writes the object, with its schema, and lets it go: the exit status. NULL is taken for a lack of
 * memory. */
int output_json(json_t *value);
/* The same on one line, where more of them follow. */
int output_json_line(json_t *value);

#endif
