/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider's BAR mappings: every way to a mapping, and ways that show the wrong memory. */
#include "backend/bar_cache.h"
#include "backend/stream/stream.h"
#include "tests/unit/cuda_fixture.h"

/* DMA sees stores through the mapping, and loads see DMA. */
static void expect_true_mapping(struct chunk *chunk, char *mapping)
{
	unsigned char out[300], pattern[300];

	unit_fill(pattern, sizeof(pattern), &seed);
	stream_store(mapping + 4 * MIB - 300, pattern, sizeof(pattern));
	stream_fence();
	expect_bytes(chunk, 4 * MIB - 300, pattern, sizeof(pattern));
	unit_fill(pattern, sizeof(pattern), &seed);
	put(chunk, 17, pattern, sizeof(pattern));
	stream_load(out, mapping + 17, sizeof(out));
	ck_assert_mem_eq(out, pattern, sizeof(pattern));
}

/* name: the expected way; NULL: any way, or no mapping. */
static void expect_bar(const char *name)
{
	brlock_token token;
	const char *why;

	open_plain();
	ck_assert_str_eq(device_bar_name(backend->devices[0], &why), "auto");
	ck_assert_str_eq(why, "not probed yet");
	struct chunk *chunk = new_chunk(0, 4 * MIB);
	char *mapping = bar_acquire(chunk, BAR_WANT_FORCE, &token);
	const char *way = device_bar_name(backend->devices[0], &why);
	if (name)
		ck_assert_str_eq(way, name);
	if (!name)
		printf("cuda_bar: BAR mappings here: %s\n", why ? why : way);
	ck_assert_int_eq(!mapping, strcmp(way, "none") == 0);
	ck_assert_int_eq(!mapping, why != NULL);
	if (mapping) {
		expect_true_mapping(chunk, mapping);
		bar_release(chunk, token);
	}
	chunk_free(chunk);
	close_all();
}

START_TEST(bar_as_it_comes)
{
	expect_bar(NULL);
}
END_TEST

START_TEST(bar_through_dmabuf)
{
	set("GPUMEM_STANDIN_DMABUF", "1");
	expect_bar("dmabuf");
}
END_TEST

START_TEST(bar_through_gdrcopy)
{
	set("GPUMEM_STANDIN_GDR", "1");
	expect_bar("gdrcopy");
}
END_TEST

START_TEST(bar_through_vulkan)
{
	expect_bar("vulkan");
}
END_TEST

/* The provider detects a way that shows memory other than the chunk's, and tries the next way. */
START_TEST(bar_lies)
{
	set("GPUMEM_STANDIN_DMABUF", "lie");
	set("GPUMEM_STANDIN_GDR", "lie");
	expect_bar("vulkan");
}
END_TEST

START_TEST(bar_dmabuf_that_cannot_be_mapped)
{
	set("GPUMEM_STANDIN_DMABUF", "nommap");
	expect_bar("vulkan");
}
END_TEST

static void expect_no_bar(enum bar_provider bar, const char *reason)
{
	char pattern[64];
	const char *why;
	brlock_token token;

	open_with(bar, NULL);
	struct chunk *chunk = new_chunk(0, CHUNK_ALIGN);
	ck_assert_ptr_null(bar_acquire(chunk, BAR_WANT_FORCE, &token));
	ck_assert_str_eq(device_bar_name(backend->devices[0], &why), "none");
	ck_assert_msg(strncmp(why, reason, strlen(reason)) == 0, "%s, not %s", why, reason);
	/* Without BAR mappings all bytes move by DMA. */
	struct span span = whole(chunk);
	unit_fill(pattern, sizeof(pattern), &seed);
	ck_assert_int_eq(copy_in(copier, &span, 5, pattern, sizeof(pattern), COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(chunk, 5, pattern, sizeof(pattern));
	chunk_free(chunk);
	close_all();
}

START_TEST(bar_nothing_but_lies)
{
	set("GPUMEM_STANDIN_DMABUF", "lie");
	set("GPUMEM_STANDIN_GDR", "lie");
	set("GPUMEM_STANDIN_VULKAN", "lie");
	expect_no_bar(BAR_AUTO, "neither");
}
END_TEST

START_TEST(bar_forced_and_missing)
{
	set("GPUMEM_STANDIN_VULKAN", "0");
	expect_no_bar(BAR_VULKAN, "libvulkan.so.1 finds no driver");
}
END_TEST

START_TEST(bar_off)
{
	expect_no_bar(BAR_OFF, "turned off");
}
END_TEST

/* The BAR holds two of the three chunks: accesses to all three succeed in turn. */
START_TEST(bar_smaller_than_memory)
{
	struct chunk *chunks[3];
	brlock_token token;

	set("GPUMEM_STANDIN_BAR", "4M");
	open_plain();
	for (unsigned i = 0; i < 3; i++)
		chunks[i] = new_chunk(0, CHUNK_ALIGN);
	for (unsigned i = 0; i < 9; i++) {
		struct chunk *chunk = chunks[i % 3];
		char *mapping = bar_acquire(chunk, BAR_WANT_FORCE, &token);
		ck_assert_ptr_nonnull(mapping);
		stream_store(mapping + 100, &i, sizeof(i));
		stream_fence();
		bar_release(chunk, token);
		expect_bytes(chunk, 100, &i, sizeof(i));
	}
	ck_assert_uint_ge(bar_usage(backend->devices[0]).evictions, 1);
	for (unsigned i = 0; i < 3; i++)
		chunk_free(chunks[i]);
	close_all();
}
END_TEST

START_TEST(device_fails_with_mappings)
{
	struct chunk *chunks[2];
	brlock_token token;
	unsigned char byte;

	open_plain();
	for (unsigned i = 0; i < 2; i++) {
		chunks[i] = new_chunk(i, CHUNK_ALIGN);
		ck_assert_ptr_nonnull(bar_acquire(chunks[i], BAR_WANT_FORCE, &token));
		bar_release(chunks[i], token);
	}
	device_fail(backend->devices[0], "a test says so");
	struct span span = whole(chunks[0]);
	ck_assert_int_eq(copy_out(copier, &byte, &span, 0, 1, COPY_DMA), -EIO);
	expect_alive(1);
	chunk_free(chunks[0]);
	chunk_free(chunks[1]);
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	tcase_add_test(tcase, bar_as_it_comes);
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, bar_through_dmabuf);
	tcase_add_test(tcase, bar_through_gdrcopy);
	tcase_add_test(tcase, bar_through_vulkan);
	tcase_add_test(tcase, bar_lies);
	tcase_add_test(tcase, bar_dmabuf_that_cannot_be_mapped);
	tcase_add_test(tcase, bar_nothing_but_lies);
	tcase_add_test(tcase, bar_forced_and_missing);
	tcase_add_test(tcase, bar_off);
	tcase_add_test(tcase, bar_smaller_than_memory);
	tcase_add_test(tcase, device_fails_with_mappings);
}

int main(void)
{
	return cuda_main("cuda_bar", any_driver, standin);
}
