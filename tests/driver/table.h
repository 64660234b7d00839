/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sorted ranges of addresses without overlap; handles are ranges of size 1. The functions take no
 * lock. */
#ifndef DRIVER_TABLE_H
#define DRIVER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_entry {
	uint64_t base, size;
	void *object;
};

struct table {
	struct table_entry *entries;
	size_t count, room;
};

/* Returns the index of the first entry that ends after address, or table->count. */
size_t table_after(const struct table *table, uint64_t address);
/* The entry that holds address, or NULL; valid until the table changes. */
struct table_entry *table_find(const struct table *table, uint64_t address);
/* The object of the entry that starts at base, or NULL. */
void *table_at(const struct table *table, uint64_t base);
bool table_overlaps(const struct table *table, uint64_t base, uint64_t size);
/* The caller passes a range that overlaps no entry. Ends the process when out of memory. */
void table_add(struct table *table, uint64_t base, uint64_t size, void *object);
void table_remove(struct table *table, uint64_t base);

#endif
