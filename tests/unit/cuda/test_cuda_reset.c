/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Devices that fail and are reset: the data that is back, the data that is lost, and the users that
 * go on. */
#include <pthread.h>
#include <sys/mman.h>

#include "backend/bar_cache.h"
#include "backend/cuda/provider.h"
#include "backend/pool.h"
#include "backend/reset.h"
#include "tests/driver/helpers.h"
#include "tests/unit/cuda_fixture.h"

#define WAIT_US	   1000
#define CHUNKS	   3
#define PATTERN	   70000
#define COPIES	   400
#define PASS_FAULT "cuMemcpyDtoHAsync@1=LAUNCH_FAILED~"

static atomic_uint resets, given_up;
static char faults[] = "/tmp/gpumemfs-test-reset-XXXXXX";

static void count_resets(void *of, struct device *device, int64_t ms)
{
	(void)of, (void)device;
	ck_assert_int_ge(ms, 0);
	atomic_fetch_add(&resets, 1);
}

static void count_given_up(void *of, struct device *device)
{
	(void)of, (void)device;
	atomic_fetch_add(&given_up, 1);
}

static void open_resetting(enum bar_provider bar)
{
	const struct reset_watch watch = {.reset = count_resets, .given_up = count_given_up};

	open_with(bar, NULL);
	ck_assert_int_eq(reset_start(backend, &watch), 0);
}

static void close_resetting(void)
{
	close_all();
	unlink(faults);
}

static void await(const atomic_uint *count, unsigned wanted)
{
	UNIT_AWAIT(atomic_load(count) >= wanted);
	ck_assert_uint_eq(atomic_load(count), wanted);
}

static uint64_t used(unsigned device)
{
	int (*info)(unsigned, struct standin_gpu *);
	struct standin_gpu gpu;

	*(void **)&info = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "standin_gpu_info");
	ck_assert_int_eq(info(device, &gpu), 0);
	return gpu.used;
}

/* Sets the faults; the copies of each fault are counted from now on. */
static void order(const char *fault)
{
	char next[sizeof(faults) + 4];

	if (!getenv("GPUMEM_STANDIN_FAULT_FILE")) {
		close(mkstemp(faults));
		set("GPUMEM_STANDIN_FAULT_FILE", faults);
	}
	snprintf(next, sizeof(next), "%s.new", faults);
	FILE *file = fopen(next, "we");
	ck_assert_ptr_nonnull(file);
	fputs(fault, file);
	fclose(file);
	ck_assert_int_eq(rename(next, faults), 0);
}

static int read_byte(struct chunk *chunk, uint64_t offset)
{
	struct span span = whole(chunk);
	char byte;
	int rc = copy_out(copier, &byte, &span, offset, 1, COPY_DMA);
	int waited = copier_wait(copier);

	return rc < 0 ? rc : waited;
}

struct content {
	struct chunk *chunks[CHUNKS];
	char patterns[CHUNKS][PATTERN];
};

static void fill(struct content *content, unsigned device, uint64_t bytes)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		content->chunks[i] = new_chunk(device, bytes);
		unit_fill(content->patterns[i], PATTERN, &seed);
		put(content->chunks[i], bytes - PATTERN, content->patterns[i], PATTERN);
	}
}

static void check(const struct content *content)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		struct chunk *chunk = content->chunks[i];

		if (chunk && !atomic_load(&chunk->lost))
			expect_bytes(chunk, chunk->bytes - PATTERN, content->patterns[i], PATTERN);
	}
}

static void empty(struct content *content)
{
	for (unsigned i = 0; i < CHUNKS; i++)
		chunk_free(content->chunks[i]);
}

static const enum bar_provider bars[] = {BAR_OFF, BAR_VULKAN};

/* Data written through the BAR is back too, and the BAR is mapped again. */
START_TEST(comes_back)
{
	static struct content here, there;
	char byte = 'b';
	int fd;

	order("");
	open_resetting(bars[_i]);
	fill(&here, 0, 4 * MIB);
	fill(&there, 1, 2 * MIB);
	struct span span = whole(here.chunks[0]);
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_BAR), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	order(PASS_FAULT);
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	check(&there);
	await(&resets, 1);
	ck_assert_int_eq(device_health(backend->devices[0]), DEVICE_OK);
	check(&here);
	expect_bytes(here.chunks[0], 0, &byte, 1);
	byte = 'c';
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_BAR), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(here.chunks[0], 0, &byte, 1);
	if (bars[_i] != BAR_OFF)
		ck_assert_uint_eq(bar_usage(backend->devices[0]).mapped, 4 * MIB);
	expect_alive(0);
	ck_assert_int_eq(chunk_export(here.chunks[1], &fd), 0);
	close(fd);
	check(&there);
	empty(&here);
	empty(&there);
	close_resetting();
}
END_TEST

/* Memory of the system is not lost with a context, and the CPU finds it at its new address. */
START_TEST(system_memory_comes_back)
{
	static struct content here;
	char pattern[PATTERN], seen[PATTERN];
	struct chunk *chunk;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	unit_fill(pattern, sizeof(pattern), &seed);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_HOST, 4 * MIB, &chunk), 0);
	struct span span = whole(chunk);

	ck_assert_int_eq(copy_in(copier, &span, MIB, pattern, PATTERN, COPY_AUTO), 0);
	order(PASS_FAULT);
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	ck_assert_int_eq(copy_out(copier, seen, &span, MIB, PATTERN, COPY_AUTO), -EIO);
	await(&resets, 1);
	ck_assert(!atomic_load(&chunk->lost));
	ck_assert_int_eq(copy_out(copier, seen, &span, MIB, PATTERN, COPY_AUTO), 0);
	ck_assert_mem_eq(seen, pattern, PATTERN);
	expect_bytes(chunk, MIB, pattern, PATTERN);
	check(&here);
	chunk_free(chunk);
	empty(&here);
	close_resetting();
}
END_TEST

/* If the process cannot have a device again, the provider gives up only the device. */
START_TEST(does_not_come_back)
{
	static struct content here, there;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	fill(&there, 1, 2 * MIB);
	order("cuMemcpyDtoHAsync@1=ILLEGAL_ADDRESS");
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	ck_assert_int_eq(device_health(backend->devices[0]), DEVICE_RESETTING);
	await(&given_up, 1);
	ck_assert_int_eq(device_health(backend->devices[0]), DEVICE_FAILED);
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	check(&there);
	expect_alive(1);
	empty(&here);
	empty(&there);
	close_resetting();
	ck_assert_uint_eq(atomic_load(&resets), 0);
}
END_TEST

/* An allocation that cannot be read is lost. A test read finds the lost allocation, whichever copy
 * failed first, and the chunk is freed like others. */
START_TEST(bad_memory_is_lost)
{
	static struct content here;
	struct span span;
	char byte;
	int fd;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	order("memory2=ECC_UNCORRECTABLE+~");
	ck_assert_int_eq(read_byte(here.chunks[1], 0), -EIO);
	await(&resets, 1);
	ck_assert(!atomic_load(&here.chunks[0]->lost));
	ck_assert(atomic_load(&here.chunks[1]->lost));
	ck_assert(!atomic_load(&here.chunks[2]->lost));
	check(&here);
	span = whole(here.chunks[1]);
	ck_assert_int_eq(read_byte(here.chunks[1], 0), -EIO);
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_DMA), -EIO);
	ck_assert_int_eq(copy_zero(copier, &span, 0, MIB), -EIO);
	ck_assert_int_eq(chunk_export(here.chunks[1], &fd), -EIO);
	ck_assert_int_eq(device_health(backend->devices[0]), DEVICE_OK);
	chunk_free(here.chunks[1]);
	here.chunks[1] = NULL;
	ck_assert_uint_eq(used(0), 4 * MIB);
	check(&here);
	empty(&here);
	close_resetting();
	ck_assert_uint_eq(atomic_load(&resets), 1);
}
END_TEST

/* If the driver does not map the handle of a chunk again, the chunk's descriptor restores the
 * memory; without a descriptor the chunk is lost. */
START_TEST(descriptors_bring_memory_back)
{
	static struct content here;
	int fd;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	ck_assert_int_eq(chunk_export(here.chunks[0], &fd), 0);
	close(fd);
	/* The first mapping is the memory that the test reads need. */
	order(PASS_FAULT "\ncuMemMap@2=INVALID_VALUE\ncuMemMap@4=INVALID_VALUE\n");
	ck_assert_int_eq(read_byte(here.chunks[2], 0), -EIO);
	await(&resets, 1);
	ck_assert(!atomic_load(&here.chunks[0]->lost));
	ck_assert(atomic_load(&here.chunks[1]->lost));
	ck_assert(!atomic_load(&here.chunks[2]->lost));
	check(&here);
	ck_assert_int_eq(chunk_export(here.chunks[0], &fd), 0);
	close(fd);
	empty(&here);
	close_resetting();
}
END_TEST

static struct chunk *imported_later(struct chunk *from)
{
	struct chunk *later;
	int fd;

	ck_assert_int_eq(chunk_export(from, &fd), 0);
	ck_assert_int_eq(
	    chunk_import_foreign(from->device, from->bytes, fd, CHUNK_FOREIGN_LATER, &later), 0);
	return later;
}

/* Memory without a first use is neither mapped nor read, and can be used afterwards. */
START_TEST(memory_for_later_stays)
{
	static struct content here;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	struct chunk *later = imported_later(here.chunks[0]);

	order(PASS_FAULT);
	ck_assert_int_eq(read_byte(here.chunks[2], 0), -EIO);
	await(&resets, 1);
	ck_assert(!atomic_load(&later->lost));
	ck_assert_int_eq(read_byte(later, 0), read_byte(here.chunks[0], 0));
	chunk_free(later);
	check(&here);
	empty(&here);
	close_resetting();
}
END_TEST

/* Neither a full GPU nor a failure of the GPU says that the memory is bad. */
START_TEST(failed_imports_are_tried_again)
{
	static struct content here;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	struct chunk *first = imported_later(here.chunks[0]),
		     *second = imported_later(here.chunks[1]);

	order("cuMemImportFromShareableHandle@1=OUT_OF_MEMORY");
	ck_assert_int_eq(read_byte(first, 0), -ENOMEM);
	ck_assert_int_eq(read_byte(first, 0), 0);
	order("cuMemImportFromShareableHandle@1=LAUNCH_FAILED~");
	ck_assert_int_eq(read_byte(second, 0), -EIO);
	await(&resets, 1);
	ck_assert_int_eq(read_byte(second, 0), 0);
	ck_assert_int_eq(read_byte(first, 0), 0);
	chunk_free(first);
	chunk_free(second);
	check(&here);
	empty(&here);
	close_resetting();
}
END_TEST

/* The registrations for all copiers ended with the context, also for the other device. */
START_TEST(windows_come_back)
{
	static PAGES char window[PATTERN];
	static struct content here, there;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	fill(&there, 1, 2 * MIB);
	for (unsigned round = 0; round < 2; round++) {
		ck_assert_int_eq(device_pin(backend->devices[0], window, sizeof(window)), 0);
		unit_fill(window, sizeof(window), &seed);
		put(here.chunks[0], 0, window, sizeof(window));
		put(there.chunks[0], 0, window, sizeof(window));
		expect_bytes(here.chunks[0], 0, window, sizeof(window));
		expect_bytes(there.chunks[0], 0, window, sizeof(window));
		if (round == 0) {
			order(PASS_FAULT);
			ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
			await(&resets, 1);
		}
	}
	device_unpin(backend->devices[0], window);
	empty(&here);
	empty(&there);
	close_resetting();
}
END_TEST

/* A registration ended with the context, and then the file was truncated: no CPU copy replaces the
 * DMA, neither from the window nor to the window. */
START_TEST(windows_are_never_touched_by_the_cpu)
{
	static struct content here;
	int fd = memfd_create("window", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, MIB), 0);
	char *window = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(window, MAP_FAILED);
	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	struct span span = whole(here.chunks[0]);
	ck_assert_int_eq(device_pin(backend->devices[0], window, MIB), 0);
	order(PASS_FAULT);
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	await(&resets, 1);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(copy_in(copier, &span, 0, window, MIB, COPY_DMA), -EIO);
	ck_assert_int_eq(copy_out(copier, window, &span, 0, MIB, COPY_DMA), -EIO);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_lt(device_pin(backend->devices[0], window, MIB), 0);
	check(&here);
	device_unpin(backend->devices[0], window);
	munmap(window, MIB);
	close(fd);
	empty(&here);
	close_resetting();
}
END_TEST

/* The test reads need room, which a full device lacks. */
START_TEST(full_devices_come_back)
{
	static struct content here;

	set("GPUMEM_STANDIN_MEMORY", "12M");
	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 4 * MIB);
	order(PASS_FAULT);
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	await(&resets, 1);
	check(&here);
	empty(&here);
	close_resetting();
}
END_TEST

START_TEST(freed_meanwhile)
{
	static struct content here;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	order("cuMemcpyDtoHAsync@1=LAUNCH_FAILED~\ncuStreamCreate@1=LAUNCH_FAILED~");
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	/* The next attempt at the reset comes after the free. */
	chunk_free(here.chunks[0]);
	here.chunks[0] = NULL;
	await(&resets, 1);
	ck_assert_uint_eq(used(0), 4 * MIB);
	check(&here);
	empty(&here);
	close_resetting();
}
END_TEST

/* A reset that needs two attempts takes the peers' access away twice, but the peer is released as
 * often as it was held: with a count that is wrong it would never be idle. */
START_TEST(peers_are_released_once)
{
	static struct content here;

	order("");
	open_resetting(BAR_OFF);
	fill(&here, 0, 2 * MIB);
	for (unsigned i = 0; i < CHUNKS; i++)
		ck_assert(peers_need(cuda_chunk(here.chunks[i])));
	ck_assert_int_eq(device_idle_release(backend->devices[1]), -EBUSY);
	order("cuMemcpyDtoHAsync@1=LAUNCH_FAILED~\ncuStreamCreate@1=LAUNCH_FAILED~");
	ck_assert_int_eq(read_byte(here.chunks[0], 0), -EIO);
	await(&resets, 1);
	check(&here);
	empty(&here);
	UNIT_AWAIT(device_idle_release(backend->devices[1]) == 0);
	close_resetting();
}
END_TEST

/* Small files get no block of a lost chunk, not even of a chunk that was empty, and their blocks in
 * a lost chunk are freed. */
START_TEST(pools_shun_lost_chunks)
{
	const struct pool_limits none = {.size = UINT64_MAX};
	struct span block, other;
	struct pool *pool;

	order("");
	open_resetting(BAR_OFF);
	ck_assert_int_eq(pool_new(backend->devices[0], PLACE_GPU, &none, &pool), 0);
	for (unsigned round = 1; round <= 2; round++) {
		char fault[64];

		ck_assert_int_eq(pool_alloc(pool, 65536, POOL_ZEROED, copier, &block), 0);
		struct chunk *bad = block.chunk;

		if (round == 2)
			pool_free_span(pool, &block);
		/* The memory that the test reads need is counted too. */
		snprintf(fault, sizeof(fault), "memory%u=ECC_UNCORRECTABLE+~",
			 round == 1 ? 1u : 5u);
		order(fault);
		ck_assert_int_eq(read_byte(bad, 0), -EIO);
		await(&resets, round);
		ck_assert(atomic_load(&bad->lost));
		ck_assert_int_eq(pool_alloc(pool, 65536, POOL_ZEROED, copier, &other), 0);
		ck_assert(!atomic_load(&other.chunk->lost));
		if (round == 1)
			pool_free_span(pool, &block);
		ck_assert_uint_eq(pool_usage(pool).chunks, 1);
		pool_free_span(pool, &other);
		order("");
		pool_trim(pool);
	}
	pool_free(pool);
	close_resetting();
}
END_TEST

/* Faults during the work of threads: each copy is correct or an error, and a device without faults
 * gives no errors. */
struct load {
	unsigned device;
	struct chunk *remote; /* the target of the copies, on either device; NULL: none */
	uint64_t seed;
	unsigned errors, copies;
};

static int round_trip(struct copier *own, struct load *load, struct chunk *chunk, char *wanted,
		      char *seen)
{
	struct span span = whole(chunk), remote;
	int rc;

	unit_fill(wanted, PATTERN, &load->seed);
	memset(seen, 0, PATTERN);
	rc = copy_in(own, &span, 0, wanted, PATTERN, COPY_AUTO);
	if (rc == 0 && load->remote) {
		remote = whole(load->remote);
		rc = copy_across(own, &remote, 0, &span, 0, PATTERN);
	}
	if (rc == 0)
		rc = copy_out(own, seen, load->remote ? &remote : &span, 0, PATTERN, COPY_AUTO);
	int waited = copier_wait(own);
	return rc < 0 ? rc : waited;
}

static void *work(void *pointer)
{
	struct load *load = pointer;
	struct chunk *chunk = new_chunk(load->device, 2 * MIB);
	char *wanted = malloc(PATTERN), *seen = malloc(PATTERN);
	struct copier *own;

	ck_assert_int_eq(copier_open(backend, &own), 0);
	while (load->copies < COPIES) {
		int rc = round_trip(own, load, chunk, wanted, seen);

		ck_assert(rc == 0 || rc == -EIO);
		if (rc == 0)
			ck_assert_int_eq(memcmp(wanted, seen, PATTERN), 0);
		else
			usleep(WAIT_US);
		load->errors += rc < 0;
		load->copies += rc == 0;
	}
	copier_close(own);
	chunk_free(chunk);
	free(wanted);
	free(seen);
	return NULL;
}

START_TEST(others_go_on)
{
	enum { FAILING, HEALTHY, ACROSS, INSIDE, LOADS };
	struct load loads[LOADS] = {[FAILING] = {.device = 0, .seed = 1},
				    [HEALTHY] = {.device = 1, .seed = 2},
				    [ACROSS] = {.device = 0, .seed = 3},
				    [INSIDE] = {.device = 0, .seed = 4}};
	pthread_t threads[LOADS];

	set("GPUMEM_STANDIN_FAULT", "device0@100=LAUNCH_FAILED~;device0@300=ECC_UNCORRECTABLE~;"
				    "device0@600=HARDWARE_STACK_ERROR~");
	open_resetting(bars[_i]);
	loads[ACROSS].remote = new_chunk(1, 2 * MIB);
	loads[INSIDE].remote = new_chunk(0, 2 * MIB);
	for (unsigned i = 0; i < LOADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &loads[i]), 0);
	for (unsigned i = 0; i < LOADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_ge(atomic_load(&resets), 1);
	ck_assert_uint_eq(atomic_load(&given_up), 0);
	ck_assert_uint_gt(loads[FAILING].errors + loads[ACROSS].errors, 0);
	ck_assert_uint_eq(loads[HEALTHY].errors, 0);
	chunk_free(loads[ACROSS].remote);
	chunk_free(loads[INSIDE].remote);
	close_resetting();
}
END_TEST

static void any_driver(TCase *tcase)
{
	(void)tcase;
}

static void standin(TCase *tcase)
{
	tcase_add_loop_test(tcase, comes_back, 0, sizeof(bars) / sizeof(bars[0]));
	tcase_add_test(tcase, system_memory_comes_back);
	tcase_add_test(tcase, does_not_come_back);
	tcase_add_test(tcase, bad_memory_is_lost);
	tcase_add_test(tcase, descriptors_bring_memory_back);
	tcase_add_test(tcase, memory_for_later_stays);
	tcase_add_test(tcase, failed_imports_are_tried_again);
	tcase_add_test(tcase, windows_come_back);
	tcase_add_test(tcase, windows_are_never_touched_by_the_cpu);
	tcase_add_test(tcase, full_devices_come_back);
	tcase_add_test(tcase, freed_meanwhile);
	tcase_add_test(tcase, peers_are_released_once);
	tcase_add_test(tcase, pools_shun_lost_chunks);
	tcase_add_loop_test(tcase, others_go_on, 0, sizeof(bars) / sizeof(bars[0]));
}

int main(void)
{
	return cuda_main("cuda_reset", any_driver, standin);
}
