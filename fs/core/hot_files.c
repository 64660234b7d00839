/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/hot_files.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/stats.h"

static uint64_t slot_load(_Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

/* Release: a reader that sees the new value also sees the ino of 0 stored before. */
static void slot_store(_Atomic uint64_t *value, uint64_t to)
{
	atomic_store_explicit(value, to, memory_order_release);
}

uint64_t busy_now(void)
{
	return (uint64_t)(clock_ns_of(CLOCK_MONOTONIC_COARSE) / CLOCK_SECOND);
}

static void slots_age(struct busy *busy)
{
	for (unsigned i = 0; i < BUSY_SLOTS; i++) {
		slot_store(&busy->base[i], slot_load(&busy->base[i]) / 2);
		slot_store(&busy->weight[i], slot_load(&busy->weight[i]) / 2);
	}
}

static void slot_replace(struct busy *busy, unsigned slot, uint64_t ino, uint64_t bytes)
{
	uint64_t old_weight = slot_load(&busy->weight[slot]);

	slot_store(&busy->ino[slot], 0);
	slot_store(&busy->base[slot], old_weight);
	slot_store(&busy->weight[slot], old_weight + bytes);
	slot_store(&busy->ino[slot], ino);
}

void busy_add(struct busy *busy, uint64_t ino, uint64_t bytes, uint64_t now)
{
	unsigned slot = 0;

	if (!bytes)
		return;
	if (++busy->adds % BUSY_HALF_LIFE == 0)
		slots_age(busy);
	for (unsigned i = 0; i < BUSY_SLOTS; i++) {
		if (slot_load(&busy->ino[i]) == ino) {
			slot_store(&busy->weight[i], slot_load(&busy->weight[i]) + bytes);
			slot_store(&busy->touched[i], now);
			return;
		}
		if (slot_load(&busy->weight[i]) < slot_load(&busy->weight[slot]))
			slot = i;
	}
	slot_replace(busy, slot, ino, bytes);
	slot_store(&busy->touched[slot], now);
}

/* ino is 0 if the slot is free or got another file meanwhile. */
static struct busy_file slot_read(struct busy *busy, unsigned slot)
{
	uint64_t ino = atomic_load_explicit(&busy->ino[slot], memory_order_acquire);
	uint64_t base = atomic_load_explicit(&busy->base[slot], memory_order_acquire);
	uint64_t weight = atomic_load_explicit(&busy->weight[slot], memory_order_acquire);
	uint64_t touched = atomic_load_explicit(&busy->touched[slot], memory_order_acquire);

	if (slot_load(&busy->ino[slot]) != ino || weight <= base)
		return (struct busy_file){0};
	return (struct busy_file){.ino = ino, .bytes = weight - base, .touched = touched};
}

static int busy_file_by_ino(const void *a, const void *b)
{
	const struct busy_file *file_a = a, *file_b = b;

	return (file_a->ino > file_b->ino) - (file_a->ino < file_b->ino);
}

static int busy_file_by_bytes(const void *a, const void *b)
{
	const struct busy_file *file_a = a, *file_b = b;

	return (file_a->bytes < file_b->bytes) - (file_a->bytes > file_b->bytes);
}

/* Adds up the entries of all workers for the same file: the number of files. */
static size_t busy_files_merge(struct busy_file *files, size_t count)
{
	size_t merged = 0;

	qsort(files, count, sizeof(*files), busy_file_by_ino);
	for (size_t i = 0; i < count; i++) {
		if (!merged || files[merged - 1].ino != files[i].ino) {
			files[merged++] = files[i];
			continue;
		}
		files[merged - 1].bytes += files[i].bytes;
		if (files[i].touched > files[merged - 1].touched)
			files[merged - 1].touched = files[i].touched;
	}
	return merged;
}

size_t busy_files(struct stats *stats, struct busy_file *files, size_t room, uint64_t now)
{
	struct stats_block *first = atomic_load_explicit(&stats->blocks, memory_order_acquire);
	size_t blocks = 0, count = 0;

	for (struct stats_block *block = first; block; block = block->next)
		blocks++;
	struct busy_file *all AUTO_FREE = calloc(blocks * BUSY_SLOTS + 1, sizeof(*all));

	if (!all)
		return 0;
	for (struct stats_block *block = first; block; block = block->next) {
		for (unsigned i = 0; i < BUSY_SLOTS; i++) {
			all[count] = slot_read(&block->busy, i);
			count += all[count].ino && all[count].touched + BUSY_SECONDS >= now;
		}
	}
	count = busy_files_merge(all, count);
	qsort(all, count, sizeof(*all), busy_file_by_bytes);
	if (count > room)
		count = room;
	for (size_t i = 0; i < count; i++)
		files[i] = all[i];
	return count;
}
