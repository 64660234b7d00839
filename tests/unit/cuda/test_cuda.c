/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider: devices, memory, export, threads. */
#include "backend/cuda/provider.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "backend/bar_cache.h"
#include "backend/stream/stream.h"
#include "tests/unit/cuda_fixture.h"

START_TEST(describes_devices)
{
	open_plain();
	ck_assert_str_eq(backend->name, "cuda");
	ck_assert_str_ne(backend->version, "");
	ck_assert_uint_gt(backend->n_devices, 0);
	for (unsigned i = 0; i < backend->n_devices; i++) {
		struct device *device = backend->devices[i];
		struct device_memory memory;

		ck_assert_uint_eq(device->slot, i);
		ck_assert_str_ne(device->name, "");
		ck_assert_uint_eq(strlen(device->uuid), strlen("GPU-") + 36);
		ck_assert_uint_eq(strlen(device->pci), strlen("0000:00:00.0"));
		ck_assert_uint_gt(device->bar_bytes, 0);
		ck_assert_int_eq(device_memory(device, &memory), 0);
		ck_assert_uint_eq(memory.total, device->total);
		ck_assert_uint_gt(memory.free, 0);
		ck_assert_uint_le(memory.free, memory.total);
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(device->uuid, backend->devices[j]->uuid);
	}
	close_all();
}
END_TEST

START_TEST(selects_devices)
{
	open_with(BAR_AUTO, "0");
	ck_assert_uint_eq(backend->n_devices, 1);
	ck_assert_uint_eq(backend->devices[0]->index, 0);
	close_all();
	ck_assert_int_eq(try_open(BAR_AUTO, "63"), -ENODEV);
	ck_assert_int_eq(try_open(BAR_AUTO, "x"), -EINVAL);
}
END_TEST

/* gpu0 is nvidia-smi's GPU 0 even if CUDA numbers the GPUs differently, with NVML and without. */
static void expect_numbers(void)
{
	set("GPUMEM_STANDIN_ORDER", "reverse");
	open_plain();
	ck_assert_str_eq(backend->devices[0]->name, "Stand-in GPU 0");
	ck_assert_str_eq(backend->devices[1]->name, "Stand-in GPU 1");
	close_all();
	open_with(BAR_AUTO, "1");
	ck_assert_uint_eq(backend->n_devices, 1);
	ck_assert_uint_eq(backend->devices[0]->index, 1);
	ck_assert_str_eq(backend->devices[0]->name, "Stand-in GPU 1");
	close_all();
}

START_TEST(numbers_like_nvidia_smi)
{
	expect_numbers();
}
END_TEST

START_TEST(numbers_without_nvml)
{
	set("GPUMEM_STANDIN_NVML", "0");
	expect_numbers();
}
END_TEST

static void expect_memory_comes_and_goes(void)
{
	struct device_memory before, during, after;

	open_plain();
	struct device *device = backend->devices[0];
	chunk_free(new_chunk(0, CHUNK_ALIGN)); /* from now on the device has a context */
	ck_assert_int_eq(device_memory(device, &before), 0);
	struct chunk *chunk = new_chunk(0, 64 * MIB);
	ck_assert_int_eq(device_memory(device, &during), 0);
	chunk_free(chunk);
	ck_assert_int_eq(device_memory(device, &after), 0);
	ck_assert_uint_ge(before.free, during.free + 64 * MIB);
	ck_assert_uint_ge(after.free, during.free + 64 * MIB);
	close_all();
}

START_TEST(memory_comes_and_goes)
{
	expect_memory_comes_and_goes();
}
END_TEST

START_TEST(memory_without_nvml)
{
	set("GPUMEM_STANDIN_NVML", "0");
	expect_memory_comes_and_goes();
}
END_TEST

START_TEST(full_device)
{
	struct chunk *chunks[64], *more;
	unsigned n = 0;
	int rc;

	open_plain();
	while ((rc = chunk_new(backend->devices[0], PLACE_GPU, 32 * MIB, &more)) == 0 && n < 64)
		chunks[n++] = more;
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_uint_gt(n, 2);
	chunk_free(chunks[--n]);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 32 * MIB, &more), 0);
	chunks[n++] = more;
	while (n)
		chunk_free(chunks[--n]);
	close_all();
}
END_TEST

/* The provider keeps the descriptor of a chunk and closes the descriptor with the chunk, regardless
 * of duplicates. */
START_TEST(exported_again)
{
	int first, second;
	struct stat a, b;

	open_plain();
	/* From now on the device has the objects of a first chunk. */
	chunk_free(new_chunk(0, 64 * MIB));
	int before = dup(0);
	close(before);
	struct chunk *chunk = new_chunk(0, 64 * MIB);
	ck_assert_int_eq(chunk_export(chunk, &first), 0);
	ck_assert_int_eq(chunk_export(chunk, &second), 0);
	ck_assert_int_ne(first, second);
	ck_assert_int_eq(fcntl(second, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(fstat(first, &a), 0);
	ck_assert_int_eq(fstat(second, &b), 0);
	ck_assert_uint_eq(a.st_ino, b.st_ino);
	close(first);
	close(second);
	chunk_free(chunk);
	int after = dup(0);
	close(after);
	ck_assert_int_eq(after, before);
	close_all();
}
END_TEST

/* Two exported fds refer to the same memory; an importer in another program sees the bytes. */
START_TEST(export)
{
	char pattern[4096], seen[4096];
	struct cuda_driver cu;
	char why[256];
	int fd;
	gm_CUresult (*import)(gm_CUmemGenericAllocationHandle *, void *, int);
	gm_CUdeviceptr address;
	gm_CUmemGenericAllocationHandle handle;
	gm_CUmemAccessDesc access = {.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	open_plain();
	unit_fill(pattern, sizeof(pattern), &seed);
	struct chunk *chunk = new_chunk(0, 4 * MIB);
	put(chunk, 3 * MIB, pattern, sizeof(pattern));
	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	access.location =
	    (gm_CUmemLocation){GM_CU_MEM_LOCATION_TYPE_DEVICE, cuda_device(chunk->device)->handle};
	chunk_free(chunk); /* the fd keeps the memory */

	ck_assert_int_eq(driver_load_cuda(&cu, why, sizeof(why)), 0);
	*(void **)&import = dlsym(cu.library, "cuMemImportFromShareableHandle");
	ck_assert_int_eq(import(&handle, (void *)(intptr_t)fd, 1), 0);
	ck_assert_int_eq(cu.cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0), 0);
	ck_assert_int_eq(cu.cuMemMap(address, 4 * MIB, 0, handle, 0), 0);
	ck_assert_int_eq(cu.cuMemSetAccess(address, 4 * MIB, &access, 1), 0);
	gm_CUresult (*to_host)(void *, gm_CUdeviceptr, size_t);
	*(void **)&to_host = dlsym(cu.library, "cuMemcpyDtoH_v2");
	ck_assert_int_eq(to_host(seen, address + 3 * MIB, sizeof(seen)), 0);
	ck_assert_mem_eq(seen, pattern, sizeof(pattern));

	ck_assert_int_eq(cu.cuMemUnmap(address, 4 * MIB), 0);
	ck_assert_int_eq(cu.cuMemAddressFree(address, 4 * MIB), 0);
	ck_assert_int_eq(cu.cuMemRelease(handle), 0);
	close(fd);
	close_all();
}
END_TEST

/* System memory that the GPU addresses: the CPU copies in place, without DMA, and the GPU copies.
 */
START_TEST(system_memory)
{
	char pattern[70000], seen[70000];
	struct device_memory before, after;
	int fd;

	open_plain();
	struct device *device = backend->devices[0];

	ck_assert(device->host_memory);

	unit_fill(pattern, sizeof(pattern), &seed);
	struct chunk *chunk, *again, *other = new_chunk(0, CHUNK_ALIGN);

	put(other, 0, pattern, sizeof(pattern)); /* makes the context, which takes memory */
	chunk_free(other);
	ck_assert_int_eq(device_memory(device, &before), 0);
	other = new_chunk(0, CHUNK_ALIGN);
	const uint64_t by_dma = copier->bytes_dma;

	ck_assert_int_eq(chunk_new(device, PLACE_HOST, 4 * MIB, &chunk), 0);
	struct span span = whole(chunk), across = whole(other);

	ck_assert_int_eq(copy_in(copier, &span, 3 * MIB, pattern, sizeof(pattern), COPY_AUTO), 0);
	ck_assert_uint_eq(copier->bytes_dma, by_dma);
	ck_assert_int_eq(copy_across(copier, &across, 5, &span, 3 * MIB, sizeof(pattern)), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(other, 5, pattern, sizeof(pattern));
	ck_assert_int_eq(copy_zero(copier, &span, 3 * MIB, sizeof(pattern)), 0);
	ck_assert_int_eq(copy_across(copier, &span, 7, &across, 5, sizeof(pattern)), 0);
	ck_assert_int_eq(copier_wait(copier), 0);

	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	chunk_free(chunk);
	ck_assert_int_eq(chunk_import(device, PLACE_HOST, 4 * MIB, fd, &again), 0);
	expect_bytes(again, 7, pattern, sizeof(pattern));
	span = whole(again);
	ck_assert_int_eq(copy_out(copier, seen, &span, 7, sizeof(seen), COPY_AUTO), 0);
	ck_assert_mem_eq(seen, pattern, sizeof(seen));
	chunk_free(other);
	chunk_free(again);
	ck_assert_int_eq(device_memory(device, &after), 0);
	ck_assert_uint_eq(before.free, after.free);
	close_all();
}
END_TEST

START_TEST(no_system_memory)
{
	struct chunk *chunk;

	set("GPUMEM_STANDIN_HOST_MEMORY", "0");
	open_plain();
	ck_assert(!backend->devices[0]->host_memory);
	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_HOST, 4 * MIB, &chunk), -ENOTSUP);
	expect_alive(0);
	close_all();
}
END_TEST

/* The driver does not export an imported handle, so the provider exports the descriptor of the
 * import. At the end no part of the import is left. */
START_TEST(imported)
{
	char pattern[4096];
	int fd, again;

	open_plain();
	unit_fill(pattern, sizeof(pattern), &seed);
	struct chunk *first = new_chunk(0, 4 * MIB), *second, *third;

	put(first, 3 * MIB, pattern, sizeof(pattern));
	ck_assert_int_eq(chunk_export(first, &fd), 0);
	chunk_free(first);
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, fd, &second), 0);
	expect_bytes(second, 3 * MIB, pattern, sizeof(pattern));
	ck_assert_int_eq(chunk_export(second, &again), 0);
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, again, &third), 0);
	put(second, 0, pattern, sizeof(pattern));
	chunk_free(second);
	expect_bytes(third, 0, pattern, sizeof(pattern));
	chunk_free(third);
	close_all();
}
END_TEST

static struct chunk *imported_later(uint64_t bytes, int fd)
{
	struct chunk *chunk;

	ck_assert_int_eq(
	    chunk_import_foreign(backend->devices[0], bytes, fd, CHUNK_FOREIGN_LATER, &chunk), 0);
	return chunk;
}

/* A copy, a mapping or another process may be the first use, or there is none. */
START_TEST(imported_at_the_first_use)
{
	char pattern[4096];
	brlock_token token;
	int fds[4], again;

	open_plain();
	unit_fill(pattern, sizeof(pattern), &seed);
	struct chunk *first = new_chunk(0, 4 * MIB), *second, *third;

	put(first, 3 * MIB, pattern, sizeof(pattern));
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(chunk_export(first, &fds[i]), 0);
	chunk_free(imported_later(4 * MIB, fds[0]));
	second = imported_later(4 * MIB, fds[1]);
	expect_bytes(second, 3 * MIB, pattern, sizeof(pattern));
	chunk_free(second);
	second = imported_later(4 * MIB, fds[2]);
	char *mapping = bar_acquire(second, BAR_WANT_FORCE, &token);

	if (mapping) {
		stream_load(pattern, mapping + 3 * MIB, sizeof(pattern));
		bar_release(second, token);
		expect_bytes(first, 3 * MIB, pattern, sizeof(pattern));
	}
	chunk_free(second);
	second = imported_later(4 * MIB, fds[3]);
	ck_assert_int_eq(chunk_export(second, &again), 0);
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, again, &third), 0);
	expect_bytes(third, 3 * MIB, pattern, sizeof(pattern));
	chunk_free(third);
	chunk_free(second);
	chunk_free(first);
	close_all();
}
END_TEST

static void expect_useless(uint64_t bytes, int fd)
{
	struct chunk *chunk = imported_later(bytes, fd);
	struct span span = whole(chunk);
	char byte;

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(copy_out(copier, &byte, &span, 0, 1, COPY_DMA), -EIO);
	ck_assert_int_eq(copy_zero(copier, &span, 0, MIB), -EIO);
	chunk_free(chunk);
	ck_assert_int_eq(device_health(backend->devices[0]), DEVICE_OK);
}

START_TEST(lies_are_found_at_the_first_use)
{
	int fd;

	open_plain();
	struct chunk *first = new_chunk(0, 4 * MIB);

	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(chunk_export(first, &fd), 0);
	expect_useless(8 * MIB, fd);
	expect_useless(4 * MIB, open("/dev/null", O_RDWR | O_CLOEXEC));
	chunk_free(first);
	close_all();
}
END_TEST

#define THREADS 4

static void *allocate_and_copy(void *arg)
{
	uint64_t state = (uintptr_t)arg;
	struct copier *mine;
	unsigned char in[9000], out[9000];

	ck_assert_int_eq(copier_open(backend, &mine), 0);
	for (unsigned i = 0; i < 40; i++) {
		struct device *device = backend->devices[i % backend->n_devices];
		struct chunk *chunk;
		brlock_token token;

		ck_assert_int_eq(chunk_new(device, PLACE_GPU, CHUNK_ALIGN * (1 + i % 3), &chunk),
				 0);
		struct span span = whole(chunk);
		unit_fill(in, sizeof(in), &state);
		ck_assert_int_eq(copy_zero(mine, &span, 0, chunk->bytes), 0);
		ck_assert_int_eq(copy_in(mine, &span, 4000, in, sizeof(in), COPY_DMA), 0);
		ck_assert_int_eq(copy_out(mine, out, &span, 4000, sizeof(out), COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(mine), 0);
		ck_assert_mem_eq(in, out, sizeof(in));
		char *mapping = bar_acquire(chunk, BAR_WANT_FORCE, &token);
		if (mapping) {
			stream_load(out, mapping + 4000, sizeof(out));
			ck_assert_mem_eq(in, out, sizeof(in));
			bar_release(chunk, token);
		}
		chunk_free(chunk);
	}
	copier_close(mine);
	return NULL;
}

START_TEST(threads)
{
	pthread_t ids[THREADS];

	open_plain();
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(
		    pthread_create(&ids[i], NULL, allocate_and_copy, (void *)(seed + i)), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	close_all();
}
END_TEST

START_TEST(prohibited_device_is_not_used)
{
	set("GPUMEM_STANDIN_COMPUTE_MODE", "prohibited");
	ck_assert_int_eq(try_open(BAR_AUTO, NULL), -ENODEV);
}
END_TEST

/* An earlier daemon's files on the device are still there, and so are those on other devices, which
 * the next daemon finds by their place in the list. */
START_TEST(prohibited_device_with_files_keeps_its_place)
{
	set("GPUMEM_STANDIN_COMPUTE_MODE", "prohibited");
	struct backend_config config = {.kind = BACKEND_CUDA, .gpus = "0,1", .recovers = true};
	struct chunk *chunk;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_uint_eq(backend->n_devices, 2);
	ck_assert_int_lt(chunk_new(backend->devices[0], PLACE_GPU, CHUNK_ALIGN, &chunk), 0);
	backend_close(backend);
}
END_TEST

/* A device that another process has alone is busy, and works once it is free. */
START_TEST(exclusive_device_is_busy)
{
	char mode[64], path[] = "/tmp/gpumemfs-test-mode-XXXXXX", byte = 0;
	int fd = mkstemp(path);
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct chunk *chunk;
	int told[2], ends[2];

	snprintf(mode, sizeof(mode), "exclusive:%s", path);
	set("GPUMEM_STANDIN_COMPUTE_MODE", mode);
	ck_assert_int_eq(pipe(told) | pipe(ends), 0);
	pid_t holder = fork();

	ck_assert_int_ge(holder, 0);
	if (holder == 0) {
		close(ends[1]);
		fcntl(fd, F_SETLK, &whole);
		_exit(write(told[1], "", 1) != 1 || read(ends[0], &byte, 1) != 0);
	}
	ck_assert_int_eq(read(told[0], &byte, 1), 1);
	open_plain();
	ck_assert_str_eq(backend->devices[0]->compute_mode, "exclusive_process");
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, MIB * 2, &chunk), -EBUSY);
	ck_assert(!backend->devices[0]->failed);
	close(ends[1]);
	ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
	expect_alive(0);
	close_all();
	close(fd);
	unlink(path);
}
END_TEST

static void any_driver(TCase *tcase)
{
	tcase_add_test(tcase, describes_devices);
	tcase_add_test(tcase, selects_devices);
	tcase_add_test(tcase, memory_comes_and_goes);
	tcase_add_test(tcase, export);
	tcase_add_test(tcase, imported);
	tcase_add_test(tcase, imported_at_the_first_use);
	tcase_add_test(tcase, lies_are_found_at_the_first_use);
	tcase_add_test(tcase, system_memory);
	tcase_add_test(tcase, exported_again);
	tcase_add_test(tcase, threads);
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, numbers_like_nvidia_smi);
	tcase_add_test(tcase, numbers_without_nvml);
	tcase_add_test(tcase, memory_without_nvml);
	tcase_add_test(tcase, no_system_memory);
	tcase_add_test(tcase, full_device);
	tcase_add_test(tcase, prohibited_device_is_not_used);
	tcase_add_test(tcase, prohibited_device_with_files_keeps_its_place);
	tcase_add_test(tcase, exclusive_device_is_busy);
}

int main(void)
{
	return cuda_main("cuda", any_driver, standin);
}
