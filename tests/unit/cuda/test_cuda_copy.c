/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider's copies, by every path and between any two devices. */
#include "backend/cuda/provider.h"
#include "tests/unit/cuda_fixture.h"

/* The model that copies are compared with: the bytes of a chunk per device, and of pinned memory.
 */
#define MODEL_BYTES (6 * MIB)
#define MODELS	    4

struct model {
	struct chunk *chunks[MODELS];
	unsigned char *bytes[MODELS];
	unsigned char *pinned, *pageable;
	/* Host memory that a pending copy out will fill. */
	struct {
		unsigned char *host, *wanted;
		size_t bytes;
	} pending[8];
	unsigned n_pending;
	uint64_t host_used; /* of pinned and pageable memory, in the batch: no two copies of a batch
			       share memory */
};

static void model_open(struct model *model)
{
	model->pinned = aligned_alloc(4096, MODEL_BYTES);
	model->pageable = aligned_alloc(4096, MODEL_BYTES);
	ck_assert_int_eq(copier_pin(copier, model->pinned, MODEL_BYTES), 0);
	for (unsigned i = 0; i < MODELS; i++) {
		struct span span;

		model->chunks[i] = new_chunk(i % backend->n_devices, MODEL_BYTES);
		model->bytes[i] = calloc(1, MODEL_BYTES);
		span = whole(model->chunks[i]);
		ck_assert_int_eq(copy_zero(copier, &span, 0, MODEL_BYTES), 0);
	}
}

static void model_wait(struct model *model)
{
	ck_assert_int_eq(copier_wait(copier), 0);
	for (unsigned i = 0; i < model->n_pending; i++) {
		ck_assert_msg(memcmp(model->pending[i].host, model->pending[i].wanted,
				     model->pending[i].bytes) == 0,
			      "%zu bytes copied out differ", model->pending[i].bytes);
		free(model->pending[i].wanted);
	}
	model->n_pending = 0;
	model->host_used = 0;
}

static void model_close(struct model *model)
{
	model_wait(model);
	for (unsigned i = 0; i < MODELS; i++) {
		expect_bytes(model->chunks[i], 0, model->bytes[i], MODEL_BYTES);
		chunk_free(model->chunks[i]);
		free(model->bytes[i]);
	}
	copier_unpin(copier, model->pinned);
	free(model->pinned);
	free(model->pageable);
}

static void model_in(struct model *model, unsigned i, uint64_t offset, size_t bytes,
		     unsigned char *host)
{
	struct span span = whole(model->chunks[i]);

	unit_fill(host, bytes < 64 ? bytes : 64, &seed);
	if (bytes > 64)
		memset(host + 64, (int)(unit_random(&seed) & 0xff), bytes - 64);
	memcpy(model->bytes[i] + offset, host, bytes);
	ck_assert_int_eq(copy_in(copier, &span, offset, host, bytes, COPY_DMA), 0);
}

static void model_out(struct model *model, unsigned i, uint64_t offset, size_t bytes,
		      unsigned char *host)
{
	struct span span = whole(model->chunks[i]);
	unsigned char *wanted = malloc(bytes);

	memcpy(wanted, model->bytes[i] + offset, bytes);
	memset(host, 0x77, bytes);
	ck_assert_int_eq(copy_out(copier, host, &span, offset, bytes, COPY_DMA), 0);
	model->pending[model->n_pending].host = host;
	model->pending[model->n_pending].bytes = bytes;
	model->pending[model->n_pending++].wanted = wanted;
}

static void model_across(struct model *model, unsigned to, uint64_t to_offset, unsigned from,
			 uint64_t from_offset, size_t bytes)
{
	struct span to_span = whole(model->chunks[to]), from_span = whole(model->chunks[from]);
	size_t piece = bytes / 6 + 1;

	/* Copies inside a device are in order with all other copies, but not with each other. */
	model_wait(model);
	memcpy(model->bytes[to] + to_offset, model->bytes[from] + from_offset, bytes);
	for (size_t at = 0; at < bytes; at += piece)
		ck_assert_int_eq(copy_across(copier, &to_span, to_offset + at, &from_span,
					     from_offset + at,
					     bytes - at < piece ? bytes - at : piece),
				 0);
}

static void model_zero(struct model *model, unsigned i, uint64_t offset, size_t bytes)
{
	struct span span = whole(model->chunks[i]);

	memset(model->bytes[i] + offset, 0, bytes);
	ck_assert_int_eq(copy_zero(copier, &span, offset, bytes), 0);
}

static size_t random_bytes(uint64_t limit)
{
	/* From a byte to several staging slots; small sizes are more frequent. */
	uint64_t bytes = 1 + unit_random(&seed) % (1ULL << (unit_random(&seed) % 23));
	return bytes < limit ? bytes : limit;
}

static void random_step(struct model *model)
{
	unsigned i = unit_random(&seed) % MODELS, j = unit_random(&seed) % MODELS;
	uint64_t offset = unit_random(&seed) % MODEL_BYTES;
	uint64_t from = unit_random(&seed) % MODEL_BYTES;
	size_t bytes = random_bytes(MODEL_BYTES - offset);
	unsigned char *host = (unit_random(&seed) & 1 ? model->pinned : model->pageable);

	if (model->host_used + bytes > MODEL_BYTES || model->n_pending == 8)
		model_wait(model);
	host += model->host_used;
	switch (unit_random(&seed) % 5) {
	case 0:
		model->host_used += bytes;
		model_in(model, i, offset, bytes, host);
		break;
	case 1:
		model->host_used += bytes;
		model_out(model, i, offset, bytes, host);
		break;
	case 2:
		model_zero(model, i, offset, bytes);
		break;
	case 3:
		if (i != j)
			model_across(model, i, offset, j, from,
				     bytes < MODEL_BYTES - from ? bytes : MODEL_BYTES - from);
		break;
	case 4:
		model_wait(model);
		break;
	}
}

static void random_copies(unsigned steps)
{
	struct model model = {0};

	open_plain();
	model_open(&model);
	for (unsigned i = 0; i < steps; i++)
		random_step(&model);
	model_close(&model);
	close_all();
}

START_TEST(copies_against_model)
{
	set("GPUMEM_STANDIN_PAGEABLE", "error");
	random_copies(1500);
}
END_TEST

/* In a batch without a wait, copies of the same bytes on several devices' streams take effect in
 * the order of the calls. */
static void expect_order(void)
{
	static PAGES unsigned char a[2 * MIB], b[2 * MIB], seen[2 * MIB];
	static unsigned char zero[MIB];

	open_plain();
	ck_assert_int_eq(copier_pin(copier, a, sizeof(a)), 0);
	ck_assert_int_eq(copier_pin(copier, b, sizeof(b)), 0);
	ck_assert_int_eq(copier_pin(copier, seen, sizeof(seen)), 0);
	struct span one = whole(new_chunk(0, 2 * MIB));
	struct span two = whole(new_chunk(1 % backend->n_devices, 2 * MIB));
	for (unsigned i = 0; i < 10; i++) {
		unit_fill(a, sizeof(a), &seed);
		unit_fill(b, sizeof(b), &seed);
		ck_assert_int_eq(copy_in(copier, &one, 0, a, 2 * MIB, COPY_DMA), 0);
		ck_assert_int_eq(copy_zero(copier, &two, 0, 2 * MIB), 0);
		ck_assert_int_eq(copy_across(copier, &two, 0, &one, 0, 2 * MIB), 0);
		ck_assert_int_eq(copy_zero(copier, &two, 0, MIB), 0);
		ck_assert_int_eq(copy_out(copier, seen, &two, 0, 2 * MIB, COPY_DMA), 0);
		ck_assert_int_eq(copy_in(copier, &one, 0, b, 2 * MIB, COPY_DMA), 0);
		ck_assert_int_eq(copy_across(copier, &two, 0, &one, 0, 2 * MIB), 0);
		ck_assert_int_eq(copy_in(copier, &two, 0, a, MIB, COPY_DMA), 0);
		ck_assert_int_eq(copy_across(copier, &one, 0, &two, 0, 2 * MIB), 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_mem_eq(seen, zero, MIB);
		ck_assert_mem_eq(seen + MIB, a + MIB, MIB);
		expect_bytes(one.chunk, 0, a, MIB);
		expect_bytes(one.chunk, MIB, b + MIB, MIB);
	}
	chunk_free(one.chunk);
	chunk_free(two.chunk);
	close_all();
}

START_TEST(keeps_order)
{
	set("GPUMEM_STANDIN_DELAY_US", "1000");
	expect_order();
}
END_TEST

START_TEST(keeps_order_without_peers)
{
	set("GPUMEM_STANDIN_DELAY_US", "1000");
	set("GPUMEM_STANDIN_PEER", "0");
	expect_order();
}
END_TEST

/* The stand-in's streams lag behind, so that a missing wait shows. */
START_TEST(slow_copies_against_model)
{
	set("GPUMEM_STANDIN_PAGEABLE", "error");
	set("GPUMEM_STANDIN_DELAY_US", "500");
	set("GPUMEM_STANDIN_GPUS", "3");
	random_copies(500);
}
END_TEST

START_TEST(copies_without_peers)
{
	set("GPUMEM_STANDIN_PAGEABLE", "error");
	set("GPUMEM_STANDIN_DELAY_US", "200");
	set("GPUMEM_STANDIN_PEER", "0");
	random_copies(500);
}
END_TEST

/* The driver promises peer access and then refuses the access. */
START_TEST(copies_with_peers_refused)
{
	set("GPUMEM_STANDIN_PEER", "refuse");
	random_copies(300);
}
END_TEST

START_TEST(copies_with_registration_refused)
{
	set("GPUMEM_STANDIN_PAGEABLE", "error");
	set("GPUMEM_STANDIN_FAULT", "cuMemHostRegister@1=OUT_OF_MEMORY+");
	random_copies(300);
}
END_TEST

/* The owner frees or reuses the memory after copier_unpin, which therefore waits for copies itself:
 * the driver's call waits too, but not if the call fails. */
START_TEST(unpin_waits_for_copies)
{
	static PAGES unsigned char buffer[2 * MIB], wanted[2 * MIB];

	set("GPUMEM_STANDIN_DELAY_US", "20000");
	set("GPUMEM_STANDIN_FAULT", "cuMemHostUnregister@1=INVALID_CONTEXT");
	open_plain();
	struct span span = whole(new_chunk(0, sizeof(buffer)));
	unit_fill(wanted, sizeof(wanted), &seed);
	memcpy(buffer, wanted, sizeof(buffer));
	ck_assert_int_eq(copier_pin(copier, buffer, sizeof(buffer)), 0);
	ck_assert_int_eq(copy_in(copier, &span, 0, buffer, sizeof(buffer), COPY_DMA), 0);
	copier_unpin(copier, buffer);
	memset(buffer, 0x33, sizeof(buffer));
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(span.chunk, 0, wanted, sizeof(wanted));
	ck_assert_int_eq(cuda_of(backend)->cu.cuMemHostUnregister(buffer), GM_CUDA_SUCCESS);
	chunk_free(span.chunk);
	close_all();
}
END_TEST

/* The wait for a copy that failed is copier_unpin's, but the error is for the owner's wait. */
START_TEST(unpin_keeps_the_error)
{
	static PAGES unsigned char buffer[65536];

	set("GPUMEM_STANDIN_FAULT", "device0@2=LAUNCH_FAILED");
	set("GPUMEM_STANDIN_DELAY_US", "20000");
	open_plain();
	struct span span = whole(new_chunk(0, CHUNK_ALIGN));
	ck_assert_int_eq(copier_pin(copier, buffer, sizeof(buffer)), 0);
	ck_assert_int_eq(copy_in(copier, &span, 0, buffer, sizeof(buffer), COPY_DMA), 0);
	copier_unpin(copier, buffer);
	ck_assert_int_eq(copier_wait(copier), -EIO);
	chunk_free(span.chunk);
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	tcase_add_test(tcase, copies_against_model);
	tcase_add_test(tcase, keeps_order);
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, keeps_order_without_peers);
	tcase_add_test(tcase, slow_copies_against_model);
	tcase_add_test(tcase, copies_without_peers);
	tcase_add_test(tcase, copies_with_peers_refused);
	tcase_add_test(tcase, copies_with_registration_refused);
	tcase_add_test(tcase, unpin_waits_for_copies);
	tcase_add_test(tcase, unpin_keeps_the_error);
}

int main(void)
{
	return cuda_main("cuda_copy", any_driver, standin);
}
