/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The moved data: for each lane (thread) a source of random bytes and a sink, page-aligned and
 * faulted in. The measured files have a region for each lane. The expected byte at an offset of a
 * region is the source's byte at that offset modulo the source's size, so moved bytes can be
 * compared however the transfers were cut; after streams of writes, modulo a write's size. */
#ifndef TESTS_BENCH_DATA_H
#define TESTS_BENCH_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES_MAX 32
#define DATA_PAGE 4096

struct data {
	unsigned lanes;	 /* number of lanes with buffers and regions */
	size_t block;	 /* bytes of a source and of a sink: the largest single operation */
	uint64_t region; /* bytes of a lane's region of a file: a multiple of block */
	size_t period;	 /* bytes of the source that fill a region: block, but in write streams */
	char *arena;	 /* all buffers, side by side */
	size_t arena_bytes;
	uint32_t generation; /* counts stamps: bytes written under another generation are stale */
};

int data_open(struct data *data, unsigned lanes, size_t block, uint64_t region); /* 0, -ENOMEM */
void data_close(struct data *data);

char *data_source(const struct data *data, unsigned lane);
char *data_sink(const struct data *data, unsigned lane);

/* Makes every page of the sources different from the content of all targets. */
void data_stamp(struct data *data);

/* Fills a sink, so that bytes compared later were surely moved. */
void data_poison(void *to, size_t bytes);

/* Whether the n bytes, read from the region's offset, have the expected content. The range must not
 * cross a period. */
bool data_is_right(const struct data *data, unsigned lane, uint64_t offset, const void *bytes,
		   size_t n);

/* The next number of a random sequence. */
uint64_t data_random(uint64_t *state);
void data_fill_random(void *to, size_t bytes, uint64_t seed);

#endif
