/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Formats for people: bars, tables, colours. Names and users as values of JSON. */
#ifndef CLIENT_CLI_OUTPUT_OUTPUT_H
#define CLIENT_CLI_OUTPUT_OUTPUT_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "client/cli/output/numbers.h"

enum output_glyphs { OUTPUT_ASCII, OUTPUT_UNICODE };
/* Whether the terminal's locale has block characters. */
enum output_glyphs output_glyphs(void);

/* Draws a bar of width cells, part of whole of which are full; text has room for
 * OUTPUT_BAR_BYTES(width). A part above 0 fills at least one step, and a part below whole leaves at
 * least one step empty. */
#define OUTPUT_BAR_BYTES(width) (3 * (width) + 1)
const char *output_bar(uint64_t part, uint64_t whole, unsigned width, enum output_glyphs glyphs,
		       char *text);
/* Draws a curve of values, the last value at the right, scaled to the largest value. */
const char *output_curve(const double *values, unsigned count, enum output_glyphs glyphs,
			 char *text);

/* The width of the terminal that the stream writes to; 0: no terminal. */
unsigned output_terminal_width(FILE *out);
/* The number of columns of the text on a terminal. */
unsigned output_width(const char *text);

/* Makes a name printable. Bytes that control a terminal become \ooo (utf8_escape), and so do the
 * characters of extra; with "\\" octal_unescape restores the name. Allocated; NULL: no memory. */
char *output_shown(const char *text, const char *extra);
char *output_escape(const char *text);
/* A text from outside for JSON, which is UTF-8: output_escape as a string. NULL: no memory. */
json_t *output_json_text(const char *text);
/* The name of a user for JSON; "" without a name. */
json_t *output_json_user(uid_t uid);
/* As fprintf, with the formatted text made printable. output_line adds a newline.
 * Colours are written between such calls. */
void output_text(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void output_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void output_vtext(FILE *out, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
enum output_colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_WARN, COLOUR_BAD, COLOUR_DIM, COLOUR_STRONG };

/* Whether the stream gets colours: a terminal with colours, without NO_COLOR in the environment. */
bool output_coloured(FILE *out);
/* The escape sequence of a colour, or "" for a stream without colours. COLOUR_NONE ends a colour.
 */
const char *output_colour(FILE *out, enum output_colour colour);

/* A table with columns as wide as their widest cell. On a terminal that is too narrow, columns with
 * TABLE_OPTIONAL are left out, from the last one on, until the table fits. */
enum table_flags { TABLE_RIGHT = 1, TABLE_OPTIONAL = 2 }; /* TABLE_RIGHT: aligned to the right */
struct table_column {
	const char *head;
	unsigned flags;
};
#define OUTPUT_COLUMNS_MAX 16
struct table {
	const struct table_column *columns;
	unsigned n_columns;
	struct table_cell *cells;
	size_t count;
	bool failed;
};
/* The table of an array of columns, with the heading as its first row. */
#define TABLE(array) table_of(array, sizeof(array) / sizeof((array)[0]))
struct table table_of(const struct table_column *columns, unsigned count);
/* Adds a cell, row by row. The text is copied. */
void table_cell(struct table *table, enum output_colour colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A cell with the name that output_json_user has put into "user", or with the number in "uid". */
void table_user(struct table *table, enum output_colour colour, const json_t *row);
void table_write(const struct table *table, FILE *out);
void table_free(struct table *table);
/* Writes a table to stdout, with the cells that row adds for each object of the list, and frees the
 * table. */
void table_list(struct table table, const json_t *list,
		void (*row)(struct table *table, const json_t *object));

#endif
