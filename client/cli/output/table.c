/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/vector.h"

/* Blanks between two columns. */
#define COLUMN_GAP 2U

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

struct table table_of(const struct table_column *columns, unsigned count)
{
	struct table table = {.columns = columns, .n_columns = count};

	for (unsigned i = 0; i < count; i++)
		table_cell(&table, COLOUR_DIM, "%s", columns[i].head);
	return table;
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

		if (width > widths[i % table->n_columns])
			widths[i % table->n_columns] = width;
	}
}

/* Adds up the widths and the gaps of the columns, less one gap, and sets hidden for columns until
 * the sum fits into a terminal. */
static void table_fit(const struct table *table, const unsigned *widths, unsigned most,
		      bool *hidden)
{
	unsigned total = 0;

	for (unsigned i = 0; i < table->n_columns; i++)
		total += widths[i] + COLUMN_GAP;
	for (unsigned i = table->n_columns; i-- && total > most + COLUMN_GAP;) {
		hidden[i] = table->columns[i].flags & TABLE_OPTIONAL;
		if (hidden[i])
			total -= widths[i] + COLUMN_GAP;
	}
}

static void table_write_cell(const struct table *table, size_t i, unsigned width, FILE *out)
{
	const struct table_cell *cell = &table->cells[i];
	unsigned column = (unsigned)(i % table->n_columns), pad = width - output_width(cell->text);
	bool right = table->columns[column].flags & TABLE_RIGHT;
	bool last = column + 1 == table->n_columns;

	fprintf(out, "%*s%s%s%s", right ? (int)pad : 0, "",
		cell->colour ? output_colour(out, cell->colour) : "", cell->text,
		cell->colour ? output_colour(out, COLOUR_NONE) : "");
	if (last)
		fputc('\n', out);
	else
		fprintf(out, "%*s", (int)(COLUMN_GAP + (right ? 0 : pad)), "");
}

/* The last column is never optional. */
void table_write(const struct table *table, FILE *out)
{
	unsigned widths[OUTPUT_COLUMNS_MAX] = {0}, most = output_terminal_width(out);
	bool hidden[OUTPUT_COLUMNS_MAX] = {0};

	table_measure(table, widths);
	if (most)
		table_fit(table, widths, most, hidden);
	for (size_t i = 0; i < table->count; i++)
		if (!hidden[i % table->n_columns])
			table_write_cell(table, i, widths[i % table->n_columns], out);
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

void table_list(struct table table, const json_t *list,
		void (*row)(struct table *table, const json_t *object))
{
	const json_t *object;
	size_t i;

	json_array_foreach (list, i, object)
		row(&table, object);
	table_write(&table, stdout);
	table_free(&table);
}
