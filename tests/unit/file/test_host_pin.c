/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies between host/ and a GPU with registered pages of the file. */
#include "backend/providers.h"
#include "fs/object/host_pin.h"
#include "tests/unit/file_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (6 * MIB)

static struct fixture f;
static unsigned char wanted[SIZE], found[SIZE];
static uint64_t seed;

/* The registered ranges. */
static struct {
	char *base; /* NULL: none */
	size_t bytes;
} pinned[4];
static size_t n_pinned, most_pinned;
static unsigned pins, in_place;

static size_t find(const void *base)
{
	size_t i = 0;

	while (pinned[i].base != base)
		ck_assert_uint_lt(++i, sizeof(pinned) / sizeof(pinned[0]));
	return i;
}

static bool is_pinned(const char *from, size_t bytes)
{
	for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++)
		if (pinned[i].base && from >= pinned[i].base &&
		    from + bytes <= pinned[i].base + pinned[i].bytes)
			return true;
	return false;
}

static int pin(struct device *device, void *base, size_t bytes)
{
	(void)device;
	if (is_pinned(base, bytes))
		return 0;
	size_t i = find(NULL);

	pinned[i].base = base;
	pinned[i].bytes = bytes;
	pins++;
	if (++n_pinned > most_pinned)
		most_pinned = n_pinned;
	return 0;
}

static void unpin(struct device *device, void *base)
{
	(void)device;
	pinned[find(base)].base = NULL;
	n_pinned--;
}

static void count(const void *host, size_t bytes)
{
	in_place += is_pinned(host, bytes);
}

static int counted_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		      size_t bytes)
{
	count(from, bytes);
	return backend_host_ops.dma_in(copier, to, offset, from, bytes);
}

static int counted_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		       size_t bytes)
{
	count(to, bytes);
	return backend_host_ops.dma_out(copier, to, from, offset, bytes);
}

static void setup(void)
{
	fixture_open(&f, 64 * MIB, 16 * MIB);
	f.ops.pin_for_all = pin;
	f.ops.unpin_for_all = unpin;
	f.ops.dma_in = counted_in;
	f.ops.dma_out = counted_out;
	seed = unit_seed();
	pins = in_place = 0;
	most_pinned = 0;
}

static void teardown(void)
{
	fixture_close(&f);
	ck_assert_uint_eq(n_pinned, 0); /* no range stays registered */
}

static struct file *filled(int volume)
{
	struct file *file = fixture_file(&f, volume);

	unit_fill(wanted, SIZE, &seed);
	ck_assert_int_eq(file_write(file, &f.call, wanted, SIZE, 0), (ssize_t)SIZE);
	return file;
}

static void expect(struct file *file)
{
	ck_assert_int_eq(file_read(file, &f.call, found, SIZE, 0), (ssize_t)SIZE);
	ck_assert_int_eq(memcmp(found, wanted, SIZE), 0);
}

static void copy(struct file *from, struct file *to)
{
	ck_assert_int_eq(file_copy(from, 0, to, &f.call, 0, SIZE), (ssize_t)SIZE);
	expect(to);
}

START_TEST(test_pages_are_copied_in_place)
{
	struct file *host = filled(HOST), *device = fixture_file(&f, GPU0);

	copy(host, device);
	ck_assert_uint_gt(in_place, 0);
	in_place = 0;
	/* A process maps the file and stores, without a call to the daemon. */
	unsigned char *map =
	    mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file_object(host, &f.call), 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	for (int i = 0; i < 3; i++) {
		unit_fill(map, SIZE, &seed);
		memcpy(wanted, map, SIZE);
		copy(host, device);
	}
	ck_assert_uint_gt(in_place, 0);
	/* The other direction. */
	in_place = 0;
	unit_fill(wanted, SIZE, &seed);
	ck_assert_int_eq(file_write(device, &f.call, wanted, SIZE, 0), (ssize_t)SIZE);
	copy(device, host);
	ck_assert_int_eq(memcmp(map, wanted, SIZE), 0);
	ck_assert_uint_gt(in_place, 0);
	munmap(map, SIZE);
	file_free(host, &f.call);
	ck_assert_uint_eq(n_pinned, 0);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_pages_that_are_gone_are_not_used)
{
	struct file *host = filled(HOST), *device = fixture_file(&f, GPU0);
	int fd = file_object(host, &f.call);

	copy(host, device);
	ck_assert_uint_eq(pins, 1);
	/* The pages are replaced without a call to the daemon. */
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)SIZE),
			 0);
	ck_assert_int_eq(pwrite(fd, wanted, SIZE, 0), (ssize_t)SIZE);
	copy(host, device);
	ck_assert_uint_eq(pins, 2);
	file_free(host, &f.call);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_memory_is_given_back)
{
	struct file *host = filled(HOST), *device = fixture_file(&f, GPU0);

	copy(host, device);
	ck_assert_uint_eq(n_pinned, 1);
	if (_i == 0)
		ck_assert_int_eq(file_truncate(host, &f.call, MIB), 0);
	else
		ck_assert_int_eq(file_allocate(host, &f.call,
					       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB),
				 0);
	ck_assert_uint_eq(n_pinned, 0);
	file_free(host, &f.call);
	file_free(device, &f.call);
}
END_TEST

/* The least recently used registration makes room. */
START_TEST(test_so_much_and_no_more)
{
	struct volume *volume = &f.volumes[HOST];

	host_windows_free(volume->windows);
	ck_assert_int_eq(host_windows_new(2 * SIZE, &volume->windows), 0);
	struct file *files[3], *device = fixture_file(&f, GPU0);

	for (int i = 0; i < 3; i++) {
		files[i] = filled(HOST);
		copy(files[i], device);
	}
	ck_assert_uint_eq(pins, 3);
	ck_assert_uint_eq(most_pinned, 2);
	ck_assert_int_eq(file_read(files[1], &f.call, wanted, SIZE, 0), (ssize_t)SIZE);
	copy(files[1], device);
	ck_assert_uint_eq(pins, 3);
	ck_assert_int_eq(file_read(files[0], &f.call, wanted, SIZE, 0), (ssize_t)SIZE);
	copy(files[0], device);
	ck_assert_uint_eq(pins, 4);
	ck_assert_uint_eq(most_pinned, 2);
	for (int i = 0; i < 3; i++)
		file_free(files[i], &f.call);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_holes_stay)
{
	struct file *host = fixture_file(&f, HOST), *device = fixture_file(&f, GPU0);

	memset(wanted, 0, SIZE);
	unit_fill(wanted + 4 * MIB, SIZE - 4 * MIB, &seed);
	ck_assert_int_eq(file_write(host, &f.call, wanted + 4 * MIB, SIZE - 4 * MIB, 4 * MIB),
			 (ssize_t)(SIZE - 4 * MIB));
	uint64_t taken = file_allocated(host);

	for (int i = 0; i < 4; i++)
		copy(host, device);
	ck_assert_uint_eq(file_allocated(host), taken);
	file_free(host, &f.call);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_what_cannot_be_pinned_is_copied)
{
	struct file *host = filled(HOST), *device = fixture_file(&f, GPU0);

	f.ops.pin_for_all = NULL;
	copy(host, device);
	ck_assert_uint_eq(in_place, 0);
	file_free(host, &f.call);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_moves)
{
	struct file *file = filled(_i ? GPU0 : HOST);
	struct file_move *move;

	ck_assert_int_eq(file_move_begin(file, &f.call, &f.volumes[_i ? HOST : GPU0], &move), 0);
	file_move_end(move, FILE_MOVE_COMMIT);
	file_move_free(move);
	ck_assert_uint_eq(n_pinned, 0);
	expect(file);
	file_free(file, &f.call);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("host_pin", &tcase, 60);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_pages_are_copied_in_place);
	tcase_add_test(tcase, test_pages_that_are_gone_are_not_used);
	tcase_add_loop_test(tcase, test_memory_is_given_back, 0, 2);
	tcase_add_test(tcase, test_so_much_and_no_more);
	tcase_add_test(tcase, test_holes_stay);
	tcase_add_test(tcase, test_what_cannot_be_pinned_is_copied);
	tcase_add_loop_test(tcase, test_moves, 0, 2);
	return unit_main(suite);
}
