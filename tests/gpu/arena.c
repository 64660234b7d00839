/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* arena FILE COUNT BYTES ROUNDS: the time of COUNT allocations in a new arena, beside cuMemAlloc of
 * the same sizes, in turns. */
#include "tests/gpu/pointers.h"

#define COUNT_MAX  1000
#define ROUNDS_MAX 100

/* Seconds; one value for each round, and one for each allocation. */
struct times {
	size_t rounds, n;
	double totals[ROUNDS_MAX], each[ROUNDS_MAX * COUNT_MAX];
};

static struct times by_arena, by_driver, opens;
static gm_CUdeviceptr addresses[COUNT_MAX];
static double ends[COUNT_MAX]; /* of the round's allocations */

static void times_add(struct times *times, double begun, size_t n)
{
	times->totals[times->rounds++] = ends[n - 1] - begun;
	for (size_t i = 0; i < n; i++)
		times->each[times->n++] = ends[i] - (i ? ends[i - 1] : begun);
}

static void time_arena(const char *path, size_t count, size_t bytes)
{
	double opened = measure_now(), begun;
	gpumem_arena *arena = gpumem_arena_open(path, 0, 0);

	if (!arena)
		FAIL("gpumem_arena_open: %s", gpumem_error());
	begun = ends[0] = measure_now();
	times_add(&opens, opened, 1);
	for (size_t i = 0; i < count; i++) {
		unsigned long long address;
		GOOD(gpumem_arena_alloc(arena, bytes, 0, &address));
		ends[i] = measure_now();
	}
	times_add(&by_arena, begun, count);
	GOOD(gpumem_arena_close(arena));
}

static void time_driver(struct gpu *gpu, size_t count, size_t bytes)
{
	double begun = measure_now();

	for (size_t i = 0; i < count; i++) {
		MUST(gpu->cuMemAlloc(&addresses[i], bytes));
		ends[i] = measure_now();
	}
	times_add(&by_driver, begun, count);
	for (size_t i = 0; i < count; i++)
		MUST(gpu->cuMemFree(addresses[i]));
}

static void times_print(const char *name, struct times *times)
{
	printf("%s_us %.2f\n", name, measure_median(times->each, times->n) * 1e6);
	printf("%s_total_us %.2f\n", name, measure_median(times->totals, times->rounds) * 1e6);
}

/* Finds the GPU of the path by a file that goes again. */
static void gpu_of(const char *path, struct gpu *gpu)
{
	gpumem *file = gpumem_create(path, 1, 0, 0600, 0);

	if (!file)
		FAIL("gpumem_create: %s", gpumem_error());
	struct gpumem_info info = info_of(file);
	GOOD(gpumem_close(file));
	unlink(path);
	gpu_use(gpu, info.uuid);
	if (!gpu->cuMemAlloc || !gpu->cuMemFree)
		FAIL("this libcuda has no cuMemAlloc");
}

int main(int argc, char **argv)
{
	struct gpu gpu;

	if (argc != 5) {
		fprintf(stderr, "usage: arena FILE COUNT BYTES ROUNDS\n");
		return 1;
	}
	size_t count = number(argv[2], COUNT_MAX), bytes = number(argv[3], 1ULL << 40);
	uint64_t rounds = number(argv[4], ROUNDS_MAX - 1);
	if (!count || !bytes || !rounds)
		FAIL("COUNT, BYTES and ROUNDS are 1 or more");
	gpu_of(argv[1], &gpu);
	for (uint64_t i = 0; i < rounds + 1; i++) {
		if (i == 1) /* the first round warms up */
			by_arena.rounds = by_arena.n = by_driver.rounds = by_driver.n =
			    opens.rounds = opens.n = 0;
		time_arena(argv[1], count, bytes);
		time_driver(&gpu, count, bytes);
	}
	times_print("open", &opens);
	times_print("arena", &by_arena);
	times_print("driver", &by_driver);
	printf("ratio %.3f\n", measure_median(by_arena.totals, by_arena.rounds) /
				   measure_median(by_driver.totals, by_driver.rounds));
	return 0;
}
