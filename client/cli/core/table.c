/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/output.h"
#include "common/cleanup.h"
#include "common/vector.h"

struct table_cell {
	char *text;
	enum output_colour colour;
};

void table_cell(struct table *table, enum output_colour colour, const char *format, ...)
{
	struct table_cell *cells = vector_grow(table->cells, table->count, sizeof(*cells));
	va_list args;

	if (!cells) {
		table->failed = true;
		return;
	}
	table->cells = cells;
	struct table_cell *cell = &table->cells[table->count];
	AUTO_FREE char *text = NULL;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	cell->text = text ? output_shown(text, "") : NULL;
	cell->colour = colour;
	if (cell->text)
		table->count++;
	else
		table->failed = true;
}

void table_user(struct table *table, enum output_colour colour, const json_t *row)
{
	const char *user = json_string_value(json_object_get(row, "user"));

	if (user && *user)
		table_cell(table, colour, "%s", user);
	else
		table_cell(table, colour, "%u",
			   (unsigned)json_integer_value(json_object_get(row, "uid")));
}

static void table_measure(const struct table *table, unsigned *widths)
{
	for (size_t i = 0; i < table->count; i++) {
		unsigned width = output_width(table->cells[i].text);

		if (width > widths[i % table->columns])
			widths[i % table->columns] = width;
	}
}

static void table_write_cell(const struct table *table, size_t i, unsigned width, FILE *out)
{
	const struct table_cell *cell = &table->cells[i];
	unsigned column = (unsigned)(i % table->columns), pad = width - output_width(cell->text);
	bool right = table->right >> column & 1, last = column + 1 == table->columns;

	fprintf(out, "%*s%s%s%s", right ? (int)pad : 0, "",
		cell->colour ? output_colour(out, cell->colour) : "", cell->text,
		cell->colour ? output_colour(out, COLOUR_NONE) : "");
	if (last)
		fputc('\n', out);
	else
		fprintf(out, "%*s  ", right ? 0 : (int)pad, "");
}

void table_write(const struct table *table, FILE *out)
{
	unsigned widths[OUTPUT_COLUMNS_MAX] = {0};

	table_measure(table, widths);
	for (size_t i = 0; i < table->count; i++)
		table_write_cell(table, i, widths[i % table->columns], out);
	if (table->failed)
		fputs("(no memory for the rest)\n", out);
}

void table_free(struct table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i].text);
	free(table->cells);
	*table = (struct table){0};
}

void table_list(const char *const *heads, unsigned columns, unsigned right, const json_t *list,
		void (*row)(struct table *table, const json_t *one))
{
	struct table table = {.columns = columns, .right = right};
	const json_t *one;
	size_t i;

	for (i = 0; i < columns; i++)
		table_cell(&table, COLOUR_DIM, "%s", heads[i]);
	json_array_foreach (list, i, one)
		row(&table, one);
	table_write(&table, stdout);
	table_free(&table);
}
