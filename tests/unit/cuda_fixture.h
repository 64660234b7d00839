/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared code of the tests of the CUDA provider. The tests use the libcuda.so.1 that the loader
 * finds: the stand-in of tests/driver (LD_LIBRARY_PATH) with injected faults, or the driver of a
 * real GPU without the tests that need faults. Every test runs in its own process, because the
 * stand-in reads its settings once. */
#ifndef TESTS_UNIT_CUDA_FIXTURE_H
#define TESTS_UNIT_CUDA_FIXTURE_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/copy.h"
#include "common/log.h"
#include "tests/unit/unit.h"

#define MIB (1ULL << 20)
/* Two registrations cannot share a page. */
#define PAGES __attribute__((aligned(4096)))

static struct backend *backend;
static struct copier *copier;
static uint64_t seed;

static inline void set(const char *name, const char *value)
{
	setenv(name, value, 1);
}

static inline int try_open(enum bar_provider bar, const char *gpus)
{
	struct backend_config config = {.kind = BACKEND_CUDA, .bar = bar, .gpus = gpus};

	return backend_open(&config, &backend);
}

static inline void open_with(enum bar_provider bar, const char *gpus)
{
	seed = unit_seed();
	ck_assert_int_eq(try_open(bar, gpus), 0);
	ck_assert_int_eq(copier_open(backend, &copier), 0);
}

static inline void open_plain(void)
{
	open_with(BAR_AUTO, NULL);
}

static inline void close_all(void)
{
	copier_close(copier);
	backend_close(backend);
}

static inline struct chunk *new_chunk(unsigned device, uint64_t bytes)
{
	struct chunk *chunk;

	ck_assert_int_eq(chunk_new(backend->devices[device], PLACE_GPU, bytes, &chunk), 0);
	return chunk;
}

static inline struct span whole(struct chunk *chunk)
{
	return (struct span){.chunk = chunk, .offset = 0, .bytes = chunk->bytes};
}

static inline void put(struct chunk *chunk, uint64_t offset, const void *from, size_t bytes)
{
	struct span span = whole(chunk);

	ck_assert_int_eq(copy_in(copier, &span, offset, from, bytes, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
}

static inline void expect_bytes(struct chunk *chunk, uint64_t offset, const void *wanted,
				size_t bytes)
{
	struct span span = whole(chunk);
	char *seen = malloc(bytes);

	ck_assert_ptr_nonnull(seen);
	memset(seen, 0x11, bytes);
	ck_assert_int_eq(copy_out(copier, seen, &span, offset, bytes, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_msg(memcmp(seen, wanted, bytes) == 0, "%zu bytes at %llu differ", bytes,
		      (unsigned long long)offset);
	free(seen);
}

static inline void expect_alive(unsigned device)
{
	char pattern[5000];

	unit_fill(pattern, sizeof(pattern), &seed);
	struct chunk *chunk = new_chunk(device, CHUNK_ALIGN);
	put(chunk, 1000, pattern, sizeof(pattern));
	expect_bytes(chunk, 1000, pattern, sizeof(pattern));
	chunk_free(chunk);
}

/* Checks the stand-in's leak lines: the memory, streams and pins that each process still had at its
 * end. */
static inline int cuda_leaks(const char *path)
{
	static const char *const names[] = {
	    " memory=",	 " handles=", " mappings=", " reservations=",	 " pinned=",
	    " streams=", " events=",  " contexts=", " pageable_copies=", " violations="};
	FILE *file = fopen(path, "re");
	char line[512];
	unsigned lines = 0, bad = 0;

	while (file && fgets(line, sizeof(line), file)) {
		bool leak = !strstr(line, " handles=");
		lines++;
		for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && !leak; i++) {
			const char *at = strstr(line, names[i]);
			const char *value = at ? strchr(at, '=') : NULL;
			leak = value && strtoull(value + 1, NULL, 10) != 0;
		}
		if (leak)
			fprintf(stderr, "cuda: left behind: %s", line);
		bad += leak;
	}
	if (file)
		fclose(file);
	if (!lines)
		fprintf(stderr, "cuda: the stand-in left no leak report\n");
	return bad || !lines;
}

/* Runs the tests of any_driver and, with the stand-in, the tests of standin too. Returns the exit
 * status of the test program. */
static inline int cuda_main(const char *name, void (*any_driver)(TCase *), void (*standin)(TCase *))
{
	char path[] = "/tmp/gpumemfs-test-cuda-XXXXXX";
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("%s: skipped: %s\n", name, dlerror());
		return 77;
	}
	TCase *tcase;
	Suite *suite = unit_suite(name, &tcase, 300);
	any_driver(tcase);
	if (!dlsym(library, "standin_gpu_info")) {
		printf("%s: a real driver: what needs faults to order is left out\n", name);
		return unit_main(suite);
	}
	standin(tcase);
	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	setenv("GPUMEM_STANDIN_LEAKCHECK", path, 1);
	int status = unit_main(suite);
	int leaked = cuda_leaks(path);
	unlink(path);
	return status || leaked;
}

#endif
