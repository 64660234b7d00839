/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The order in which copies take effect, on a fake provider with a DMA that moves bytes only at the
 * wait. */
#include "backend/copy.h"

#include <errno.h>
#include <string.h>

#include "backend/bar_cache.h"
#include "tests/unit/unit.h"

#define BYTES	CHUNK_ALIGN
#define PENDING 16

struct transfer {
	char *to;
	const char *from; /* NULL: zero */
	size_t bytes;
};

static struct lazy {
	struct backend backend;
	struct device devices[2];
	struct copier copier;
	struct chunk *chunk;
	struct span span;
	char *memory;
	struct transfer pending[PENDING];
	unsigned n_pending, waits;
	int wait_result; /* result of the next wait */
} lazy;

static int lazy_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
			  struct chunk **chunk)
{
	*chunk = calloc(1, sizeof(**chunk));
	(*chunk)->device = device;
	(*chunk)->bytes = bytes;
	(*chunk)->place = place;
	return 0;
}

static void lazy_chunk_free(struct chunk *chunk)
{
	free(chunk);
}

static int lazy_copier_new(struct backend *backend, struct copier **copier)
{
	(void)backend;
	*copier = &lazy.copier;
	return 0;
}

static void lazy_copier_free(struct copier *copier)
{
	(void)copier;
}

static int enqueue(char *to, const char *from, size_t bytes)
{
	ck_assert_uint_lt(lazy.n_pending, PENDING);
	lazy.pending[lazy.n_pending++] = (struct transfer){to, from, bytes};
	return 0;
}

static int lazy_dma_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		       size_t bytes)
{
	(void)copier;
	(void)to;
	return enqueue(lazy.memory + offset, from, bytes);
}

static int lazy_dma_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
			size_t bytes)
{
	(void)copier;
	(void)from;
	return enqueue(to, lazy.memory + offset, bytes);
}

static int lazy_dma_across(struct copier *copier, struct chunk *to, uint64_t to_offset,
			   struct chunk *from, uint64_t from_offset, uint64_t bytes)
{
	(void)copier;
	(void)to;
	(void)from;
	return enqueue(lazy.memory + to_offset, lazy.memory + from_offset, bytes);
}

static int lazy_dma_zero(struct copier *copier, struct chunk *to, uint64_t offset, uint64_t bytes)
{
	(void)copier;
	(void)to;
	return enqueue(lazy.memory + offset, NULL, bytes);
}

static int lazy_wait(struct copier *copier)
{
	int rc = lazy.wait_result;

	(void)copier;
	for (unsigned i = 0; i < lazy.n_pending; i++) {
		struct transfer *t = &lazy.pending[i];

		if (t->from)
			memcpy(t->to, t->from, t->bytes);
		else
			memset(t->to, 0, t->bytes);
	}
	lazy.n_pending = 0;
	lazy.waits++;
	lazy.wait_result = 0;
	return rc;
}

static int lazy_bar_map(struct chunk *chunk, void **address)
{
	(void)chunk;
	*address = lazy.memory;
	return 0;
}

static void lazy_bar_unmap(struct chunk *chunk, void *address)
{
	(void)chunk;
	(void)address;
}

static uint32_t lazy_bar_cost(struct device *device)
{
	(void)device;
	return 1000000;
}

static const struct backend_ops lazy_ops = {
    .name = "lazy",
    .chunk_new = lazy_chunk_new,
    .chunk_free = lazy_chunk_free,
    .copier_new = lazy_copier_new,
    .copier_free = lazy_copier_free,
    .dma_in = lazy_dma_in,
    .dma_out = lazy_dma_out,
    .dma_across = lazy_dma_across,
    .dma_zero = lazy_dma_zero,
    .wait = lazy_wait,
    .bar_map = lazy_bar_map,
    .bar_unmap = lazy_bar_unmap,
    .bar_cost = lazy_bar_cost,
};

/* Opens the fake with a single device, or with peers that must also see BAR stores. */
static struct copier *open_lazy(unsigned n_devices)
{
	struct copier *copier;

	memset(&lazy, 0, sizeof(lazy));
	lazy.backend.ops = &lazy_ops;
	lazy.backend.n_devices = n_devices;
	for (unsigned i = 0; i < n_devices; i++) {
		lazy.backend.devices[i] = &lazy.devices[i];
		lazy.devices[i].backend = &lazy.backend;
	}
	struct device *device = &lazy.devices[0];
	ck_assert_int_eq(bar_cache_new(device, 2 * BYTES, &device->bar), 0);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, BYTES, &lazy.chunk), 0);
	lazy.span = (struct span){.chunk = lazy.chunk, .offset = 0, .bytes = BYTES};
	lazy.memory = aligned_alloc(4096, BYTES);
	memset(lazy.memory, '.', BYTES);
	ck_assert_int_eq(copier_open(&lazy.backend, &copier), 0);
	return copier;
}

static void close_lazy(struct copier *copier)
{
	ck_assert_int_eq(copier_wait(copier), 0);
	copier_close(copier);
	chunk_free(lazy.chunk);
	bar_cache_free(lazy.devices[0].bar);
	free(lazy.memory);
}

START_TEST(bar_load_sees_dma_before_it)
{
	struct copier *copier = open_lazy(1 + _i);
	char out[4] = "";

	ck_assert_int_eq(copy_in(copier, &lazy.span, 100, "new", 3, COPY_DMA), 0);
	ck_assert_int_eq(copy_out(copier, out, &lazy.span, 100, 3, COPY_BAR), 0);
	ck_assert_str_eq(out, "new");
	close_lazy(copier);
}
END_TEST

START_TEST(bar_store_outlives_dma_before_it)
{
	struct copier *copier = open_lazy(1 + _i);
	char out[4] = "";

	ck_assert_int_eq(copy_in(copier, &lazy.span, 7, "old", 3, COPY_DMA), 0);
	ck_assert_int_eq(copy_out(copier, out, &lazy.span, 7, 3, COPY_DMA), 0);
	ck_assert_int_eq(copy_in(copier, &lazy.span, 7, "new", 3, COPY_BAR), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_str_eq(out, "old");
	ck_assert_mem_eq(lazy.memory + 7, "new", 3);
	close_lazy(copier);
}
END_TEST

START_TEST(dma_sees_bar_stores_before_it)
{
	struct copier *copier = open_lazy(1 + _i);
	char out[4] = "";

	ck_assert_int_eq(copy_in(copier, &lazy.span, 7, "new", 3, COPY_BAR), 0);
	ck_assert_int_eq(copy_across(copier, &lazy.span, 4096, &lazy.span, 7, 3), 0);
	ck_assert_int_eq(copy_out(copier, out, &lazy.span, 4096, 3, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_str_eq(out, "new");
	close_lazy(copier);
}
END_TEST

/* A small copy joins a batch of DMA instead of waiting for the batch, mapped or not. */
START_TEST(automatic_queues_behind_dma)
{
	struct copier *copier = open_lazy(1);
	char out[4] = "";

	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_BAR), 0);
	ck_assert_int_eq(copy_zero(copier, &lazy.span, 0, BYTES), 0);
	ck_assert_int_eq(copy_in(copier, &lazy.span, 1, "b", 1, COPY_AUTO), 0);
	ck_assert_int_eq(copy_out(copier, out, &lazy.span, 0, 3, COPY_AUTO), 0);
	ck_assert_uint_eq(lazy.n_pending, 3);
	ck_assert_uint_eq(lazy.waits, 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_mem_eq(out, "\0b", 3);

	ck_assert_int_eq(copy_in(copier, &lazy.span, 1, "c", 1, COPY_AUTO), 0);
	ck_assert_uint_eq(lazy.n_pending, 0);
	close_lazy(copier);
}
END_TEST

/* The mapping is so expensive that only a forced path makes the mapping; small copies then use the
 * mapping too. */
START_TEST(forced_path_maps)
{
	struct copier *copier = open_lazy(1);

	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_uint_eq(copier->bytes_dma, 3);
	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_BAR), 0);
	ck_assert_uint_eq(copier->bytes_bar, 3);
	ck_assert_int_eq(copy_zero(copier, &lazy.span, 0, 4096), 0);
	ck_assert_uint_eq(copier->bytes_bar, 4099);
	ck_assert_uint_eq(copier->bytes_dma, 3);
	close_lazy(copier);
}
END_TEST

START_TEST(nothing_enqueued_is_not_waited_for)
{
	struct copier *copier = open_lazy(1);

	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_BAR), 0);
	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "", 0, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_uint_eq(lazy.waits, 0);
	close_lazy(copier);
}
END_TEST

START_TEST(errors_come_with_the_wait)
{
	struct copier *copier = open_lazy(1);
	char out[4];

	lazy.wait_result = -EIO;
	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), -EIO);
	ck_assert_int_eq(copier_wait(copier), 0);

	/* A copy that had to wait on the way returns the error itself. */
	lazy.wait_result = -EIO;
	ck_assert_int_eq(copy_in(copier, &lazy.span, 0, "abc", 3, COPY_DMA), 0);
	ck_assert_int_eq(copy_out(copier, out, &lazy.span, 0, 3, COPY_BAR), -EIO);
	close_lazy(copier);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("copy_order", &tcase, 60);
	tcase_add_loop_test(tcase, bar_load_sees_dma_before_it, 0, 2);
	tcase_add_loop_test(tcase, bar_store_outlives_dma_before_it, 0, 2);
	tcase_add_loop_test(tcase, dma_sees_bar_stores_before_it, 0, 2);
	tcase_add_test(tcase, automatic_queues_behind_dma);
	tcase_add_test(tcase, forced_path_maps);
	tcase_add_test(tcase, nothing_enqueued_is_not_waited_for);
	tcase_add_test(tcase, errors_come_with_the_wait);
	return unit_main(suite);
}
