/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies of the Vulkan provider, and the loss of a device. */
#include <pthread.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "tests/unit/vulkan_fixture.h"

#define CHUNK (8 * MIB)
/* Longer than both staging slots, and no multiple of a word. */
#define LONG_BYTES (3 * STAGE_BYTES + 12345)

static char *pattern_new(size_t bytes)
{
	char *pattern = malloc(bytes);

	ck_assert_ptr_nonnull(pattern);
	unit_fill(pattern, bytes, &seed);
	return pattern;
}

START_TEST(staged)
{
	open_plain();
	static const struct {
		uint64_t offset;
		size_t bytes;
	} cases[] = {{0, 1}, {1, 3}, {4095, 4098}, {77, STAGE_BYTES}, {5, LONG_BYTES}, {0, CHUNK}};
	struct chunk *chunk = new_chunk(CHUNK);

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *pattern = pattern_new(cases[i].bytes);

		put(chunk, cases[i].offset, pattern, cases[i].bytes);
		expect_bytes(chunk, cases[i].offset, pattern, cases[i].bytes);
		free(pattern);
	}
	chunk_free(chunk);
	close_all();
}
END_TEST

static char *memory_map(size_t bytes)
{
	char *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* Registered memory, also such as begins and ends within a page. */
START_TEST(pinned)
{
	open_plain();
	struct chunk *chunk = new_chunk(CHUNK);
	struct span span = whole(chunk);
	char *memory = memory_map(2 * MIB);

	for (unsigned skew = 0; skew <= 100; skew += 100) {
		char *base = memory + skew;
		size_t bytes = 2 * MIB - 2 * skew;

		unit_fill(base, bytes, &seed);
		ck_assert_int_eq(copier_pin(copier, base, bytes), 0);
		ck_assert_int_eq(copy_in(copier, &span, 9, base + 1, bytes - 1, COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		expect_bytes(chunk, 9, base + 1, bytes - 1);
		char *wanted = malloc(bytes - 1);

		ck_assert_ptr_nonnull(wanted);
		memcpy(wanted, base + 1, bytes - 1);
		memset(base, 0, bytes);
		ck_assert_int_eq(copy_out(copier, base, &span, 9, bytes - 1, COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_mem_eq(base, wanted, bytes - 1);
		free(wanted);
		copier_unpin(copier, base);
	}
	munmap(memory, 2 * MIB);
	chunk_free(chunk);
	close_all();
}
END_TEST

START_TEST(zeroed)
{
	open_plain();
	struct chunk *chunk = new_chunk(CHUNK);
	struct span span = whole(chunk);
	char *pattern = pattern_new(64);

	for (uint64_t at = 0; at < 9; at++) {
		for (uint64_t bytes = 1; bytes < 20; bytes++) {
			char wanted[64];

			put(chunk, 0, pattern, 64);
			memcpy(wanted, pattern, 64);
			memset(wanted + at, 0, bytes);
			ck_assert_int_eq(copy_zero(copier, &span, at, bytes), 0);
			ck_assert_int_eq(copier_wait(copier), 0);
			expect_bytes(chunk, 0, wanted, 64);
		}
	}
	free(pattern);
	chunk_free(chunk);
	close_all();
}
END_TEST

START_TEST(across)
{
	open_plain();
	struct chunk *from = new_chunk(CHUNK), *to = new_chunk(CHUNK);
	struct span from_span = whole(from), to_span = whole(to);
	char *pattern = pattern_new(LONG_BYTES);

	put(from, 1, pattern, LONG_BYTES);
	/* More copies than a stream has command buffers. */
	size_t done = 0, step = LONG_BYTES / (3 * STREAM_DEPTH);
	while (done < LONG_BYTES) {
		size_t now = LONG_BYTES - done < step ? LONG_BYTES - done : step;

		ck_assert_int_eq(
		    copy_across(copier, &to_span, 10 + done, &from_span, 1 + done, now), 0);
		done += now;
	}
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(to, 10, pattern, LONG_BYTES);
	free(pattern);
	chunk_free(from);
	chunk_free(to);
	close_all();
}
END_TEST

static unsigned dispatches;
static PFN_vkCmdDispatch dispatch_kernel;

static VKAPI_ATTR void VKAPI_CALL dispatch_count(VkCommandBuffer commands, uint32_t x, uint32_t y,
						 uint32_t z)
{
	dispatches++;
	dispatch_kernel(commands, x, y, z);
}

/* Large copies inside a GPU are a kernel's, down to the bytes that the kernel cannot copy; copies
 * at other addresses are the copy engines'. */
START_TEST(across_by_kernel)
{
	static const struct {
		uint64_t to, from, bytes;
		unsigned dispatches;
	} copies[] = {
	    {0, 0, 8 * MIB, 1}, {16, 4096, 5 * MIB, 1}, {64, 32, 4 * MIB + 16 * 1024 + 5, 1},
	    {1, 0, 5 * MIB, 0}, {0, 8, 5 * MIB, 0},	{32, 16, MIB - 16, 0},
	};

	open_plain();
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	struct chunk *from = new_chunk(8 * MIB), *to = new_chunk(8 * MIB);
	struct span from_span = whole(from), to_span = whole(to);
	char *wanted = pattern_new(8 * MIB), *target = calloc(1, 8 * MIB);

	dispatch_kernel = device->vk.vkCmdDispatch;
	device->vk.vkCmdDispatch = dispatch_count;
	put(from, 0, wanted, 8 * MIB);
	put(to, 0, target, 8 * MIB);
	for (unsigned i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
		dispatches = 0;
		ck_assert_int_eq(copy_across(copier, &to_span, copies[i].to, &from_span,
					     copies[i].from, copies[i].bytes),
				 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		memcpy(target + copies[i].to, wanted + copies[i].from, copies[i].bytes);
		expect_bytes(to, 0, target, 8 * MIB);
		ck_assert_uint_eq(dispatches, device->can.kernel ? copies[i].dispatches : 0);
	}
	free(wanted);
	free(target);
	chunk_free(from);
	chunk_free(to);
	close_all();
}
END_TEST

static VKAPI_ATTR VkResult VKAPI_CALL no_pipelines(VkDevice device, VkPipelineCache cache,
						   uint32_t n,
						   const VkComputePipelineCreateInfo *info,
						   const VkAllocationCallbacks *callbacks,
						   VkPipeline *pipelines)
{
	(void)device;
	(void)cache;
	(void)n;
	(void)info;
	(void)callbacks;
	(void)pipelines;
	return VK_ERROR_INITIALIZATION_FAILED;
}

/* A driver that makes no pipeline: the copy engines copy. */
START_TEST(across_without_a_pipeline)
{
	open_plain();
	struct chunk *from = new_chunk(8 * MIB), *to = new_chunk(8 * MIB);
	struct span from_span = whole(from), to_span = whole(to);
	char *wanted = pattern_new(8 * MIB);

	vulkan_device(backend->devices[0])->vk.vkCreateComputePipelines = no_pipelines;
	put(from, 0, wanted, 8 * MIB);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(copy_across(copier, &to_span, 0, &from_span, 0, 8 * MIB), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(to, 0, wanted, 8 * MIB);
	free(wanted);
	chunk_free(from);
	chunk_free(to);
	close_all();
}
END_TEST

/* As between two devices: through the staging memory of both. */
START_TEST(across_devices)
{
	open_plain();
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	struct chunk *from = new_chunk(CHUNK), *to = new_chunk(CHUNK);
	struct copier *other;
	struct vulkan_stream *to_stream, *from_stream;
	char *pattern = pattern_new(LONG_BYTES);

	put(from, 1, pattern, LONG_BYTES);
	ck_assert_int_eq(copier_open(backend, &other), 0);
	ck_assert_int_eq(vulkan_stream_use(vulkan_copier(copier), device, STREAM_LINK, &to_stream),
			 0);
	ck_assert_int_eq(vulkan_stream_use(vulkan_copier(other), device, STREAM_LINK, &from_stream),
			 0);
	struct place source = {vulkan_chunk(from)->buffer.buffer, 1, 0, true};
	struct place target = {vulkan_chunk(to)->buffer.buffer, 10, 0, true};

	ck_assert_int_eq(vulkan_stage_across(to_stream, target, from_stream, source, LONG_BYTES),
			 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(to, 10, pattern, LONG_BYTES);
	free(pattern);
	copier_close(other);
	chunk_free(from);
	chunk_free(to);
	close_all();
}
END_TEST

/* Copies of a batch that touch the same bytes happen in their order. */
START_TEST(ordered)
{
	open_plain();
	struct chunk *chunk = new_chunk(CHUNK);
	struct span span = whole(chunk);
	char *memory = memory_map(MIB);
	char last[4096];

	ck_assert_int_eq(copier_pin(copier, memory, MIB), 0);
	for (unsigned i = 0; i < 3 * STREAM_DEPTH; i++) {
		memset(memory + i * 4096, (int)i + 1, 4096);
		ck_assert_int_eq(copy_zero(copier, &span, 0, 4096), 0);
		ck_assert_int_eq(copy_in(copier, &span, 0, memory + i * 4096, 4096, COPY_DMA), 0);
	}
	ck_assert_int_eq(copy_out(copier, memory, &span, 0, 4096, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	memset(last, 3 * STREAM_DEPTH, sizeof(last));
	ck_assert_mem_eq(memory, last, sizeof(last));
	copier_unpin(copier, memory);
	munmap(memory, MIB);
	chunk_free(chunk);
	close_all();
}
END_TEST

static unsigned waits;
static PFN_vkQueueSubmit submit_queue;

static VKAPI_ATTR VkResult VKAPI_CALL submit_count(VkQueue queue, uint32_t n,
						   const VkSubmitInfo *infos, VkFence fence)
{
	for (uint32_t i = 0; i < n; i++)
		waits += infos[i].waitSemaphoreCount;
	return submit_queue(queue, n, infos, fence);
}

/* Copies inside the device may be on another queue: they wait for the copies with the host before
 * them, and the reverse, but not for copies that are complete. */
START_TEST(ordered_across_queues)
{
	open_plain();
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	struct chunk *chunk = new_chunk(CHUNK);
	struct span span = whole(chunk);
	char *memory = memory_map(2 * MIB);
	unsigned each = vulkan_has_inside_queue(device) ? 1 : 0;

	waits = 0;
	submit_queue = device->vk.vkQueueSubmit;
	device->vk.vkQueueSubmit = submit_count;
	ck_assert_int_eq(copier_pin(copier, memory, 2 * MIB), 0);
	for (unsigned i = 1; i <= 3; i++) {
		memset(memory, (int)i, MIB);
		ck_assert_int_eq(copy_in(copier, &span, 0, memory, MIB, COPY_DMA), 0);
		ck_assert_uint_eq(waits, 2 * (i - 1) * each);
		ck_assert_int_eq(copy_across(copier, &span, 4 * MIB, &span, 0, MIB), 0);
		ck_assert_int_eq(copy_out(copier, memory + MIB, &span, 4 * MIB, MIB, COPY_DMA), 0);
		ck_assert_uint_eq(waits, 2 * i * each);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_mem_eq(memory, memory + MIB, MIB);
	}
	copier_unpin(copier, memory);
	munmap(memory, 2 * MIB);
	chunk_free(chunk);
	close_all();
}
END_TEST

static void *copy_much(void *of)
{
	struct chunk *chunk = of;
	struct span span = whole(chunk);
	struct copier *own;
	char bytes[3000], seen[3000];
	int failures = copier_open(backend, &own) < 0;

	for (int i = 0; i < 50 && !failures; i++) {
		memset(bytes, i + 1, sizeof(bytes));
		failures += copy_in(own, &span, 11, bytes, sizeof(bytes), COPY_DMA) < 0;
		failures += copier_wait(own) < 0;
		failures += copy_out(own, seen, &span, 11, sizeof(seen), COPY_DMA) < 0;
		failures += copier_wait(own) < 0;
		failures += memcmp(bytes, seen, sizeof(seen)) != 0;
	}
	copier_close(own);
	return failures ? of : NULL;
}

START_TEST(threads)
{
	pthread_t ids[4];
	struct chunk *chunks[4];
	void *failed;

	open_plain();
	for (int i = 0; i < 4; i++) {
		chunks[i] = new_chunk(2 * MIB);
		ck_assert_int_eq(pthread_create(&ids[i], NULL, copy_much, chunks[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(ids[i], &failed);
		ck_assert_ptr_null(failed);
		chunk_free(chunks[i]);
	}
	close_all();
}
END_TEST

static VKAPI_ATTR VkResult VKAPI_CALL submit_lost(VkQueue queue, uint32_t count,
						  const VkSubmitInfo *info, VkFence fence)
{
	(void)queue;
	(void)count;
	(void)info;
	(void)fence;
	return VK_ERROR_DEVICE_LOST;
}

static void device_lose(void)
{
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	char byte = 1;
	struct chunk *chunk = new_chunk(2 * MIB);
	struct span span = whole(chunk);

	device->vk.vkQueueSubmit = submit_lost;
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_DMA), -EIO);
	ck_assert(atomic_load(&device->base.failed));
	chunk_free(chunk);
}

/* Without a reset, every operation fails, and closing still works. */
START_TEST(lost)
{
	char byte;

	open_plain();
	struct device *device = backend->devices[0];
	struct chunk *chunk = new_chunk(CHUNK), *more;
	struct span span = whole(chunk);
	int fd;

	device_lose();
	ck_assert_int_eq(copy_out(copier, &byte, &span, 0, 1, COPY_DMA), -EIO);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &more), -EIO);
	ck_assert_int_eq(chunk_export(chunk, &fd), -EIO);
	chunk_free(chunk);
	close_all();
}
END_TEST

/* An idle device has no VkDevice until the next chunk, whose copies work as before. */
START_TEST(idle)
{
	char bytes[4096];

	open_plain();
	struct device *device = backend->devices[0];
	char *memory = memory_map(MIB);

	memset(bytes, 3, sizeof(bytes));
	ck_assert_int_eq(copier_pin(copier, memory, MIB), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct chunk *chunk = new_chunk(CHUNK);
		struct span span = whole(chunk);

		memcpy(memory, bytes, sizeof(bytes));
		ck_assert_int_eq(copy_in(copier, &span, 0, memory, sizeof(bytes), COPY_DMA), 0);
		ck_assert_int_eq(copy_across(copier, &span, 4 * MIB, &span, 0, 4 * MIB), 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		expect_bytes(chunk, 4 * MIB, bytes, sizeof(bytes));
		ck_assert_int_eq(device_idle_release(device), -EBUSY);
		expect_bytes(chunk, 0, bytes, sizeof(bytes));
		chunk_free(chunk);
		ck_assert_int_eq(device_idle_release(device), 0);
		ck_assert(vulkan_device(device)->handle == VK_NULL_HANDLE);
		ck_assert_uint_eq(atomic_load(&vulkan_device(device)->allocations), 0);
		ck_assert_int_eq(device_idle_release(device), 0);
	}
	ck_assert_int_eq(copier_wait(copier), 0);
	copier_unpin(copier, memory);
	munmap(memory, MIB);
	close_all();
}
END_TEST

static void *come_and_go(void *of)
{
	struct copier *own;
	char byte = 7, seen = 0;

	(void)of;
	ck_assert_int_eq(copier_open(backend, &own), 0);
	for (unsigned i = 0; i < 50; i++) {
		struct chunk *chunk = new_chunk(CHUNK_ALIGN);
		struct span span = whole(chunk);

		ck_assert_int_eq(copy_in(own, &span, i, &byte, 1, COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(own), 0);
		ck_assert_int_eq(copy_out(own, &seen, &span, i, 1, COPY_DMA), 0);
		ck_assert_int_eq(copier_wait(own), 0);
		ck_assert_int_eq(seen, byte);
		chunk_free(chunk);
	}
	copier_close(own);
	return NULL;
}

/* Threads use the device while another releases it. */
START_TEST(idle_beside_threads)
{
	pthread_t threads[4];

	open_plain();
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, come_and_go, NULL);
	for (unsigned i = 0; i < 200; i++) {
		int rc = device_idle_release(backend->devices[0]);

		ck_assert(rc == 0 || rc == -EBUSY);
		usleep(500);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(device_idle_release(backend->devices[0]), 0);
	close_all();
}
END_TEST

static atomic_int resets;

static void reset_count(void *of, struct device *device, int64_t ms)
{
	(void)of;
	(void)device;
	(void)ms;
	atomic_fetch_add(&resets, 1);
}

static void reset_wait(int count)
{
	UNIT_AWAIT(atomic_load(&resets) >= count);
	ck_assert_int_eq(atomic_load(&resets), count);
}

/* A new VkDevice takes over the memory of the old: chunks made, imported, mapped and pinned for. */
START_TEST(reset)
{
	struct reset_watch watch = {.reset = reset_count};
	char *memory = memory_map(MIB);

	open_plain();
	ck_assert_int_eq(reset_start(backend, &watch), 0);
	struct chunk *chunk = new_chunk(CHUNK);
	char *pattern = pattern_new(LONG_BYTES), byte = 5;
	struct span span = whole(chunk);

	put(chunk, 1, pattern, LONG_BYTES);
	ck_assert_int_eq(copy_in(copier, &span, 0, &byte, 1, COPY_BAR), 0);
	ck_assert_int_eq(copier_pin(copier, memory, MIB), 0);
	for (int i = 1; i <= 2; i++) {
		put(chunk, CHUNK - MIB, memory, MIB);
		device_lose();
		reset_wait(i);
		ck_assert(!atomic_load(&chunk->lost));
		expect_bytes(chunk, 0, &byte, 1);
		expect_bytes(chunk, 1, pattern, LONG_BYTES);
		expect_bytes(chunk, CHUNK - MIB, memory, MIB);
	}
	free(pattern);
	copier_unpin(copier, memory);
	munmap(memory, MIB);
	chunk_free(chunk);
	close_all();
}
END_TEST

/* Memory that the driver does not give back is lost, and only that. */
START_TEST(reset_without_a_chunk)
{
	struct reset_watch watch = {.reset = reset_count};
	char byte = 7;

	open_plain();
	struct chunk *gone = new_chunk(2 * MIB), *kept = new_chunk(2 * MIB);
	struct span span = whole(gone);

	put(kept, 0, &byte, 1);
	vulkan_chunk(gone)->fd = memfd_create("nothing", MFD_CLOEXEC);
	ck_assert_int_eq(reset_start(backend, &watch), 0);
	device_lose();
	reset_wait(1);
	ck_assert(atomic_load(&gone->lost));
	ck_assert_int_eq(copy_out(copier, &byte, &span, 0, 1, COPY_DMA), -EIO);
	expect_bytes(kept, 0, &byte, 1);
	chunk_free(gone);
	chunk_free(kept);
	close_all();
}
END_TEST

static void tests(TCase *tcase)
{
	tcase_add_test(tcase, staged);
	tcase_add_test(tcase, pinned);
	tcase_add_test(tcase, zeroed);
	tcase_add_test(tcase, across);
	tcase_add_test(tcase, across_by_kernel);
	tcase_add_test(tcase, across_without_a_pipeline);
	tcase_add_test(tcase, across_devices);
	tcase_add_test(tcase, ordered);
	tcase_add_test(tcase, ordered_across_queues);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, idle);
	tcase_add_test(tcase, idle_beside_threads);
	tcase_add_test(tcase, lost);
	tcase_add_test(tcase, reset);
	tcase_add_test(tcase, reset_without_a_chunk);
}

int main(int argc, char **argv)
{
	(void)argc;
	return vulkan_main("vulkan_copy", argv, tests);
}
