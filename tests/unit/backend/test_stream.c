/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/stream/stream.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#define ALIGNMENTS 65
#define LENGTHS	   301

/* Bytes compared around a copy: a cache line before and after the longest copy. */
#define MARGIN	    64
#define ARENA	    (MARGIN + ALIGNMENTS + LENGTHS + MARGIN)
#define ARENA_LINES ((ARENA + 63) / 64 * 64)

/* The maximum number of variants per CPU; a test of a variant that the CPU lacks passes without
 * work. */
#define VARIANTS 4

/* The device side of a copy, between two pages that fault, as a mapping may be. */
struct island {
	char *base, *bytes;
	size_t page, size;
};

static struct island island_make(size_t size)
{
	struct island island = {.page = (size_t)sysconf(_SC_PAGESIZE), .size = size};
	size_t whole = size + 2 * island.page;
	island.base = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(island.base, MAP_FAILED);
	island.bytes = island.base + island.page;
	ck_assert_int_eq(mprotect(island.bytes, size, PROT_READ | PROT_WRITE), 0);
	return island;
}

static void island_free(struct island *island)
{
	munmap(island->base, island->size + 2 * island->page);
}

/* Each streaming copy is repeated with memcpy on expected: the results must be equal, the bytes
 * around the range included. */
static void expect_same(const char *got, const char *expected, size_t bytes, const char *what,
			const size_t at[3])
{
	/* No ck_assert: check writes to a file even when an assertion holds. */
	if (memcmp(got, expected, bytes) != 0)
		ck_abort_msg("%s %s: to +%zu from +%zu, %zu bytes", stream_name(), what, at[0],
			     at[1], at[2]);
}

static void check_store(char *device, char *expected, const char *source, const size_t at[3])
{
	stream_store(device + MARGIN + at[0], source + at[1], at[2]);
	stream_fence();
	memcpy(expected + MARGIN + at[0], source + at[1], at[2]);
	expect_same(device, expected, ARENA, "store", at);
}

static void check_load(char *target, char *expected, const char *device, const size_t at[3])
{
	stream_load(target + MARGIN + at[0], device + at[1], at[2]);
	memcpy(expected + MARGIN + at[0], device + at[1], at[2]);
	expect_same(target, expected, ARENA, "load", at);
}

/* Two sources without an equal byte take turns, so that a byte left over from the previous copy
 * shows. */
static void every_case(void (*check)(char *, char *, const char *, const size_t[3]))
{
	static _Alignas(64) char to[ARENA], expected[ARENA], from[2][ARENA_LINES];
	uint64_t state = unit_seed();

	unit_fill(to, sizeof(to), &state);
	memcpy(expected, to, sizeof(to));
	unit_fill(from[0], ARENA_LINES, &state);
	for (size_t i = 0; i < ARENA_LINES; i++)
		from[1][i] = (char)~from[0][i];
	for (size_t to_at = 0; to_at < ALIGNMENTS; to_at++)
		for (size_t from_at = 0; from_at < ALIGNMENTS; from_at++)
			for (size_t bytes = 0; bytes < LENGTHS; bytes++)
				check(to, expected, from[bytes % 2],
				      (const size_t[]){to_at, from_at, bytes});
}

START_TEST(store_every_alignment)
{
	if (stream_select((unsigned)_i))
		every_case(check_store);
}
END_TEST

START_TEST(load_every_alignment)
{
	if (stream_select((unsigned)_i))
		every_case(check_load);
}
END_TEST

START_TEST(zero_every_alignment)
{
	static _Alignas(64) char to[ARENA], expected[ARENA];
	uint64_t state = unit_seed();

	if (!stream_select((unsigned)_i))
		return;
	for (size_t at = 0; at < ALIGNMENTS; at++)
		for (size_t bytes = 0; bytes < LENGTHS; bytes++) {
			unit_fill(to, sizeof(to), &state);
			memcpy(expected, to, sizeof(to));
			stream_zero(to + MARGIN + at, bytes);
			stream_fence();
			memset(expected + MARGIN + at, 0, bytes);
			expect_same(to, expected, ARENA, "zero", (const size_t[]){at, 0, bytes});
		}
}
END_TEST

/* Long ranges at random places of a mapping, both ends of the mapping included. */
START_TEST(large)
{
	enum { SIZE = 256 * 1024, ROUNDS = 200 };
	struct island device = island_make(SIZE);
	char *host = malloc(SIZE + 64), *model = malloc(SIZE), *back = malloc(SIZE + 64);
	uint64_t state = unit_seed();

	ck_assert(host && model && back);
	unit_fill(host, SIZE + 64, &state);
	memset(model, 0, SIZE);
	for (int round = 0; round < ROUNDS && stream_select((unsigned)_i); round++) {
		size_t length = unit_random(&state) % (SIZE + 1);
		size_t skew = unit_random(&state) % 64;
		size_t places[] = {0, SIZE - length, unit_random(&state) % (SIZE - length + 1)};
		size_t at = places[round % 3];
		if (unit_random(&state) % 4 == 0) {
			stream_zero(device.bytes + at, length);
			memset(model + at, 0, length);
		} else {
			stream_store(device.bytes + at, host + skew, length);
			memcpy(model + at, host + skew, length);
		}
		stream_fence();
		const size_t what[] = {at, skew, length};
		expect_same(device.bytes, model, SIZE, "large store", what);
		stream_load(back + skew, device.bytes + at, length);
		expect_same(back + skew, model + at, length, "large load", what);
	}
	island_free(&device);
	free(host);
	free(model);
	free(back);
}
END_TEST

/* Short ranges at both ends of a mapping: a load of whole lines must stay within the mapping's
 * pages. */
START_TEST(ends_of_mapping)
{
	struct island device = island_make((size_t)sysconf(_SC_PAGESIZE));
	char back[LENGTHS], source[LENGTHS];
	uint64_t state = unit_seed();

	unit_fill(device.bytes, device.size, &state);
	for (size_t bytes = 0; bytes < LENGTHS && stream_select((unsigned)_i); bytes++) {
		char *ends[] = {device.bytes, device.bytes + device.size - bytes};
		for (int end = 0; end < 2; end++) {
			const size_t what[] = {0, (size_t)end, bytes};
			stream_load(back, ends[end], bytes);
			expect_same(back, ends[end], bytes, "load at an end", what);
			unit_fill(source, bytes, &state);
			stream_store(ends[end], source, bytes);
			stream_fence();
			expect_same(ends[end], source, bytes, "store at an end", what);
		}
	}
	island_free(&device);
}
END_TEST

START_TEST(names)
{
	static const char *known[] = {"avx512", "avx2", "sse4.1", "neon", "plain"};
	const char *best = stream_name(), *name, *last = NULL;
	unsigned count = 0, recognised = 0;

	for (; (name = stream_select(count)); count++) {
		ck_assert_str_eq(stream_name(), name);
		if (count == 0)
			ck_assert_str_eq(name, best);
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			recognised += strcmp(known[i], name) == 0;
		last = name;
	}
	ck_assert_uint_ge(count, 1);
	ck_assert_uint_le(count, VARIANTS);
	ck_assert_uint_eq(recognised, count);
	ck_assert_str_eq(last, "plain");
	ck_assert_str_eq(stream_name(), "plain");
	ck_assert_ptr_null(stream_select(count + 1000));
}
END_TEST

struct copier_part {
	char *device, source[4096];
};

static void *copy_part(void *argument)
{
	struct copier_part *part = argument;
	stream_store(part->device, part->source, 1000);
	stream_fence();
	char back[1000];
	stream_load(back, part->device, sizeof(back));
	return memcmp(back, part->source, sizeof(back)) ? argument : NULL;
}

/* Neighbouring ranges share a cache line: several threads start with the first use at once, and
 * each thread writes only its own bytes. */
START_TEST(threads)
{
	static struct copier_part parts[4];
	static _Alignas(64) char device[4096];
	pthread_t ids[4];
	uint64_t state = unit_seed();

	for (int i = 0; i < 4; i++) {
		parts[i].device = device + 1000L * i;
		unit_fill(parts[i].source, sizeof(parts[i].source), &state);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&ids[i], NULL, copy_part, &parts[i]), 0);
	for (int i = 0; i < 4; i++) {
		void *failed;
		pthread_join(ids[i], &failed);
		ck_assert_ptr_null(failed);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_mem_eq(parts[i].device, parts[i].source, 1000);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("stream", &tcase, 300);
	tcase_add_test(tcase, names);
	tcase_add_test(tcase, threads);
	tcase_add_loop_test(tcase, store_every_alignment, 0, VARIANTS);
	tcase_add_loop_test(tcase, load_every_alignment, 0, VARIANTS);
	tcase_add_loop_test(tcase, zero_every_alignment, 0, VARIANTS);
	tcase_add_loop_test(tcase, large, 0, VARIANTS);
	tcase_add_loop_test(tcase, ends_of_mapping, 0, VARIANTS);
	return unit_main(suite);
}
