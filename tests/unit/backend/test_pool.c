/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of the pool on the host backend: the same pool serves every provider. */
#include "backend/pool.h"
#include "backend/providers.h"
#include "backend/stock.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "backend/copy.h"
#include "backend/health.h"
#include "tests/unit/unit.h"

#define MIB	     (1ULL << 20)
#define DEVICE_BYTES (64 * MIB)
#define THREADS	     8

static const struct pool_limits no_limits = {.size = UINT64_MAX};

struct fixture {
	struct backend *backend;
	struct device *device;
	struct pool *pool;
	struct copier *copier;
};

static struct fixture open_fixture(struct pool_limits limits)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = DEVICE_BYTES, .host_gpus = 1};
	struct fixture f;

	ck_assert_int_eq(backend_open(&config, &f.backend), 0);
	f.device = f.backend->devices[0];
	ck_assert_int_eq(pool_new(f.device, PLACE_GPU, &limits, &f.pool), 0);
	ck_assert_int_eq(copier_open(f.backend, &f.copier), 0);
	return f;
}

static uint64_t device_used(struct device *device)
{
	struct device_memory memory;

	ck_assert_int_eq(device_memory(device, &memory), 0);
	return memory.total - memory.free;
}

/* Checks that all memory was given back: the pool has no allocations, and the device is empty. */
static void close_fixture(struct fixture *f)
{
	ck_assert_uint_eq(pool_usage(f->pool).span_bytes, 0);
	pool_free(f->pool);
	ck_assert_uint_eq(device_used(f->device), 0);
	copier_close(f->copier);
	backend_close(f->backend);
}

static struct span take(struct fixture *f, uint64_t bytes)
{
	struct span span;

	ck_assert_int_eq(pool_alloc(f->pool, bytes, POOL_ZEROED, f->copier, &span), 0);
	ck_assert_uint_eq(span.bytes, bytes);
	return span;
}

static void expect_no_room(struct fixture *f, uint64_t bytes)
{
	struct span span;

	ck_assert_int_eq(pool_alloc(f->pool, bytes, POOL_ZEROED, f->copier, &span), -ENOSPC);
}

static void expect_filled(struct fixture *f, const struct span *span, unsigned char value)
{
	unsigned char *bytes = malloc(span->bytes);

	ck_assert_int_eq(copy_out(f->copier, bytes, span, 0, span->bytes, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
	uint64_t equal = 0;
	while (equal < span->bytes && bytes[equal] == value)
		equal++;
	ck_assert_uint_eq(equal, span->bytes);
	free(bytes);
}

static void fill(struct fixture *f, const struct span *span, unsigned char value)
{
	unsigned char *bytes = malloc(span->bytes);

	memset(bytes, value, span->bytes);
	ck_assert_int_eq(copy_in(f->copier, span, 0, bytes, span->bytes, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(f->copier), 0);
	free(bytes);
}

START_TEST(large_owns_its_chunk)
{
	struct fixture f = open_fixture(no_limits);
	struct span span = take(&f, 6 * MIB);

	ck_assert(span_owns_chunk(&span));
	ck_assert_uint_eq(span.offset, 0);
	ck_assert_uint_eq(span.chunk->bytes, 6 * MIB);
	ck_assert_uint_eq(device_used(f.device), 6 * MIB);
	pool_free_span(f.pool, &span);
	ck_assert_uint_eq(device_used(f.device), 0);
	close_fixture(&f);
}
END_TEST

START_TEST(small_share_a_chunk)
{
	struct fixture f = open_fixture(no_limits);
	struct span spans[8];

	for (int i = 0; i < 8; i++) {
		spans[i] = take(&f, 4096 << i);
		ck_assert(!span_owns_chunk(&spans[i]));
		ck_assert_uint_eq(spans[i].offset % (4096 << i), 0);
		ck_assert_ptr_eq(spans[i].chunk, spans[0].chunk);
	}
	struct pool_usage usage = pool_usage(f.pool);
	ck_assert_uint_eq(usage.shared_chunks, 1);
	ck_assert_uint_eq(usage.chunk_bytes, 2 * MIB);
	ck_assert_uint_eq(usage.span_bytes, 4096 * 255);
	for (int i = 0; i < 8; i++)
		pool_free_span(f.pool, &spans[i]);
	close_fixture(&f);
}
END_TEST

START_TEST(parts_of_a_block_can_be_given)
{
	struct fixture f = open_fixture(no_limits);
	struct span whole = take(&f, 64 << 10), part = whole;

	fill(&f, &whole, 0xaa);
	part.bytes = 4096;
	for (unsigned i = 16; i-- > 0;) {
		part.offset = whole.offset + i * 4096;
		pool_free_span(f.pool, &part);
		ck_assert_uint_eq(pool_usage(f.pool).span_bytes, i * 4096);
	}
	close_fixture(&f);
}
END_TEST

START_TEST(reused_memory_reads_as_zero)
{
	struct fixture f = open_fixture(no_limits);
	const uint64_t sizes[] = {4096, 12288, 64 << 10, MIB, 2 * MIB - 4096, 2 * MIB, 4 * MIB};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int round = 0; round < 2; round++) {
			struct span span = take(&f, sizes[i]);
			expect_filled(&f, &span, 0);
			fill(&f, &span, 0x5a);
			expect_filled(&f, &span, 0x5a);
			pool_free_span(f.pool, &span);
		}
	close_fixture(&f);
}
END_TEST

START_TEST(zeroing_spares_the_neighbours)
{
	struct fixture f = open_fixture(no_limits);
	struct span a = take(&f, 4096), b = take(&f, 4096), c = take(&f, 4096);

	fill(&f, &a, 1);
	fill(&f, &b, 2);
	fill(&f, &c, 3);
	pool_free_span(f.pool, &b);
	b = take(&f, 4096);
	expect_filled(&f, &a, 1);
	expect_filled(&f, &b, 0);
	expect_filled(&f, &c, 3);
	pool_free_span(f.pool, &a);
	pool_free_span(f.pool, &b);
	pool_free_span(f.pool, &c);
	close_fixture(&f);
}
END_TEST

static int watch_made(void *of, struct chunk *chunk)
{
	uint64_t *ids = of;

	chunk->id = ++*ids;
	return 0;
}

static void watch_gone(void *of, struct chunk *chunk)
{
	(void)of;
	ck_assert_uint_ne(chunk->id, 0);
}

static int watch_refuses(void *of, struct chunk *chunk)
{
	(void)of, (void)chunk;
	return -EMFILE;
}

START_TEST(watched)
{
	struct fixture f = open_fixture(no_limits);
	uint64_t ids = 0;
	struct pool_watch watch = {watch_made, watch_gone, &ids};
	struct span span;

	pool_set_watch(f.pool, &watch);
	struct span large = take(&f, 4 * MIB), small = take(&f, POOL_BLOCK_MIN);

	ck_assert_uint_eq(large.chunk->id, 1);
	ck_assert_uint_eq(small.chunk->id, 2);
	watch.on_create = watch_refuses;
	pool_set_watch(f.pool, &watch);
	ck_assert_int_eq(pool_alloc(f.pool, 4 * MIB, POOL_ZEROED, f.copier, &span), -EMFILE);
	pool_free_span(f.pool, &large);
	pool_free_span(f.pool, &small);
	close_fixture(&f);
}
END_TEST

/* A pool takes over the allocations of another pool, and the remaining blocks of the adopted chunks
 * are free. */
START_TEST(adopted)
{
	struct fixture one = open_fixture(no_limits), other = open_fixture(no_limits);
	struct span large = take(&one, 4 * MIB), small[3], here[4], taken;
	int fd;

	for (int i = 0; i < 3; i++)
		small[i] = take(&one, 5 * POOL_BLOCK_MIN);
	fill(&one, &small[2], 7);
	ck_assert_int_eq(chunk_export(large.chunk, &fd), 0);
	ck_assert_int_eq(chunk_import(other.device, PLACE_GPU, 4 * MIB, fd, &here[3].chunk), 0);
	ck_assert_int_eq(pool_adopt(other.pool, here[3].chunk, POOL_WHOLE), 0);
	here[3].offset = 0;
	here[3].bytes = 4 * MIB;
	ck_assert_int_eq(chunk_export(small[0].chunk, &fd), 0);
	ck_assert_int_eq(chunk_import(other.device, PLACE_GPU, CHUNK_ALIGN, fd, &here[0].chunk), 0);
	ck_assert_int_eq(pool_adopt(other.pool, here[0].chunk, POOL_SHARED), 0);
	for (int i = 0; i < 3; i++) {
		here[i] = (struct span){here[0].chunk, small[i].offset, small[i].bytes};
		ck_assert_int_eq(pool_adopt_block(other.pool, &here[i]), 0);
	}
	ck_assert_int_eq(pool_adopt_block(other.pool, &here[1]), -EEXIST);
	taken = here[1];
	taken.offset = CHUNK_ALIGN;
	ck_assert_int_eq(pool_adopt_block(other.pool, &taken), -EINVAL);
	struct pool_usage a = pool_usage(one.pool), b = pool_usage(other.pool);

	ck_assert_mem_eq(&a, &b, sizeof(a));
	expect_filled(&other, &here[2], 7);
	taken = take(&other, MIB);
	ck_assert_ptr_eq(taken.chunk, here[0].chunk);
	pool_free_span(other.pool, &taken);
	for (int i = 0; i < 4; i++)
		pool_free_span(other.pool, &here[i]);
	close_fixture(&other);
	for (int i = 0; i < 3; i++)
		pool_free_span(one.pool, &small[i]);
	pool_free_span(one.pool, &large);
	close_fixture(&one);
}
END_TEST

START_TEST(full_device)
{
	struct fixture f = open_fixture(no_limits);
	struct span most = take(&f, DEVICE_BYTES - 2 * MIB), rest = take(&f, MIB),
		    half = take(&f, MIB);

	expect_no_room(&f, 4096);
	expect_no_room(&f, 2 * MIB);
	pool_free_span(f.pool, &half);
	half = take(&f, 4096);
	pool_free_span(f.pool, &most);
	pool_free_span(f.pool, &rest);
	pool_free_span(f.pool, &half);
	close_fixture(&f);
}
END_TEST

struct leaving {
	struct fixture *f;
	struct span span;
};

static void *give_some_time_later(void *arg)
{
	struct leaving *leaving = arg;

	usleep(100000);
	pool_free_span(leaving->f->pool, &leaving->span);
	pool_free_announced(leaving->f->pool);
	return NULL;
}

/* While announced memory is on its way back, a thread waits: the device neither is nor looks full.
 */
START_TEST(announced_memory_is_waited_for)
{
	struct fixture f = open_fixture(no_limits);

	for (unsigned asks = 0; asks < 3; asks++) {
		struct leaving leaving = {&f, take(&f, DEVICE_BYTES)};
		pthread_t giver;
		uint64_t available;

		pool_free_announce(f.pool);
		pthread_create(&giver, NULL, give_some_time_later, &leaving);
		if (asks == 1)
			ck_assert_uint_eq(pool_usage(f.pool).chunk_bytes, 0);
		if (asks == 2) {
			ck_assert_int_eq(pool_available(f.pool, &available), 0);
			ck_assert_uint_eq(available, DEVICE_BYTES);
		}
		struct span span = take(&f, DEVICE_BYTES);
		pool_free_span(f.pool, &span);
		pthread_join(giver, NULL);
	}
	close_fixture(&f);
}
END_TEST

START_TEST(size_limit)
{
	struct fixture f = open_fixture((struct pool_limits){.size = 8 * MIB});
	struct span span = take(&f, 6 * MIB), small = take(&f, 4096);
	uint64_t available;

	expect_no_room(&f, 2 * MIB);
	ck_assert_int_eq(pool_available(f.pool, &available), 0);
	ck_assert_uint_eq(available, 2 * MIB - 4096);
	pool_set_limits(f.pool, &(struct pool_limits){.size = 10 * MIB});
	ck_assert_uint_eq(pool_limits(f.pool).size, 10 * MIB);
	struct span more = take(&f, 2 * MIB);
	pool_set_limits(f.pool, &(struct pool_limits){.size = 2 * MIB});
	ck_assert_int_eq(pool_available(f.pool, &available), 0);
	ck_assert_uint_eq(available, 2 * MIB - 4096);
	pool_free_span(f.pool, &span);
	pool_free_span(f.pool, &more);
	expect_no_room(&f, 2 * MIB);
	pool_free_span(f.pool, &small);
	close_fixture(&f);
}
END_TEST

START_TEST(reserve)
{
	struct fixture f = open_fixture(
	    (struct pool_limits){.size = UINT64_MAX, .reserve = DEVICE_BYTES - 4 * MIB});
	uint64_t available;

	ck_assert_int_eq(pool_available(f.pool, &available), 0);
	ck_assert_uint_eq(available, 4 * MIB);
	expect_no_room(&f, 6 * MIB);
	struct span span = take(&f, 4 * MIB);
	expect_no_room(&f, 4096);
	ck_assert_int_eq(pool_available(f.pool, &available), 0);
	ck_assert_uint_eq(available, 0);
	pool_free_span(f.pool, &span);
	close_fixture(&f);
}
END_TEST

START_TEST(one_spare_chunk)
{
	struct fixture f = open_fixture(no_limits);
	struct span spans[3];

	for (int i = 0; i < 3; i++)
		spans[i] = take(&f, 2 * MIB - 4096);
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, 3);
	struct chunk *kept = spans[0].chunk;
	for (int i = 0; i < 3; i++)
		pool_free_span(f.pool, &spans[i]);
	ck_assert_uint_eq(pool_usage(f.pool).chunk_bytes, 2 * MIB);
	ck_assert_uint_eq(device_used(f.device), 2 * MIB);
	for (int i = 0; i < 10; i++) {
		struct span span = take(&f, 4096);
		ck_assert_ptr_eq(span.chunk, kept);
		pool_free_span(f.pool, &span);
	}
	close_fixture(&f);
}
END_TEST

START_TEST(rests_without_the_spare)
{
	struct fixture f = open_fixture(no_limits);
	uint64_t takes = pool_allocations(f.pool);
	struct span a = take(&f, 4096), b = take(&f, 2 * MIB - 4096);

	ck_assert_uint_eq(pool_allocations(f.pool), takes + 2);
	pool_free_span(f.pool, &b);
	ck_assert(!pool_is_unused(f.pool));
	pool_trim(f.pool);
	fill(&f, &a, 7);
	expect_filled(&f, &a, 7);
	pool_free_span(f.pool, &a);
	ck_assert(pool_is_unused(f.pool));
	pool_trim(f.pool);
	ck_assert_uint_eq(device_used(f.device), 0);
	ck_assert_uint_eq(pool_usage(f.pool).chunk_bytes, 0);
	a = take(&f, 4096);
	expect_filled(&f, &a, 0);
	pool_free_span(f.pool, &a);
	close_fixture(&f);
}
END_TEST

/* Another process may still have the memory of a held chunk, which the limit counts. */
START_TEST(held_chunk_stays_counted)
{
	struct fixture f = open_fixture((struct pool_limits){.size = DEVICE_BYTES});
	struct span held = take(&f, DEVICE_BYTES - 2 * MIB);
	uint64_t available;

	atomic_store(&held.chunk->handed_out, CHUNK_HELD);
	pool_free_span(f.pool, &held);
	ck_assert_uint_eq(device_used(f.device), 0);
	ck_assert_uint_eq(pool_usage(f.pool).chunk_bytes, DEVICE_BYTES - 2 * MIB);
	ck_assert_int_eq(pool_is_unused(f.pool), true);
	expect_no_room(&f, 4 * MIB);
	ck_assert_int_eq(pool_available(f.pool, &available), 0);
	ck_assert_uint_eq(available, 2 * MIB);

	pool_held_restore(f.pool, 2 * MIB);
	expect_no_room(&f, 4096);
	pool_held_end(f.pool, 2 * MIB);
	pool_held_end(f.pool, DEVICE_BYTES - 2 * MIB);
	ck_assert_uint_eq(pool_usage(f.pool).held_bytes, 0);
	struct span all = take(&f, DEVICE_BYTES);

	pool_free_span(f.pool, &all);
	close_fixture(&f);
}
END_TEST

START_TEST(spare_yields_to_a_large_one)
{
	struct fixture f = open_fixture(no_limits);
	struct span span = take(&f, 4096);

	pool_free_span(f.pool, &span);
	ck_assert_uint_eq(device_used(f.device), 2 * MIB);
	span = take(&f, DEVICE_BYTES);
	pool_free_span(f.pool, &span);

	span = take(&f, 4096);
	pool_free_span(f.pool, &span);
	pool_set_limits(f.pool, &(struct pool_limits){.size = 4 * MIB});
	span = take(&f, 4 * MIB);
	pool_free_span(f.pool, &span);
	close_fixture(&f);
}
END_TEST

/* Blocks fill the existing chunks before the pool takes another chunk from the driver. */
START_TEST(blocks_are_packed)
{
	struct fixture f = open_fixture(no_limits);
	struct span spans[1024];

	for (int i = 0; i < 1024; i++)
		spans[i] = take(&f, 4096);
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, 2);
	for (int i = 0; i < 1024; i += 2)
		pool_free_span(f.pool, &spans[i]);
	for (int i = 0; i < 1024; i += 2)
		spans[i] = take(&f, 4096);
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, 2);
	for (int i = 0; i < 1024; i++)
		pool_free_span(f.pool, &spans[i]);
	close_fixture(&f);
}
END_TEST

#define CHUNK_BLOCKS 512

/* The n-th chunk keeps n times 32 blocks, and the first all its blocks. */
static bool stays_taken(int block)
{
	int chunk = block / CHUNK_BLOCKS;

	return chunk == 0 || block % CHUNK_BLOCKS < chunk * 32;
}

START_TEST(emptiest_chunks_are_drained)
{
	enum { CHUNKS = 8, BLOCKS = CHUNKS * CHUNK_BLOCKS, FIRST_KEPT = 5 * CHUNK_BLOCKS };
	enum { MORE = 400 };
	struct fixture f = open_fixture(no_limits);
	static struct span spans[BLOCKS], more[MORE];

	for (int i = 0; i < BLOCKS; i++)
		spans[i] = take(&f, 4096);
	for (int i = 0; i < BLOCKS; i++)
		if (!stays_taken(i))
			pool_free_span(f.pool, &spans[i]);
	ck_assert_uint_eq(pool_usage(f.pool).shared_bytes, CHUNKS * 2 * MIB);
	ck_assert_uint_eq(pool_usage(f.pool).block_bytes, 4096 * (512 + 32 * 28));
	ck_assert_uint_eq(pool_drain(f.pool, CHUNKS * 2 * MIB), 0);
	ck_assert(!pool_drains(f.pool));

	/* Three are kept: the full chunk, and the last two. */
	ck_assert_uint_eq(pool_drain(f.pool, 6 * MIB - 1), 5);
	ck_assert(pool_drains(f.pool));
	for (int i = 0; i < BLOCKS; i++)
		if (stays_taken(i))
			ck_assert_int_eq(chunk_is_drained(spans[i].chunk),
					 i / CHUNK_BLOCKS >= 1 && i / CHUNK_BLOCKS <= 5);
	for (int i = 0; i < MORE; i++) {
		more[i] = take(&f, 4096);
		ck_assert(!chunk_is_drained(more[i].chunk));
	}
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, CHUNKS);
	/* A drained chunk that is empty is not kept. */
	for (int i = CHUNK_BLOCKS; i < FIRST_KEPT; i++)
		if (stays_taken(i))
			pool_free_span(f.pool, &spans[i]);
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, CHUNKS - 4);
	ck_assert_uint_eq(device_used(f.device), (CHUNKS - 4) * 2 * MIB);

	/* The other drained chunk is used again. */
	pool_drain_end(f.pool);
	ck_assert(!pool_drains(f.pool));
	ck_assert(!chunk_is_drained(spans[FIRST_KEPT].chunk));
	for (int i = FIRST_KEPT, n = 0; i < BLOCKS; i++)
		if (!stays_taken(i)) {
			spans[i] = n < MORE ? more[n] : take(&f, 4096);
			n++;
		}
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, CHUNKS - 4);
	for (int i = 0; i < BLOCKS; i++)
		if (i < CHUNK_BLOCKS || i >= FIRST_KEPT)
			pool_free_span(f.pool, &spans[i]);
	ck_assert_uint_eq(pool_usage(f.pool).block_bytes, 0);
	close_fixture(&f);
}
END_TEST

/* Memory that is free in drained chunks is not refused to files. */
START_TEST(full_device_ends_the_draining)
{
	struct fixture f = open_fixture(no_limits);
	static struct span spans[2 * CHUNK_BLOCKS];
	struct span *last = &spans[2 * CHUNK_BLOCKS - 1], more;

	for (int i = 0; i < 2 * CHUNK_BLOCKS; i++)
		spans[i] = take(&f, 4096);
	for (int i = CHUNK_BLOCKS; i < 2 * CHUNK_BLOCKS - 1; i++)
		pool_free_span(f.pool, &spans[i]);
	pool_set_limits(f.pool, &(struct pool_limits){.size = 4 * MIB});
	ck_assert_uint_eq(pool_drain(f.pool, 2 * MIB), 1);
	more = take(&f, 4096);
	ck_assert(!pool_drains(f.pool));
	ck_assert_ptr_eq(more.chunk, last->chunk);
	for (int i = 0; i < CHUNK_BLOCKS; i++)
		pool_free_span(f.pool, &spans[i]);
	pool_free_span(f.pool, &more);
	pool_free_span(f.pool, last);
	close_fixture(&f);
}
END_TEST

/* The parts of a range, and what their powers of two leave unused. */
START_TEST(tight_spans)
{
	ck_assert_uint_eq(pool_tight_bytes(4096), 4096);
	ck_assert_uint_eq(pool_tight_bytes(192 << 10), 128 << 10);
	ck_assert_uint_eq(pool_tight_bytes(960 << 10), 960 << 10);
	ck_assert_uint_eq(pool_tight_bytes(6 * MIB), 6 * MIB);
	for (uint64_t bytes = 4096; bytes < CHUNK_ALIGN; bytes += 4096) {
		uint64_t left = bytes, blocks = 0;

		for (int parts = 0; left; parts++) {
			uint64_t part = pool_tight_bytes(left), block = 4096;

			while (block < part)
				block *= 2;
			ck_assert_uint_gt(part, 0);
			ck_assert_uint_le(part, left);
			ck_assert_int_lt(parts, 9);
			blocks += block;
			left -= part;
		}
		ck_assert_uint_le(blocks, bytes + bytes / 8);
	}
}
END_TEST

START_TEST(failed_device)
{
	struct fixture f = open_fixture(no_limits);
	struct span held = take(&f, 4096), span;
	uint64_t available;

	device_fail(f.device, "a fault made by the test");
	ck_assert_int_eq(pool_alloc(f.pool, 4096, POOL_ZEROED, f.copier, &span), -EIO);
	ck_assert_int_eq(pool_alloc(f.pool, 2 * MIB, POOL_UNDEFINED, f.copier, &span), -EIO);
	ck_assert_int_eq(pool_available(f.pool, &available), -EIO);
	pool_free_span(f.pool, &held);
	ck_assert_uint_eq(pool_usage(f.pool).span_bytes, 0);
	pool_free(f.pool);
	copier_close(f.copier);
	backend_close(f.backend);
}
END_TEST

struct worker {
	struct fixture *f;
	uint64_t state;
	unsigned char mark;
	uint64_t limit; /* the pool's limit on the device */
	const char *fault;
};

#define HELD 24

static bool has_ends(struct copier *copier, const struct span *span, int value)
{
	unsigned char first, last;

	copy_out(copier, &first, span, 0, 1, COPY_AUTO);
	copy_out(copier, &last, span, span->bytes - 1, 1, COPY_AUTO);
	copier_wait(copier);
	return first == value && last == value;
}

static void mark_ends(struct worker *w, struct copier *copier, const struct span *span)
{
	copy_in(copier, span, 0, &w->mark, 1, COPY_AUTO);
	copy_in(copier, span, span->bytes - 1, &w->mark, 1, COPY_AUTO);
	copier_wait(copier);
}

static void churn(struct worker *w, struct copier *copier, struct span *span)
{
	uint64_t bytes = unit_random(&w->state) % 8 ? (1 + unit_random(&w->state) % 64) * 4096
						    : (1 + unit_random(&w->state) % 2) * 2 * MIB;

	if (span->chunk) {
		if (!has_ends(copier, span, w->mark))
			w->fault = "another span's bytes were overwritten";
		pool_free_span(w->f->pool, span);
		span->chunk = NULL;
		return;
	}
	int rc = pool_alloc(w->f->pool, bytes, POOL_ZEROED, copier, span);
	if (rc == -ENOSPC) {
		span->chunk = NULL;
		return;
	}
	if (rc < 0 || !has_ends(copier, span, 0))
		w->fault = "a span was refused or not zeroed";
	else
		mark_ends(w, copier, span);
	if (device_used(w->f->device) > w->limit)
		w->fault = "the device holds more than the limit";
}

static void *work(void *argument)
{
	struct worker *w = argument;
	struct span spans[HELD] = {0};
	struct copier *copier;

	if (copier_open(w->f->backend, &copier) < 0)
		return NULL;
	for (int i = 0; i < 1000 && !w->fault; i++)
		churn(w, copier, &spans[unit_random(&w->state) % HELD]);
	for (int i = 0; i < HELD; i++)
		if (spans[i].chunk)
			pool_free_span(w->f->pool, &spans[i]);
	copier_close(copier);
	return NULL;
}

static void run_threads(struct pool_limits limits, uint64_t limit)
{
	struct fixture f = open_fixture(limits);
	struct worker workers[THREADS];
	pthread_t ids[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
		    .f = &f, .state = unit_seed() + i, .mark = i + 1, .limit = limit};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_msg(!workers[i].fault, "%s", workers[i].fault);
	close_fixture(&f);
}

/* A device reset marks unreadable chunks as lost: the pool cuts no further block from a lost chunk.
 */
START_TEST(no_block_of_a_lost_chunk)
{
	struct fixture f = open_fixture(no_limits);
	struct span lost = take(&f, 64 << 10), next;

	ck_assert_uint_eq(health_lost(f.device), 0);
	atomic_store(&lost.chunk->lost, true);
	ck_assert_uint_eq(health_lost(f.device), 2 * MIB);
	next = take(&f, 64 << 10);
	ck_assert_ptr_ne(next.chunk, lost.chunk);
	ck_assert_uint_eq(device_used(f.device), 4 * MIB);
	/* A lost chunk is freed with its last block: the pool does not keep lost chunks as spares.
	 */
	pool_free_span(f.pool, &lost);
	ck_assert_uint_eq(device_used(f.device), 2 * MIB);
	ck_assert_uint_eq(health_lost(f.device), 0);
	pool_free_span(f.pool, &next);
	close_fixture(&f);
}
END_TEST

START_TEST(a_lost_spare_chunk_is_freed)
{
	struct fixture f = open_fixture(no_limits);
	struct span first = take(&f, 4096), next;

	pool_free_span(f.pool, &first);
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, 1);
	atomic_store(&first.chunk->lost, true);
	next = take(&f, 4096);
	ck_assert(!atomic_load(&next.chunk->lost));
	ck_assert_uint_eq(pool_usage(f.pool).shared_chunks, 1);
	ck_assert_uint_eq(device_used(f.device), 2 * MIB);
	pool_free_span(f.pool, &next);
	close_fixture(&f);
}
END_TEST

START_TEST(large_memory_is_there_for_the_next)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = 100 * MIB, .host_gpus = 1};
	struct backend *backend;
	struct pool *pool;
	struct span span;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(pool_new(backend->devices[0], PLACE_GPU, &no_limits, &pool), 0);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(pool_alloc(pool, 80 * MIB, POOL_UNDEFINED, NULL, &span), 0);
		pool_free_span(pool, &span);
		ck_assert_uint_eq(pool_usage(pool).span_bytes, 0);
	}
	pool_free(pool);
	ck_assert_uint_eq(device_used(backend->devices[0]), 0);
	backend_close(backend);
}
END_TEST

/* Pools of several devices, in system memory, share one bound. */
START_TEST(shared_budget)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = 16 * MIB, .host_gpus = 2};
	struct pool_budget budget = {.size = 10 * MIB};
	struct backend *backend;
	struct pool *pools[2];
	struct span spans[2], small;
	uint64_t available;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pool_new(backend->devices[i], PLACE_HOST, &no_limits, &pools[i]),
				 0);
		ck_assert_int_eq(pool_set_budget(pools[i], &budget, 4 * MIB), 0);
	}
	ck_assert_int_eq(pool_alloc(pools[0], 6 * MIB, POOL_UNDEFINED, NULL, &spans[0]), 0);
	ck_assert_int_eq(pool_alloc(pools[1], 6 * MIB, POOL_UNDEFINED, NULL, &spans[1]), -ENOSPC);
	ck_assert_uint_eq(pool_usage(pools[1]).chunk_bytes, 0);
	ck_assert_int_eq(pool_available(pools[1], &available), 0);
	ck_assert_uint_eq(available, 4 * MIB);
	ck_assert_int_eq(pool_alloc(pools[1], 2 * MIB, POOL_UNDEFINED, NULL, &spans[1]), 0);
	ck_assert_int_eq(pool_alloc(pools[1], 4096, POOL_UNDEFINED, NULL, &small), 0);
	ck_assert_uint_eq(atomic_load(&budget.held), 10 * MIB);
	/* Blocks of shared chunks that are held already are free all the same. */
	ck_assert_int_eq(pool_available(pools[1], &available), 0);
	ck_assert_uint_eq(available, 2 * MIB - 4096);
	pool_free_span(pools[0], &spans[0]);
	ck_assert_uint_eq(atomic_load(&budget.held), 4 * MIB);
	pool_free_span(pools[1], &spans[1]);
	pool_free_span(pools[1], &small);
	for (int i = 0; i < 2; i++)
		pool_free(pools[i]);
	ck_assert_uint_eq(atomic_load(&budget.held), 0);
	ck_assert_uint_eq(device_used(backend->devices[0]), 0);
	backend_close(backend);
}
END_TEST

/* The spare of a budget is for exchanges alone, and what is taken of the spare stays free on the
 * device that owes it. */
START_TEST(spare_is_for_exchanges)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = 16 * MIB, .host_gpus = 1};
	struct pool_budget budget = {.size = 12 * MIB, .spare = 4 * MIB}, none = {0};
	struct backend *backend;
	struct pool *device, *host;
	struct span full, away, spare, back;
	uint64_t available;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(pool_new(backend->devices[0], PLACE_GPU, &no_limits, &device), 0);
	ck_assert_int_eq(pool_new(backend->devices[0], PLACE_HOST, &no_limits, &host), 0);
	ck_assert_int_eq(pool_set_budget(host, &budget, 0), 0);
	pool_set_lenders(device, &budget, &none);
	pool_owe(device, UINT64_MAX);
	ck_assert_int_eq(pool_available(host, &available), 0);
	ck_assert_uint_eq(available, 8 * MIB);
	ck_assert_int_eq(pool_alloc(host, 8 * MIB, POOL_UNDEFINED, NULL, &away), 0);
	ck_assert_int_eq(pool_alloc(host, 2 * MIB, POOL_UNDEFINED, NULL, &spare), -ENOSPC);
	ck_assert_uint_eq(pool_owed(device), 0);
	ck_assert_int_eq(pool_alloc(device, 12 * MIB, POOL_UNDEFINED, NULL, &full), 0);
	ck_assert_int_eq(pool_alloc_exchange(host, 4 * MIB, POOL_UNDEFINED, NULL, &spare), 0);
	ck_assert_uint_eq(pool_owed(device), 4 * MIB);
	ck_assert_int_eq(pool_available(device, &available), 0);
	ck_assert_uint_eq(available, 0);
	ck_assert_int_eq(pool_alloc(device, 2 * MIB, POOL_UNDEFINED, NULL, &back), -ENOSPC);
	ck_assert_int_eq(pool_alloc_exchange(device, 2 * MIB, POOL_UNDEFINED, NULL, &back), 0);
	pool_free_span(device, &back);
	pool_owe(device, 2 * MIB);
	ck_assert_int_eq(pool_alloc(device, 2 * MIB, POOL_UNDEFINED, NULL, &back), 0);
	pool_free_span(host, &away);
	ck_assert_uint_eq(pool_owed(device), 0);
	ck_assert_int_eq(pool_alloc(device, 2 * MIB, POOL_UNDEFINED, NULL, &away), 0);
	pool_free_span(device, &away);
	pool_free_span(device, &back);
	pool_free_span(device, &full);
	pool_free_span(host, &spare);
	pool_free(device);
	pool_free(host);
	backend_close(backend);
}
END_TEST

static int news;

static int counted_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
			     struct chunk **chunk)
{
	news++;
	return backend_host_ops.chunk_new(device, place, bytes, chunk);
}

/* Chunks of the given size are kept and made ahead, within the budget, unless another process may
 * have their memory. */
START_TEST(stock_of_chunks)
{
	struct backend_config config = {
	    .kind = BACKEND_HOST, .host_bytes = 16 * MIB, .host_gpus = 1};
	struct pool_budget budget = {.size = 12 * MIB};
	struct backend_ops ops = backend_host_ops;
	struct backend *backend;
	struct pool *pool;
	struct span spans[3];

	ops.chunk_new = counted_chunk_new;
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	backend->ops = &ops;
	ck_assert_int_eq(pool_new(backend->devices[0], PLACE_HOST, &no_limits, &pool), 0);
	ck_assert_int_eq(pool_set_budget(pool, &budget, 4 * MIB), 0);
	struct stock *stock = pool_stock(pool);

	ck_assert(stock_make(stock, 8 * MIB) && stock_make(stock, 8 * MIB));
	ck_assert(!stock_make(stock, 8 * MIB));
	ck_assert_uint_eq(stock_bytes(stock), 8 * MIB);
	ck_assert_int_eq(news, 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pool_alloc(pool, 4 * MIB, POOL_UNDEFINED, NULL, &spans[i]), 0);
	ck_assert_int_eq(news, 2);
	ck_assert_uint_eq(stock_bytes(stock), 0);
	ck_assert_uint_eq(atomic_load(&budget.held), 8 * MIB);

	/* Kept, but not what another process may have. */
	atomic_store(&spans[1].chunk->handed_out, CHUNK_HANDING_OUT);
	pool_free_span(pool, &spans[0]);
	pool_free_span(pool, &spans[1]);
	ck_assert_uint_eq(stock_bytes(stock), 4 * MIB);
	ck_assert_uint_eq(atomic_load(&budget.held), 0);
	ck_assert_uint_eq(pool_usage(pool).chunk_bytes, 0);

	/* The stock gives way to memory of other sizes. */
	ck_assert(stock_make(stock, 12 * MIB) && stock_make(stock, 12 * MIB));
	ck_assert(!stock_make(stock, 16 * MIB));
	ck_assert_int_eq(pool_alloc(pool, 2 * MIB, POOL_UNDEFINED, NULL, &spans[2]), 0);
	ck_assert_uint_eq(stock_bytes(stock), 8 * MIB);
	ck_assert_uint_le(atomic_load(&budget.held) + atomic_load(&budget.stocked), budget.size);
	pool_free_span(pool, &spans[2]);
	pool_trim(pool);
	ck_assert_uint_eq(stock_bytes(stock), 0);
	ck_assert_uint_eq(atomic_load(&budget.stocked), 0);
	pool_free(pool);
	backend_close(backend);
}
END_TEST

START_TEST(threads)
{
	run_threads(no_limits, DEVICE_BYTES);
}
END_TEST

START_TEST(threads_at_the_size_limit)
{
	run_threads((struct pool_limits){.size = 16 * MIB}, 16 * MIB);
}
END_TEST

START_TEST(threads_at_the_reserve)
{
	run_threads((struct pool_limits){.size = UINT64_MAX, .reserve = DEVICE_BYTES - 12 * MIB},
		    12 * MIB);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("pool", &tcase, 300);
	tcase_add_test(tcase, large_owns_its_chunk);
	tcase_add_test(tcase, small_share_a_chunk);
	tcase_add_test(tcase, parts_of_a_block_can_be_given);
	tcase_add_test(tcase, reused_memory_reads_as_zero);
	tcase_add_test(tcase, zeroing_spares_the_neighbours);
	tcase_add_test(tcase, watched);
	tcase_add_test(tcase, adopted);
	tcase_add_test(tcase, full_device);
	tcase_add_test(tcase, announced_memory_is_waited_for);
	tcase_add_test(tcase, size_limit);
	tcase_add_test(tcase, reserve);
	tcase_add_test(tcase, one_spare_chunk);
	tcase_add_test(tcase, rests_without_the_spare);
	tcase_add_test(tcase, held_chunk_stays_counted);
	tcase_add_test(tcase, spare_yields_to_a_large_one);
	tcase_add_test(tcase, blocks_are_packed);
	tcase_add_test(tcase, emptiest_chunks_are_drained);
	tcase_add_test(tcase, full_device_ends_the_draining);
	tcase_add_test(tcase, tight_spans);
	tcase_add_test(tcase, failed_device);
	tcase_add_test(tcase, no_block_of_a_lost_chunk);
	tcase_add_test(tcase, a_lost_spare_chunk_is_freed);
	tcase_add_test(tcase, large_memory_is_there_for_the_next);
	tcase_add_test(tcase, shared_budget);
	tcase_add_test(tcase, spare_is_for_exchanges);
	tcase_add_test(tcase, stock_of_chunks);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, threads_at_the_size_limit);
	tcase_add_test(tcase, threads_at_the_reserve);
	return unit_main(suite);
}
