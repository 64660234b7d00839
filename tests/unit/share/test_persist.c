/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases in the memory that outlives a daemon. region_open below replaces the keeper's. */
#include "fs/share/persist.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "fs/keeper/region.h"
#include "tests/unit/unit.h"

#define NUMBER	  0x1234567812345678ULL
#define OLD	  3 /* the version with wall-clock times */
#define AGE	  100
#define TOLERATED 20 /* seconds that may pass during the test */

static int region_fd = -1;
static size_t region_bytes;

int region_open(struct fdstore *fdstore, uint64_t id, const struct region_kind *kind, void **region)
{
	struct region_head head = kind->head;

	(void)fdstore;
	(void)id;
	if (region_fd < 0) {
		region_fd = memfd_create("region", MFD_CLOEXEC);
		region_bytes = kind->bytes;
		ck_assert_int_eq(ftruncate(region_fd, (off_t)region_bytes), 0);
		ck_assert_int_eq(pwrite(region_fd, &head, sizeof(head), 0), sizeof(head));
	}
	ck_assert_int_eq(pread(region_fd, &head, sizeof(head), 0), sizeof(head));
	if (memcmp(&head, &kind->head, sizeof(head)) != 0)
		return -EPROTO;
	*region = mmap(NULL, kind->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
	return *region == MAP_FAILED ? -errno : 0;
}

static struct persist *opened(void)
{
	struct persist *persist;
	char keeper; /* only its address counts */

	ck_assert_int_eq(persist_open((struct fdstore *)&keeper, &persist), 0);
	return persist;
}

/* The lease with that number in the memory, which the caller unmaps. */
static struct persist_lease *stored(char **memory)
{
	const uint64_t number = NUMBER;

	*memory = mmap(NULL, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
	ck_assert_ptr_ne(*memory, MAP_FAILED);
	struct persist_lease *found = memmem(*memory, region_bytes, &number, sizeof(number));

	ck_assert_ptr_nonnull(found);
	return found;
}

/* As a daemon of the old version leaves the memory. */
static void make_old(int64_t age)
{
	char *memory;
	struct persist_lease *lease = stored(&memory);
	struct region_head *head = (void *)memory;

	lease->since = clock_epoch_seconds(clock_ns()) - age;
	head->version = OLD;
	munmap(memory, region_bytes);
}

static int64_t age_ns(void)
{
	char *memory;
	int64_t since = stored(&memory)->since;

	munmap(memory, region_bytes);
	return clock_ns() - since;
}

static void expect_age(int64_t age)
{
	ck_assert_int_ge(age_ns(), (age - 1) * CLOCK_SECOND);
	ck_assert_int_le(age_ns(), (age + TOLERATED) * CLOCK_SECOND);
}

START_TEST(leases_of_the_old_version_keep_their_age)
{
	struct persist *persist = opened();

	persist_lease_add(persist, &(struct persist_lease){.number = NUMBER, .since = clock_ns()});
	persist_close(persist);
	make_old(AGE);
	for (unsigned i = 0; i < 2; i++) {
		persist = opened();
		persist_raise(persist);
		persist_close(persist);
		expect_age(AGE);
	}
	close(region_fd);
}
END_TEST

static uint32_t version(void)
{
	char *memory;

	stored(&memory);
	uint32_t found = ((struct region_head *)memory)->version;

	munmap(memory, region_bytes);
	return found;
}

START_TEST(earlier_program_can_go_on)
{
	struct persist *persist = opened();

	persist_lease_add(persist, &(struct persist_lease){.number = NUMBER, .since = clock_ns()});
	persist_close(persist);
	make_old(AGE);
	persist = opened();
	ck_assert_uint_eq(version(), OLD);
	persist_raise(persist);
	ck_assert_uint_ne(version(), OLD);
	persist_close(persist);
	close(region_fd);
}
END_TEST

START_TEST(leases_from_before_the_clock_was_set_back_begin_now)
{
	struct persist *persist = opened();

	persist_lease_add(persist, &(struct persist_lease){.number = NUMBER, .since = clock_ns()});
	persist_close(persist);
	make_old(-AGE);
	persist = opened();
	persist_raise(persist);
	persist_close(persist);
	expect_age(0);
	close(region_fd);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("leases that outlive a daemon", &tests, 60);

	tcase_add_test(tests, leases_of_the_old_version_keep_their_age);
	tcase_add_test(tests, earlier_program_can_go_on);
	tcase_add_test(tests, leases_from_before_the_clock_was_set_back_begin_now);
	return unit_main(suite);
}
