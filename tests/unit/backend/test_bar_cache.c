/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The BAR cache on a fake provider. The provider allocates a mapping with malloc and frees the
 * mapping on unmap, so that a sanitizer sees any later use. */
#include "backend/bar_cache.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/unit/unit.h"

#define MIB	(1ULL << 20)
#define CHUNKS	8
#define THREADS 8

/* A chunk of 2 MiB pays for its mapping with the 25th small access. Each access without a mapping
 * costs 6 us more than an access with a mapping: 25 * 6 us >= 120 us + 2 MiB * 15 us. */
#define COST_PER_MIB 15000
#define PAYS_AT	     25

static struct fake {
	struct backend backend;
	struct device device;
	struct chunk *chunks[CHUNKS];
	int map_result;			/* result of the next calls of bar_map */
	unsigned map_calls, fail_calls; /* number of calls that fail before the first success */
	uint32_t cost;
	atomic_uint mapped;
} fake;

static int fake_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
			  struct chunk **chunk)
{
	*chunk = calloc(1, sizeof(**chunk));
	(*chunk)->device = device;
	(*chunk)->bytes = bytes;
	(*chunk)->place = place;
	return 0;
}

static void fake_chunk_free(struct chunk *chunk)
{
	free(chunk);
}

static int fake_bar_map(struct chunk *chunk, void **address)
{
	(void)chunk;
	if (fake.map_calls++ < fake.fail_calls)
		return fake.map_result;
	*address = calloc(1, CHUNKS * THREADS);
	atomic_fetch_add(&fake.mapped, 1);
	return 0;
}

static void fake_bar_unmap(struct chunk *chunk, void *address)
{
	(void)chunk;
	free(address);
	atomic_fetch_sub(&fake.mapped, 1);
}

static uint32_t fake_bar_cost(struct device *device)
{
	(void)device;
	return fake.cost;
}

static const struct backend_ops fake_ops = {
    .name = "fake",
    .chunk_new = fake_chunk_new,
    .chunk_free = fake_chunk_free,
    .bar_map = fake_bar_map,
    .bar_unmap = fake_bar_unmap,
    .bar_cost = fake_bar_cost,
};

/* Opens the fake with a BAR budget for the given number of chunks of 2 MiB. */
static void open_fake(unsigned budget)
{
	memset(&fake, 0, sizeof(fake));
	fake.backend.ops = &fake_ops;
	fake.device.backend = &fake.backend;
	fake.cost = COST_PER_MIB;
	ck_assert_int_eq(bar_cache_new(&fake.device, budget * 2 * MIB, &fake.device.bar), 0);
	for (int i = 0; i < CHUNKS; i++)
		ck_assert_int_eq(chunk_new(&fake.device, PLACE_GPU, 2 * MIB, &fake.chunks[i]), 0);
}

static void close_fake(void)
{
	for (int i = 0; i < CHUNKS; i++)
		chunk_free(fake.chunks[i]);
	ck_assert_uint_eq(atomic_load(&fake.mapped), 0);
	ck_assert_uint_eq(bar_usage(&fake.device).mapped, 0);
	bar_cache_free(fake.device.bar);
}

/* Whether an access finds a mapping. The access uses and releases the mapping. */
static bool access_once(int i, enum bar_want want)
{
	brlock_token token;
	char *address = bar_acquire(fake.chunks[i], want, &token);

	if (!address)
		return false;
	address[0]++;
	bar_release(fake.chunks[i], token);
	return true;
}

static bool is_mapped(int i)
{
	return atomic_load(&fake.chunks[i]->bar);
}

static void expect_mapped(unsigned chunks)
{
	ck_assert_uint_eq(atomic_load(&fake.mapped), chunks);
	ck_assert_uint_eq(bar_usage(&fake.device).mapped, chunks * 2 * MIB);
}

START_TEST(rent_then_buy)
{
	open_fake(4);
	for (int i = 1; i < PAYS_AT; i++)
		ck_assert(!access_once(0, BAR_WANT_AUTO));
	expect_mapped(0);
	ck_assert(access_once(0, BAR_WANT_AUTO));
	expect_mapped(1);
	ck_assert(access_once(0, BAR_WANT_AUTO));
	ck_assert_uint_eq(fake.map_calls, 1);
	ck_assert(!access_once(1, BAR_WANT_AUTO));
	ck_assert_uint_eq(bar_usage(&fake.device).maps, 1);
	close_fake();
}
END_TEST

START_TEST(free_mappings_are_made_at_once)
{
	open_fake(4);
	fake.cost = 0;
	ck_assert(access_once(0, BAR_WANT_AUTO));
	close_fake();
}
END_TEST

START_TEST(forced)
{
	open_fake(4);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	ck_assert(access_once(0, BAR_WANT_AUTO));
	expect_mapped(1);
	close_fake();
}
END_TEST

START_TEST(no_budget)
{
	open_fake(0);
	ck_assert(!access_once(0, BAR_WANT_FORCE));
	bar_set_policy(fake.chunks[0], MAP_PERSISTENT);
	ck_assert(!access_once(0, BAR_WANT_AUTO));
	ck_assert_uint_eq(fake.map_calls, 0);
	close_fake();
}
END_TEST

START_TEST(larger_than_the_budget)
{
	struct chunk *large;
	brlock_token token;

	open_fake(2);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	ck_assert_int_eq(chunk_new(&fake.device, PLACE_GPU, 6 * MIB, &large), 0);
	ck_assert_ptr_null(bar_acquire(large, BAR_WANT_FORCE, &token));
	expect_mapped(1);
	chunk_free(large);
	close_fake();
}
END_TEST

START_TEST(large_evicts_several)
{
	struct chunk *large;
	brlock_token token;

	open_fake(3);
	for (int i = 0; i < 3; i++)
		ck_assert(access_once(i, BAR_WANT_FORCE));
	ck_assert_int_eq(chunk_new(&fake.device, PLACE_GPU, 4 * MIB, &large), 0);
	ck_assert_ptr_nonnull(bar_acquire(large, BAR_WANT_FORCE, &token));
	bar_release(large, token);
	ck_assert_uint_eq(bar_usage(&fake.device).mapped, 6 * MIB);
	ck_assert_uint_eq(bar_usage(&fake.device).evictions, 2);
	chunk_free(large);
	close_fake();
}
END_TEST

/* The first eviction clears all marks; the second eviction takes the chunk without an access since
 * then. */
START_TEST(coldest_is_evicted)
{
	open_fake(3);
	for (int i = 0; i < 4; i++) /* the fourth clears all marks and evicts chunk 0 */
		ck_assert(access_once(i, BAR_WANT_FORCE));
	ck_assert(!is_mapped(0));
	ck_assert(access_once(1, BAR_WANT_AUTO));
	ck_assert(access_once(3, BAR_WANT_AUTO));
	ck_assert(access_once(4, BAR_WANT_FORCE));
	ck_assert(is_mapped(1) && !is_mapped(2) && is_mapped(3) && is_mapped(4));
	expect_mapped(3);
	ck_assert_uint_eq(bar_usage(&fake.device).evictions, 2);
	close_fake();
}
END_TEST

START_TEST(evicted_pays_anew)
{
	open_fake(1);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	ck_assert(access_once(1, BAR_WANT_FORCE));
	for (int i = 1; i < PAYS_AT; i++)
		ck_assert(!access_once(0, BAR_WANT_AUTO));
	ck_assert(access_once(0, BAR_WANT_AUTO));
	ck_assert(!is_mapped(1));
	close_fake();
}
END_TEST

START_TEST(persistent_stays)
{
	open_fake(2);
	bar_set_policy(fake.chunks[0], MAP_PERSISTENT);
	ck_assert(access_once(0, BAR_WANT_AUTO)); /* maps on the first access */
	for (int round = 0; round < 3; round++)
		for (int i = 1; i < CHUNKS; i++)
			ck_assert(access_once(i, BAR_WANT_FORCE));
	ck_assert(is_mapped(0));
	expect_mapped(2);

	bar_set_policy(fake.chunks[0], MAP_AUTO);
	for (int i = 1; i < 4; i++)
		ck_assert(access_once(i, BAR_WANT_FORCE));
	ck_assert(!is_mapped(0));
	close_fake();
}
END_TEST

START_TEST(becoming_persistent_while_mapped)
{
	open_fake(1);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	bar_set_policy(fake.chunks[0], MAP_PERSISTENT);
	ck_assert(!access_once(1, BAR_WANT_FORCE));
	ck_assert(is_mapped(0));
	close_fake();
}
END_TEST

START_TEST(persistent_without_room)
{
	open_fake(1);
	bar_set_policy(fake.chunks[0], MAP_PERSISTENT);
	bar_set_policy(fake.chunks[1], MAP_PERSISTENT);
	ck_assert(access_once(0, BAR_WANT_AUTO));
	ck_assert(!access_once(1, BAR_WANT_AUTO));
	bar_set_policy(fake.chunks[0], MAP_AUTO);
	for (int i = 0; i < PAYS_AT && !is_mapped(1); i++)
		access_once(1, BAR_WANT_AUTO);
	ck_assert(is_mapped(1));
	close_fake();
}
END_TEST

START_TEST(transient_goes_after_use)
{
	brlock_token token;

	open_fake(4);
	bar_set_policy(fake.chunks[0], MAP_TRANSIENT);
	for (int i = 0; i < 3 * PAYS_AT; i++) /* a single access never pays for a mapping */
		ck_assert(!access_once(0, BAR_WANT_AUTO));
	ck_assert_ptr_nonnull(bar_acquire(fake.chunks[0], BAR_WANT_FORCE, &token));
	expect_mapped(1);
	bar_release(fake.chunks[0], token);
	expect_mapped(0);

	ck_assert(access_once(1, BAR_WANT_FORCE));
	bar_set_policy(fake.chunks[1], MAP_TRANSIENT);
	expect_mapped(0);
	close_fake();
}
END_TEST

START_TEST(refused_is_not_asked_again)
{
	open_fake(4);
	fake.map_result = -EINVAL;
	fake.fail_calls = 1;
	ck_assert(!access_once(0, BAR_WANT_FORCE));
	for (int i = 0; i < 3 * PAYS_AT; i++) {
		ck_assert(!access_once(0, BAR_WANT_AUTO));
		ck_assert(!access_once(0, BAR_WANT_FORCE));
	}
	ck_assert_uint_eq(fake.map_calls, 1);
	ck_assert(access_once(1, BAR_WANT_FORCE)); /* other chunks are mapped */
	close_fake();
}
END_TEST

START_TEST(unsupported_turns_the_device_off)
{
	open_fake(4);
	fake.map_result = -ENOTSUP;
	fake.fail_calls = 1;
	for (int i = 0; i < CHUNKS; i++)
		ck_assert(!access_once(i, BAR_WANT_FORCE));
	ck_assert_uint_eq(fake.map_calls, 1);
	ck_assert_uint_eq(bar_usage(&fake.device).budget, 0);
	close_fake();
}
END_TEST

/* Other programs use the BAR too: the BAR may be full before the budget is spent. */
START_TEST(full_bar_evicts)
{
	open_fake(4);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	ck_assert(access_once(1, BAR_WANT_FORCE));
	fake.map_calls = 0;
	fake.fail_calls = 1;
	fake.map_result = -ENOSPC;
	ck_assert(access_once(2, BAR_WANT_FORCE));
	ck_assert_uint_eq(bar_usage(&fake.device).evictions, 1);
	expect_mapped(2);
	close_fake();
}
END_TEST

START_TEST(full_bar_is_tried_again_later)
{
	open_fake(4);
	fake.map_result = -ENOSPC;
	fake.fail_calls = 1;
	for (int i = 0; i < PAYS_AT; i++)
		ck_assert(!access_once(0, BAR_WANT_AUTO));
	ck_assert_uint_eq(fake.map_calls, 1);
	for (int i = 0; i < PAYS_AT; i++)
		access_once(0, BAR_WANT_AUTO);
	ck_assert(is_mapped(0));
	close_fake();
}
END_TEST

START_TEST(drop)
{
	open_fake(4);
	bar_drop(fake.chunks[0]);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	bar_drop(fake.chunks[0]);
	expect_mapped(0);
	bar_drop(fake.chunks[0]);
	ck_assert(access_once(0, BAR_WANT_FORCE));
	close_fake();
}
END_TEST

struct holder {
	brlock_token token;
	char *address;
	atomic_bool dropping, dropped;
};

static void *drop_first(void *argument)
{
	struct holder *holder = argument;

	atomic_store(&holder->dropping, true);
	bar_drop(fake.chunks[0]);
	atomic_store(&holder->dropped, true);
	return NULL;
}

START_TEST(drop_waits_for_users)
{
	struct holder holder = {0};
	pthread_t id;

	open_fake(4);
	holder.address = bar_acquire(fake.chunks[0], BAR_WANT_FORCE, &holder.token);
	ck_assert_int_eq(pthread_create(&id, NULL, drop_first, &holder), 0);
	while (!atomic_load(&holder.dropping))
		sched_yield();
	for (int i = 0; i < 1000; i++) {
		holder.address[i % 8]++; /* a use after free if the drop did not wait */
		ck_assert(!atomic_load(&holder.dropped));
		sched_yield();
	}
	bar_release(fake.chunks[0], holder.token);
	pthread_join(id, NULL);
	expect_mapped(0);
	close_fake();
}
END_TEST

struct worker {
	uint64_t state;
	int number;
	bool wrong;
};

/* Writes a byte of the thread's own through every mapping that the thread gets. */
static void *work(void *argument)
{
	struct worker *w = argument;

	for (int i = 0; i < 3000; i++) {
		struct chunk *chunk = fake.chunks[unit_random(&w->state) % CHUNKS];
		enum bar_want want = unit_random(&w->state) % 4 ? BAR_WANT_AUTO : BAR_WANT_FORCE;
		brlock_token token;
		char *address = bar_acquire(chunk, want, &token);

		if (address) {
			address[w->number] = (char)i;
			w->wrong |= address[w->number] != (char)i;
			bar_release(chunk, token);
		}
		if (unit_random(&w->state) % 64 == 0)
			bar_set_policy(chunk, unit_random(&w->state) % 3);
		if (unit_random(&w->state) % 64 == 0)
			bar_drop(chunk);
		w->wrong |= atomic_load(&fake.mapped) > 3;
	}
	return NULL;
}

START_TEST(threads)
{
	struct worker workers[THREADS];
	pthread_t ids[THREADS];

	open_fake(3);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.state = unit_seed() + i, .number = i};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < THREADS; i++)
		ck_assert(!workers[i].wrong);
	ck_assert_uint_gt(bar_usage(&fake.device).evictions, 0);
	close_fake();
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("bar_cache", &tcase, 120);
	tcase_add_test(tcase, rent_then_buy);
	tcase_add_test(tcase, free_mappings_are_made_at_once);
	tcase_add_test(tcase, forced);
	tcase_add_test(tcase, no_budget);
	tcase_add_test(tcase, larger_than_the_budget);
	tcase_add_test(tcase, large_evicts_several);
	tcase_add_test(tcase, coldest_is_evicted);
	tcase_add_test(tcase, evicted_pays_anew);
	tcase_add_test(tcase, persistent_stays);
	tcase_add_test(tcase, becoming_persistent_while_mapped);
	tcase_add_test(tcase, persistent_without_room);
	tcase_add_test(tcase, transient_goes_after_use);
	tcase_add_test(tcase, refused_is_not_asked_again);
	tcase_add_test(tcase, unsupported_turns_the_device_off);
	tcase_add_test(tcase, full_bar_evicts);
	tcase_add_test(tcase, full_bar_is_tried_again_later);
	tcase_add_test(tcase, drop);
	tcase_add_test(tcase, drop_waits_for_users);
	tcase_add_test(tcase, threads);
	return unit_main(suite);
}
