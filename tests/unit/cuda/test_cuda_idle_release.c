/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Idle release of a device: memory beside the chunks is given back while the device has no chunk,
 * and allocated again on use. */
#include <pthread.h>

#include "backend/bar_cache.h"
#include "tests/driver/helpers.h"
#include "tests/unit/cuda_fixture.h"
#include "tests/unit/unseen.h"

#define THREADS 4
#define ROUNDS	60

static int idle_release(unsigned device)
{
	return device_idle_release(backend->devices[device]);
}

/* Repeated, because a grant to peers may be under way. */
static void release_soon(unsigned device)
{
	UNIT_AWAIT(idle_release(device) == 0);
}

static uint64_t used(unsigned device)
{
	int (*info)(unsigned, struct standin_gpu *);
	struct standin_gpu gpu;

	*(void **)&info = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "standin_gpu_info");
	ck_assert_int_eq(info(device, &gpu), 0);
	return gpu.used;
}

START_TEST(gives_all_back)
{
	set("GPUMEM_STANDIN_CONTEXT_MEMORY", "64M");
	open_plain();
	ck_assert_int_eq(idle_release(0), 0); /* an unused device */
	ck_assert_uint_eq(used(0), 0);
	for (unsigned round = 0; round < 3; round++) {
		expect_alive(0);
		ck_assert_uint_eq(used(0), 64 * MIB);
		ck_assert_int_eq(idle_release(0), 0);
		ck_assert_uint_eq(used(0), 0);
	}
	close_all();
}
END_TEST

START_TEST(chunks_keep_it)
{
	char byte = 'x';

	open_plain();
	struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
	put(chunk, 0, &byte, 1);
	ck_assert_int_eq(idle_release(0), -EBUSY);
	expect_bytes(chunk, 0, &byte, 1);
	chunk_free(chunk);
	release_soon(0);
	close_all();
}
END_TEST

/* The idle release of a peer does not risk the peer's access to the memory of another device. */
START_TEST(grants_keep_peers)
{
	char pattern[5000];

	open_plain();
	expect_alive(1);
	struct chunk *from = new_chunk(0, CHUNK_ALIGN), *to = new_chunk(1, CHUNK_ALIGN);
	struct span source = whole(from), target = whole(to);
	unit_fill(pattern, sizeof(pattern), &seed);
	put(from, 0, pattern, sizeof(pattern));
	ck_assert_int_eq(copy_across(copier, &target, 0, &source, 0, sizeof(pattern)), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(to, 0, pattern, sizeof(pattern));
	chunk_free(to);
	ck_assert_int_eq(idle_release(1), -EBUSY);
	chunk_free(from);
	release_soon(0);
	release_soon(1);
	close_all();
}
END_TEST

/* The registration of a buffer lives in one device's context and serves the other devices too. */
START_TEST(pins_move_on)
{
	static PAGES char buffer[65536];

	set("GPUMEM_STANDIN_PEER", "0");
	open_plain();
	ck_assert_int_eq(copier_pin(copier, buffer, sizeof(buffer)), 0);
	struct chunk *first = new_chunk(0, CHUNK_ALIGN), *second = new_chunk(1, CHUNK_ALIGN);
	put(first, 0, buffer, sizeof(buffer));
	put(second, 0, buffer, sizeof(buffer));
	chunk_free(first);
	ck_assert_int_eq(idle_release(0), 0);
	unit_fill(buffer, sizeof(buffer), &seed);
	put(second, 0, buffer, sizeof(buffer));
	expect_bytes(second, 0, buffer, sizeof(buffer));
	chunk_free(second);
	copier_unpin(copier, buffer);
	close_all();
}
END_TEST

/* A copier in the middle of a batch for another device leaves the device by itself after the batch.
 */
START_TEST(busy_copiers_leave_later)
{
	static PAGES char buffer[65536];

	set("GPUMEM_STANDIN_PEER", "0");
	set("GPUMEM_STANDIN_DELAY_US", "300000"); /* the copy is still under way below */
	open_plain();
	ck_assert_int_eq(copier_pin(copier, buffer, sizeof(buffer)), 0);
	struct chunk *first = new_chunk(0, CHUNK_ALIGN), *second = new_chunk(1, CHUNK_ALIGN);
	struct span span = whole(second);
	put(first, 0, buffer, sizeof(buffer));
	chunk_free(first);
	ck_assert_int_eq(copy_in(copier, &span, 0, buffer, sizeof(buffer), COPY_DMA), 0);
	ck_assert_int_eq(idle_release(0), -EBUSY);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_eq(idle_release(0), 0);
	expect_bytes(second, 0, buffer, sizeof(buffer));
	chunk_free(second);
	close_all();
}
END_TEST

/* A copy that is complete keeps no device, though no thread has waited for the copy. The wait that
 * comes later finds the bytes. */
START_TEST(complete_copies_keep_nothing)
{
	static PAGES char buffer[65536];
	char wanted[65536];

	open_plain();
	ck_assert_int_eq(copier_pin(copier, buffer, sizeof(buffer)), 0);
	struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
	struct span span = whole(chunk);

	unit_fill(wanted, sizeof(wanted), &seed);
	put(chunk, 0, wanted, sizeof(wanted));
	ck_assert_int_eq(copy_out(copier, buffer, &span, 0, sizeof(buffer), COPY_DMA), 0);
	while (unseen_compare(buffer, wanted, sizeof(buffer)))
		usleep(1000);
	chunk_free(chunk);
	release_soon(0);
	ck_assert_uint_eq(used(0), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	copier_unpin(copier, buffer);
	close_all();
}
END_TEST

/* The way to BAR mappings stays known, and the mappings stay correct, although the device is
 * released meanwhile. */
START_TEST(bar_comes_back)
{
	char wanted[300];
	const char *why;

	open_with(BAR_VULKAN, NULL);
	for (unsigned round = 0; round < 3; round++) {
		struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
		struct span span = whole(chunk);
		unit_fill(wanted, sizeof(wanted), &seed);
		ck_assert_int_eq(copy_in(copier, &span, 77, wanted, sizeof(wanted), COPY_BAR), 0);
		ck_assert_uint_eq(bar_usage(backend->devices[0]).mapped, CHUNK_ALIGN);
		expect_bytes(chunk, 77, wanted, sizeof(wanted));
		chunk_free(chunk);
		release_soon(0);
		ck_assert_str_eq(device_bar_name(backend->devices[0], &why), "vulkan");
	}
	close_all();
}
END_TEST

static void *come_and_go(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	PAGES char buffer[8192];
	char seen[8192];
	struct copier *own;

	ck_assert_int_eq(copier_open(backend, &own), 0);
	ck_assert_int_eq(copier_pin(own, buffer, sizeof(buffer)), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct span span = whole(new_chunk(unit_random(&random) & 1, CHUNK_ALIGN));
		enum copy_path path = i & 1 ? COPY_BAR : COPY_DMA;
		unit_fill(buffer, sizeof(buffer), &random);
		ck_assert_int_eq(copy_in(own, &span, 0, buffer, sizeof(buffer), path), 0);
		ck_assert_int_eq(copier_wait(own), 0);
		ck_assert_int_eq(copy_out(own, seen, &span, 0, sizeof(seen), COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(own), 0);
		ck_assert_mem_eq(seen, buffer, sizeof(seen));
		chunk_free(span.chunk);
		usleep(unit_random(&random) % 500);
	}
	copier_unpin(own, buffer);
	copier_close(own);
	return NULL;
}

static atomic_bool over;
static unsigned long released; /* read after the thread's end */

static void *release_always(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		released += idle_release(0) == 0;
		released += idle_release(1) == 0;
		usleep(200);
	}
	return NULL;
}

START_TEST(at_any_moment)
{
	pthread_t threads[THREADS], releaser;

	open_with(BAR_VULKAN, NULL);
	ck_assert_int_eq(pthread_create(&releaser, NULL, release_always, NULL), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, (void *)(seed + i)),
				 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(releaser, NULL);
	ck_assert_uint_gt(released, 0);
	release_soon(0);
	release_soon(1);
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	tcase_add_test(tcase, chunks_keep_it);
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, gives_all_back);
	tcase_add_test(tcase, grants_keep_peers);
	tcase_add_test(tcase, pins_move_on);
	tcase_add_test(tcase, busy_copiers_leave_later);
	tcase_add_test(tcase, complete_copies_keep_nothing);
	tcase_add_test(tcase, bar_comes_back);
	tcase_add_test(tcase, at_any_moment);
}

int main(void)
{
	return cuda_main("cuda_idle_release", any_driver, standin);
}
