/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider with drivers that fail: once, for good, or from the start. */
#include <fcntl.h>

#include "tests/unit/cuda_fixture.h"

START_TEST(no_memory_once)
{
	struct chunk *chunk;

	set("GPUMEM_STANDIN_FAULT", "cuMemCreate@2=OUT_OF_MEMORY;cuMemMap@3=OUT_OF_MEMORY;"
				    "cuMemAddressReserve@1=OUT_OF_MEMORY");
	open_plain();
	struct device *device = backend->devices[0];
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, CHUNK_ALIGN, &chunk), -ENOMEM);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, CHUNK_ALIGN, &chunk), -ENOSPC);
	struct chunk *a = new_chunk(0, CHUNK_ALIGN), *b = new_chunk(0, CHUNK_ALIGN);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, CHUNK_ALIGN, &chunk), -ENOSPC);
	ck_assert(!atomic_load(&device->failed));
	chunk_free(a);
	chunk_free(b);
	close_all();
}
END_TEST

static const struct {
	const char *fault;
	enum { PINNED, PAGEABLE, ZERO, ACROSS } how;
} fatal_faults[] = {
    {"device0@3=ECC_UNCORRECTABLE+", PINNED},
    {"device0@3=ECC_UNCORRECTABLE+", PAGEABLE},
    {"device0@3=DEVICE_LOST+", PAGEABLE},
    {"device0@3=HARDWARE_STACK_ERROR+", ZERO},
    {"device0@3=NVLINK_UNCORRECTABLE+", ACROSS},
    {"cuMemcpyHtoDAsync@3=ECC_UNCORRECTABLE", PINNED},
    {"cuMemcpyHtoDAsync@3=LAUNCH_FAILED", PAGEABLE},
    {"cuStreamQuery@1=ILLEGAL_ADDRESS", PINNED},
};
#define FATAL_FAULTS (int)(sizeof(fatal_faults) / sizeof(fatal_faults[0]))

static int failing_copy(int how, struct chunk *chunk, struct chunk *other, unsigned char *pinned,
			unsigned char *pageable)
{
	struct span span = whole(chunk), other_span = whole(other);
	int rc = 0;

	switch (how) {
	case PINNED:
		rc = copy_in(copier, &span, 0, pinned, 2 * MIB, COPY_DMA);
		break;
	case PAGEABLE:
		rc = copy_in(copier, &span, 0, pageable, 2 * MIB, COPY_DMA);
		break;
	case ZERO:
		rc = copy_zero(copier, &span, 0, 2 * MIB);
		break;
	case ACROSS:
		rc = copy_across(copier, &span, 0, &other_span, 0, 2 * MIB);
		break;
	}
	int waited = copier_wait(copier);
	return rc < 0 ? rc : waited;
}

/* A failed device answers with EIO for good, the other device goes on, and both devices can be
 * closed. */
START_TEST(device_fails)
{
	static PAGES unsigned char pinned[2 * MIB], pageable[2 * MIB];
	struct device_memory memory;
	int rc = 0;
	int fd;

	set("GPUMEM_STANDIN_FAULT", fatal_faults[_i].fault);
	open_plain();
	ck_assert_int_eq(copier_pin(copier, pinned, sizeof(pinned)), 0);
	struct chunk *chunk = new_chunk(0, 4 * MIB), *other = new_chunk(1, 4 * MIB);
	for (unsigned i = 0; i < 6 && rc == 0; i++)
		rc = failing_copy(fatal_faults[_i].how, chunk, other, pinned, pageable);
	ck_assert_int_eq(rc, -EIO);
	ck_assert(atomic_load(&backend->devices[0]->failed));
	ck_assert(!atomic_load(&backend->devices[1]->failed));

	struct chunk *more;
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, CHUNK_ALIGN, &more), -EIO);
	ck_assert_int_eq(chunk_export(chunk, &fd), -EIO);
	ck_assert_int_eq(device_memory(backend->devices[0], &memory), -EIO);
	ck_assert_int_eq(failing_copy(ZERO, chunk, other, pinned, pageable), -EIO);

	expect_alive(1);
	put(other, 0, pinned, sizeof(pinned));
	expect_bytes(other, 0, pinned, sizeof(pinned));
	ck_assert_int_eq(chunk_export(other, &fd), 0);
	close(fd);
	chunk_free(chunk);
	chunk_free(other);
	copier_unpin(copier, pinned);
	close_all();
}
END_TEST

/* An error that does not end the device fails only the call. */
START_TEST(passing_error)
{
	char byte = 1;

	set("GPUMEM_STANDIN_FAULT",
	    "cuMemExportToShareableHandle@1=NOT_SUPPORTED;"
	    "cuMemsetD8Async@1=INVALID_VALUE;cuMemHostAlloc@1=OUT_OF_MEMORY");
	open_plain();
	struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
	struct span span = whole(chunk);
	int fd;
	ck_assert_int_eq(chunk_export(chunk, &fd), -ENOTSUP);
	ck_assert_int_eq(copy_zero(copier, &span, 0, CHUNK_ALIGN), -EIO);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_DMA), -ENOMEM);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert(!atomic_load(&backend->devices[0]->failed));
	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	close(fd);
	chunk_free(chunk);
	expect_alive(0);
	close_all();
}
END_TEST

START_TEST(no_driver)
{
	set("GPUMEM_STANDIN_FAULT", "cuInit@1=SYSTEM_DRIVER_MISMATCH+");
	ck_assert_int_eq(try_open(BAR_AUTO, NULL), -ENODEV);
	/* The automatic choice falls back to host memory. */
	struct backend_config config = {.host_gpus = 1, .host_bytes = 64 * MIB};
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_str_eq(backend->name, "host");
	backend_close(backend);
}
END_TEST

START_TEST(no_gpu)
{
	set("GPUMEM_STANDIN_GPUS", "0");
	ck_assert_int_eq(try_open(BAR_AUTO, NULL), -ENODEV);
	ck_assert_int_eq(try_open(BAR_AUTO, "0"), -ENODEV);
}
END_TEST

/* A GPU without room for a context is full, not broken. */
START_TEST(no_room_for_a_context)
{
	struct chunk *chunk;

	set("GPUMEM_STANDIN_MEMORY", "64M");
	set("GPUMEM_STANDIN_CONTEXT_MEMORY", "517M");
	open_plain();
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, CHUNK_ALIGN, &chunk), -ENOSPC);
	ck_assert(!atomic_load(&backend->devices[0]->failed));
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	(void)tcase;
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, no_memory_once);
	tcase_add_test(tcase, passing_error);
	tcase_add_test(tcase, no_driver);
	tcase_add_test(tcase, no_gpu);
	tcase_add_test(tcase, no_room_for_a_context);
	tcase_add_loop_test(tcase, device_fails, 0, FATAL_FAULTS);
}

int main(void)
{
	return cuda_main("cuda_faults", any_driver, standin);
}
