/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Random copies on the host backend. Each span is compared with an array of the expected bytes. */
#include "backend/copy.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "backend/providers.h"
#include "tests/unit/unit.h"

#define MIB	   (1ULL << 20)
#define SPAN_AT	   (MIB / 2 + 4096) /* offset of each span in its chunk */
#define SPAN_BYTES (MIB + 8192)
#define SPANS	   4 /* two on each of two devices */
#define THREADS	   8

struct fixture {
	struct backend *backend;
	struct copier *copier;
	struct span spans[SPANS];
	unsigned char *models[SPANS];
	unsigned char *buffer;
};

static struct fixture open_fixture(enum bar_provider bar)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = 64 * MIB, .host_gpus = 2, .bar = bar};
	struct fixture f;

	ck_assert_int_eq(backend_open(&config, &f.backend), 0);
	ck_assert_int_eq(copier_open(f.backend, &f.copier), 0);
	f.buffer = malloc(SPAN_BYTES);
	for (int i = 0; i < SPANS; i++) {
		struct chunk *chunk;

		ck_assert_int_eq(chunk_new(f.backend->devices[i % 2], PLACE_GPU, 2 * MIB, &chunk),
				 0);
		f.spans[i] = (struct span){.chunk = chunk, .offset = SPAN_AT, .bytes = SPAN_BYTES};
		f.models[i] = calloc(1, SPAN_BYTES);
		ck_assert_int_eq(copy_zero(f.copier, &f.spans[i], 0, SPAN_BYTES), 0);
	}
	ck_assert_int_eq(copier_wait(f.copier), 0);
	return f;
}

static void expect_equal(struct fixture *f, int i)
{
	ck_assert_int_eq(copy_out(f->copier, f->buffer, &f->spans[i], 0, SPAN_BYTES, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
	ck_assert(memcmp(f->buffer, f->models[i], SPAN_BYTES) == 0);
}

static void close_fixture(struct fixture *f)
{
	for (int i = 0; i < SPANS; i++) {
		expect_equal(f, i);
		free(f->models[i]);
		chunk_free(f->spans[i].chunk);
	}
	free(f->buffer);
	copier_close(f->copier);
	backend_close(f->backend);
}

struct range {
	uint64_t offset, bytes;
};

/* Returns mostly small ranges, sometimes the size of the span. */
static struct range random_range(uint64_t *state)
{
	uint64_t most = SPAN_BYTES >> unit_random(state) % 20;
	uint64_t bytes = unit_random(state) % (most + 1);

	return (struct range){.offset = unit_random(state) % (SPAN_BYTES - bytes + 1),
			      .bytes = bytes};
}

static void fill(struct fixture *f, uint64_t bytes, uint64_t *state)
{
	for (uint64_t k = 0; k < bytes; k += 8) {
		uint64_t value = unit_random(state);
		memcpy(f->buffer + k, &value, bytes - k < 8 ? bytes - k : 8);
	}
}

static void random_in(struct fixture *f, int i, enum copy_path path, uint64_t *state)
{
	struct range r = random_range(state);

	fill(f, r.bytes, state);
	memcpy(f->models[i] + r.offset, f->buffer, r.bytes);
	ck_assert_int_eq(copy_in(f->copier, &f->spans[i], r.offset, f->buffer, r.bytes, path), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
}

static void random_out(struct fixture *f, int i, enum copy_path path, uint64_t *state)
{
	struct range r = random_range(state);

	ck_assert_int_eq(copy_out(f->copier, f->buffer, &f->spans[i], r.offset, r.bytes, path), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
	ck_assert(memcmp(f->buffer, f->models[i] + r.offset, r.bytes) == 0);
}

static void random_zero(struct fixture *f, int i, uint64_t *state)
{
	struct range r = random_range(state);

	memset(f->models[i] + r.offset, 0, r.bytes);
	ck_assert_int_eq(copy_zero(f->copier, &f->spans[i], r.offset, r.bytes), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
}

static void random_across(struct fixture *f, int i, uint64_t *state)
{
	int from = (i + 1 + (int)(unit_random(state) % (SPANS - 1))) % SPANS;
	struct range r = random_range(state);
	uint64_t from_offset = unit_random(state) % (SPAN_BYTES - r.bytes + 1);

	memcpy(f->models[i] + r.offset, f->models[from] + from_offset, r.bytes);
	ck_assert_int_eq(
	    copy_across(f->copier, &f->spans[i], r.offset, &f->spans[from], from_offset, r.bytes),
	    0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
}

static void random_copy(struct fixture *f, uint64_t *state)
{
	int i = (int)(unit_random(state) % SPANS);
	enum copy_path path = unit_random(state) % 3;

	switch (unit_random(state) % 8) {
	case 0 ... 2:
		random_in(f, i, path, state);
		break;
	case 3 ... 5:
		random_out(f, i, path, state);
		break;
	case 6:
		random_zero(f, i, state);
		break;
	case 7:
		random_across(f, i, state);
		break;
	}
}

/* Runs with a mapping and without. */
START_TEST(random_ranges)
{
	struct fixture f = open_fixture(_i ? BAR_OFF : BAR_AUTO);
	uint64_t state = unit_seed();

	for (int i = 0; i < 2000; i++)
		random_copy(&f, &state);
	close_fixture(&f);
}
END_TEST

START_TEST(path_is_followed)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct copier *c = f.copier;
	struct copy_crossover at = copy_crossovers(f.backend->devices[0]);

	ck_assert(copy_bar_possible(f.backend->devices[0]));
	ck_assert(!at.measured);
	c->bytes_bar = c->bytes_dma = 0;
	memset(f.buffer, 0, SPAN_BYTES);
	copy_in(c, &f.spans[0], 0, f.buffer, at.write, COPY_AUTO);
	copier_wait(c);
	ck_assert_uint_eq(c->bytes_bar, at.write);
	copy_out(c, f.buffer, &f.spans[0], 0, at.read, COPY_AUTO);
	copier_wait(c);
	ck_assert_uint_eq(c->bytes_bar, at.write + at.read);
	copy_out(c, f.buffer, &f.spans[0], 0, at.read + 1, COPY_AUTO);
	copier_wait(c);
	ck_assert_uint_eq(c->bytes_dma, at.read + 1);

	c->bytes_bar = c->bytes_dma = 0;
	copy_in(c, &f.spans[0], 0, f.buffer, SPAN_BYTES, COPY_BAR);
	copy_in(c, &f.spans[0], 0, f.buffer, 3, COPY_DMA);
	copier_wait(c);
	ck_assert_uint_eq(c->bytes_bar, SPAN_BYTES);
	ck_assert_uint_eq(c->bytes_dma, 3);
	close_fixture(&f);
}
END_TEST

/* Later copies before a wait queue behind the DMA part of the write. */
START_TEST(a_large_write_goes_both_ways)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct copier *c = f.copier;
	uint64_t beside = copy_crossovers(f.backend->devices[0]).overlap, state = unit_seed();

	ck_assert_uint_gt(beside, 0);
	c->bytes_bar = c->bytes_dma = 0;
	fill(&f, MIB, &state);
	memcpy(f.models[0] + 3, f.buffer, MIB);
	ck_assert_int_eq(copy_in(c, &f.spans[0], 3, f.buffer, MIB, COPY_AUTO), 0);
	ck_assert_uint_eq(c->bytes_bar, beside);
	ck_assert_uint_eq(c->bytes_dma, MIB - beside);
	memcpy(f.models[0] + MIB - 1, f.buffer, 4096);
	ck_assert_int_eq(copy_in(c, &f.spans[0], MIB - 1, f.buffer, 4096, COPY_AUTO), 0);
	ck_assert_uint_eq(c->bytes_bar, beside);
	ck_assert_int_eq(copier_wait(c), 0);
	for (enum copy_path path = COPY_BAR; path <= COPY_DMA; path++) {
		memset(f.buffer, 0xff, SPAN_BYTES);
		copy_out(c, f.buffer, &f.spans[0], 0, SPAN_BYTES, path);
		ck_assert_int_eq(copier_wait(c), 0);
		ck_assert_mem_eq(f.buffer, f.models[0], SPAN_BYTES);
	}
	close_fixture(&f);
}
END_TEST

START_TEST(without_bar_all_is_dma)
{
	struct fixture f = open_fixture(BAR_OFF);
	struct copier *c = f.copier;

	ck_assert(!copy_bar_possible(f.backend->devices[0]));
	c->bytes_dma = 0;
	memset(f.buffer, 0, SPAN_BYTES);
	ck_assert_int_eq(copy_in(c, &f.spans[0], 0, f.buffer, 100, COPY_BAR), 0);
	ck_assert_int_eq(copy_in(c, &f.spans[0], 0, f.buffer, 100, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(c), 0);
	ck_assert_uint_eq(c->bytes_bar, 0);
	ck_assert_uint_eq(c->bytes_dma, 200);
	close_fixture(&f);
}
END_TEST

START_TEST(failed_device_is_eio)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct span *gone = &f.spans[0], *good = &f.spans[1];

	device_fail(f.backend->devices[0], "a fault made by the test");
	ck_assert_int_eq(copy_in(f.copier, gone, 0, f.buffer, 1, COPY_AUTO), -EIO);
	ck_assert_int_eq(copy_out(f.copier, f.buffer, gone, 0, 1, COPY_BAR), -EIO);
	ck_assert_int_eq(copy_zero(f.copier, gone, 0, 1), -EIO);
	ck_assert_int_eq(copy_across(f.copier, gone, 0, good, 0, 1), -EIO);
	ck_assert_int_eq(copy_across(f.copier, good, 0, gone, 0, 1), -EIO);
	ck_assert_int_eq(copy_out(f.copier, f.buffer, good, 0, 1, COPY_AUTO), 0);
	atomic_store(&f.backend->devices[0]->failed, false);
	close_fixture(&f);
}
END_TEST

/* A device reset marks unreadable chunks as lost. The device's other chunks go on working. */
START_TEST(lost_chunk_is_eio)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct span *lost = &f.spans[0], *peer = &f.spans[1], *neighbour = &f.spans[2];
	int fd;

	atomic_store(&lost->chunk->lost, true);
	for (int path = COPY_AUTO; path <= COPY_DMA; path++) {
		ck_assert_int_eq(copy_in(f.copier, lost, 0, f.buffer, 64, path), -EIO);
		ck_assert_int_eq(copy_out(f.copier, f.buffer, lost, 0, 64, path), -EIO);
		ck_assert_int_eq(copy_out(f.copier, f.buffer, neighbour, 0, 64, path), 0);
	}
	ck_assert_int_eq(copy_zero(f.copier, lost, 0, 64), -EIO);
	ck_assert_int_eq(copy_across(f.copier, lost, 0, peer, 0, 64), -EIO);
	ck_assert_int_eq(copy_across(f.copier, peer, 0, lost, 0, 64), -EIO);
	ck_assert_int_eq(chunk_export(lost->chunk, &fd), -EIO);
	ck_assert_int_eq(chunk_export(neighbour->chunk, &fd), 0);
	close(fd);
	atomic_store(&lost->chunk->lost, false);
	close_fixture(&f);
}
END_TEST

START_TEST(measuring)
{
	struct fixture f = open_fixture(_i ? BAR_OFF : BAR_AUTO);
	struct device *device = f.backend->devices[1];
	struct device_memory before, after;

	device_memory(device, &before);
	f.copier->bytes_bar = f.copier->bytes_dma = 0;
	ck_assert_int_eq(copy_measure(f.copier, device), 0);
	ck_assert_int_eq(copy_measure(f.copier, device), 0);
	struct copy_crossover at = copy_crossovers(device);
	ck_assert(at.measured);
	ck_assert(!copy_crossovers(f.backend->devices[0]).measured);
	if (_i)
		ck_assert(at.write == 0 && at.read == 0);
	device_memory(device, &after);
	ck_assert_uint_eq(before.free, after.free);
	ck_assert_uint_eq(f.copier->bytes_bar + f.copier->bytes_dma, 0);
	close_fixture(&f);
}
END_TEST

static int slow_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		    size_t bytes)
{
	usleep(30000);
	return backend_host_ops.dma_out(copier, to, from, offset, bytes);
}

/* A busy GPU, whose copies last longer than the measurement may: BAR is not the slower way. */
START_TEST(measuring_a_busy_device)
{
	struct fixture f = open_fixture(BAR_AUTO);
	static struct backend_ops slow;

	slow = *f.backend->ops;
	slow.dma_out = slow_out;
	f.backend->ops = &slow;
	ck_assert_int_eq(copy_measure(f.copier, f.backend->devices[0]), 0);
	ck_assert_uint_ge(copy_crossovers(f.backend->devices[0]).read, 4096);
	f.backend->ops = &backend_host_ops;
	close_fixture(&f);
}
END_TEST

START_TEST(measuring_a_full_device)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct device *device = f.backend->devices[0];
	struct device_memory memory;
	struct chunk *rest;

	device_memory(device, &memory);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, memory.free, &rest), 0);
	ck_assert_int_eq(copy_measure(f.copier, device), -ENOSPC);
	ck_assert(!copy_crossovers(device).measured);
	chunk_free(rest);
	ck_assert_int_eq(copy_measure(f.copier, device), 0);
	ck_assert(copy_crossovers(device).measured);
	close_fixture(&f);
}
END_TEST

struct worker {
	struct fixture *f;
	uint64_t state;
	unsigned number;
	bool wrong;
};

#define PART (SPAN_BYTES / THREADS)

/* Each thread uses its own part of every span, and changes the map policy of the spans' chunks. */
static void *work(void *argument)
{
	struct worker *w = argument;
	unsigned char in[PART], out[PART];
	struct copier *copier;

	if (copier_open(w->f->backend, &copier) < 0)
		return NULL;
	for (int i = 0; i < 200 && !w->wrong; i++) {
		struct span *span = &w->f->spans[unit_random(&w->state) % SPANS];
		size_t bytes = 1 + unit_random(&w->state) % (PART / (i % 16 ? 64 : 1));
		enum copy_path path = unit_random(&w->state) % 3;

		memset(in, (int)unit_random(&w->state), bytes);
		if (i % 32 == 0)
			bar_set_policy(span->chunk, unit_random(&w->state) % 3);
		w->wrong |= copy_in(copier, span, w->number * PART, in, bytes, path) < 0;
		w->wrong |= copier_wait(copier) < 0;
		w->wrong |= copy_out(copier, out, span, w->number * PART, bytes, path) < 0;
		w->wrong |= copier_wait(copier) < 0;
		w->wrong |= memcmp(in, out, bytes) != 0;
		memcpy(w->f->models[span - w->f->spans] + w->number * PART, in, bytes);
	}
	copier_close(copier);
	return NULL;
}

START_TEST(threads)
{
	struct fixture f = open_fixture(BAR_AUTO);
	struct worker workers[THREADS];
	pthread_t ids[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.f = &f, .state = unit_seed() + i, .number = i};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert(!workers[i].wrong);
	close_fixture(&f);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("copy", &tcase, 300);
	tcase_add_loop_test(tcase, random_ranges, 0, 2);
	tcase_add_test(tcase, path_is_followed);
	tcase_add_test(tcase, a_large_write_goes_both_ways);
	tcase_add_test(tcase, without_bar_all_is_dma);
	tcase_add_test(tcase, failed_device_is_eio);
	tcase_add_test(tcase, lost_chunk_is_eio);
	tcase_add_loop_test(tcase, measuring, 0, 2);
	tcase_add_test(tcase, measuring_a_busy_device);
	tcase_add_test(tcase, measuring_a_full_device);
	tcase_add_test(tcase, threads);
	return unit_main(suite);
}
