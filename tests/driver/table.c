/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/driver/table.h"

#include <stdlib.h>
#include <string.h>

size_t table_after(const struct table *table, uint64_t address)
{
	size_t low = 0, high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->entries[middle].base + table->entries[middle].size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct table_entry *table_find(const struct table *table, uint64_t address)
{
	size_t i = table_after(table, address);

	if (i == table->count || table->entries[i].base > address)
		return NULL;
	return &table->entries[i];
}

void *table_at(const struct table *table, uint64_t base)
{
	const struct table_entry *entry = table_find(table, base);

	return entry && entry->base == base ? entry->object : NULL;
}

bool table_overlaps(const struct table *table, uint64_t base, uint64_t size)
{
	size_t i = table_after(table, base);

	return i < table->count && table->entries[i].base < base + size;
}

void table_add(struct table *table, uint64_t base, uint64_t size, void *object)
{
	size_t i = table_after(table, base);

	if (table->count == table->room) {
		table->room = table->room ? table->room * 2 : 64;
		table->entries = realloc(table->entries, table->room * sizeof(*table->entries));
		if (!table->entries)
			abort();
	}
	memmove(&table->entries[i + 1], &table->entries[i],
		(table->count - i) * sizeof(*table->entries));
	table->entries[i] = (struct table_entry){base, size, object};
	table->count++;
}

void table_remove(struct table *table, uint64_t base)
{
	size_t i = table_after(table, base);

	if (i == table->count || table->entries[i].base != base)
		return;
	table->count--;
	memmove(&table->entries[i], &table->entries[i + 1],
		(table->count - i) * sizeof(*table->entries));
}
