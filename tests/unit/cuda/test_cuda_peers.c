/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The access of other GPUs to a chunk, which is granted some time after the allocation. */
#include <pthread.h>

#include "backend/cuda/provider.h"
#include "tests/unit/cuda_fixture.h"

#define THREADS 4

START_TEST(comes_by_itself)
{
	open_plain();
	struct chunk *a = new_chunk(0, CHUNK_ALIGN), *b = new_chunk(1, 8 * CHUNK_ALIGN);
	UNIT_AWAIT(peers_granted(&cuda_chunk(a)->peers));
	UNIT_AWAIT(peers_granted(&cuda_chunk(b)->peers));
	chunk_free(a);
	chunk_free(b);
	close_all();
}
END_TEST

static void expect_moved(struct copier *own, unsigned from, uint64_t *random)
{
	struct span source = whole(new_chunk(from, CHUNK_ALIGN));
	struct span target = whole(new_chunk(!from, CHUNK_ALIGN));
	unsigned char wanted[4096], seen[4096];

	unit_fill(wanted, sizeof(wanted), random);
	ck_assert_int_eq(copy_in(own, &source, 0, wanted, sizeof(wanted), COPY_DMA), 0);
	ck_assert_int_eq(copy_across(own, &target, CHUNK_ALIGN / 2, &source, 0, sizeof(wanted)), 0);
	ck_assert_int_eq(copy_out(own, seen, &target, CHUNK_ALIGN / 2, sizeof(seen), COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(own), 0);
	ck_assert_mem_eq(seen, wanted, sizeof(wanted));
	chunk_free(source.chunk);
	chunk_free(target.chunk);
}

static void *move_young_chunks(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	struct copier *own;

	ck_assert_int_eq(copier_open(backend, &own), 0);
	for (unsigned i = 0; i < 60; i++) {
		expect_moved(own, i & 1, &random);
		chunk_free(new_chunk(i & 1, CHUNK_ALIGN));
	}
	copier_close(own);
	return NULL;
}

/* Chunks are copied from, copied to and freed before, during and after the grant. */
START_TEST(chunks_of_any_age)
{
	pthread_t threads[THREADS];

	open_plain();
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(
		    pthread_create(&threads[i], NULL, move_young_chunks, (void *)(seed + i)), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_all();
}
END_TEST

START_TEST(refused_is_no_error)
{
	uint64_t random = 1;

	set("GPUMEM_STANDIN_PEER", "refuse");
	open_plain();
	struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
	ck_assert(!peers_need(cuda_chunk(chunk)));
	expect_moved(copier, 0, &random);
	expect_moved(copier, 1, &random);
	chunk_free(chunk);
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	(void)tcase;
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, comes_by_itself);
	tcase_add_test(tcase, chunks_of_any_age);
	tcase_add_test(tcase, refused_is_no_error);
}

int main(void)
{
	return cuda_main("cuda_peers", any_driver, standin);
}
