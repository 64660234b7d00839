/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/data.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0x5b

uint64_t data_random(uint64_t *state)
{
	uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

void data_fill_random(void *to, size_t bytes, uint64_t seed)
{
	uint64_t word = 0;

	for (size_t i = 0; i < bytes; i += sizeof(word)) {
		size_t n = bytes - i < sizeof(word) ? bytes - i : sizeof(word);

		word = data_random(&seed);
		memcpy((char *)to + i, &word, n);
	}
}

int data_open(struct data *data, unsigned lanes, size_t block, uint64_t region)
{
	size_t bytes = 2 * (size_t)lanes * block;
	void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (arena == MAP_FAILED)
		return -ENOMEM;
	*data = (struct data){.lanes = lanes,
			      .block = block,
			      .region = region,
			      .period = block,
			      .arena = arena,
			      .arena_bytes = bytes,
			      .generation = 1};
	for (unsigned lane = 0; lane < lanes; lane++) {
		data_fill_random(data_source(data, lane), block, lane + 1);
		data_poison(data_sink(data, lane), block);
	}
	return 0;
}

void data_close(struct data *data)
{
	if (data->arena)
		munmap(data->arena, data->arena_bytes);
	data->arena = NULL;
}

char *data_source(const struct data *data, unsigned lane)
{
	return data->arena + 2 * (size_t)lane * data->block;
}

char *data_sink(const struct data *data, unsigned lane)
{
	return data_source(data, lane) + data->block;
}

void data_stamp(struct data *data)
{
	uint64_t state = ++data->generation;

	for (unsigned lane = 0; lane < data->lanes; lane++)
		for (size_t at = 0; at < data->block; at += DATA_PAGE) {
			uint64_t stamp = data_random(&state);

			memcpy(data_source(data, lane) + at, &stamp, sizeof(stamp));
		}
}

void data_poison(void *to, size_t bytes)
{
	memset(to, POISON, bytes);
}

bool data_is_right(const struct data *data, unsigned lane, uint64_t offset, const void *bytes,
		   size_t n)
{
	return memcmp(data_source(data, lane) + offset % data->period, bytes, n) == 0;
}
