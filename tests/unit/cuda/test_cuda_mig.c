/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider on a GPU that is divided into MIG instances, which only the stand-in has. */
#include "backend/cuda/provider.h"
#include "tests/unit/cuda_fixture.h"

#define UUID(last) "MIG-57a2d19c-6e40-4b13-9f08-3d71c5e200" last

static void expect_labels(const char *const *labels, unsigned n)
{
	ck_assert_uint_eq(backend->n_devices, n);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_str_eq(backend->devices[i]->label, labels[i]);
		ck_assert_uint_eq(backend->devices[i]->slot, i);
		ck_assert_uint_eq(backend->devices[i]->index, 0);
	}
}

static void expect_instances(void)
{
	static const char *const all[] = {"gpu0.mig0", "gpu0.mig1", "gpu0.mig2"};
	static const char *const uuids[] = {UUID("41"), UUID("42"), UUID("43")};
	struct device_memory memory;

	set("GPUMEM_STANDIN_MIG", "3");
	set("GPUMEM_STANDIN_MEMORY", "96M");
	open_plain();
	expect_labels(all, 3);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_str_eq(backend->devices[i]->uuid, uuids[i]);
		ck_assert_str_eq(backend->devices[i]->name, "Stand-in GPU 0 MIG 1g.32mb");
		ck_assert_int_eq(device_memory(backend->devices[i], &memory), 0);
		ck_assert_uint_eq(memory.total, 32 * MIB);
	}
	/* An instance's memory is its own. */
	struct chunk *chunk = new_chunk(1, 16 * MIB);

	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(device_memory(backend->devices[i], &memory), 0);
		ck_assert_uint_eq(memory.free, i == 1 ? 16 * MIB : 32 * MIB);
	}
	chunk_free(chunk);
	close_all();
}

START_TEST(instances_are_devices)
{
	expect_instances();
}
END_TEST

START_TEST(instances_without_nvml)
{
	set("GPUMEM_STANDIN_NVML", "0");
	expect_instances();
}
END_TEST

/* The names belong to the UUIDs, whatever CUDA shows and in which order. */
START_TEST(names_are_of_the_uuids)
{
	static const char *const shown[] = {"gpu0.mig0", "gpu0.mig2"};

	set("GPUMEM_STANDIN_MIG", "3");
	set("CUDA_VISIBLE_DEVICES", UUID("43") "," UUID("41"));
	open_plain();
	expect_labels(shown, 2);
	ck_assert_str_eq(backend->devices[0]->uuid, UUID("41"));
	ck_assert_str_eq(backend->devices[1]->uuid, UUID("43"));
	close_all();
}
END_TEST

START_TEST(gpus_names_instances)
{
	static const char *const one[] = {"gpu0.mig1"}, *const two[] = {"gpu0.mig0", "gpu0.mig2"};

	set("GPUMEM_STANDIN_MIG", "3");
	open_with(BAR_AUTO, "gpu0.mig1");
	expect_labels(one, 1);
	close_all();
	open_with(BAR_AUTO, UUID("43") ",gpu0.mig0");
	expect_labels(two, 2);
	close_all();
	open_with(BAR_AUTO, "0");
	ck_assert_uint_eq(backend->n_devices, 3);
	close_all();
	ck_assert_int_eq(try_open(BAR_AUTO, "gpu0.mig3"), -ENODEV);
	ck_assert_int_eq(try_open(BAR_AUTO, "1"), -ENODEV);
}
END_TEST

/* Instances do not reach each other's memory: the bytes go through the host. */
START_TEST(copies_arrive_in_another_instance)
{
	static uint8_t bytes[4 * MIB];

	set("GPUMEM_STANDIN_MIG", "2");
	open_plain();
	struct chunk *from = new_chunk(0, sizeof(bytes)), *to = new_chunk(1, sizeof(bytes));
	struct span source = whole(from), target = whole(to);

	ck_assert(!cuda_device(from->device)->peer[1]);
	unit_fill(bytes, sizeof(bytes), &seed);
	put(from, 0, bytes, sizeof(bytes));
	ck_assert_int_eq(copy_across(copier, &target, 0, &source, 0, sizeof(bytes)), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	expect_bytes(to, 0, bytes, sizeof(bytes));
	chunk_free(from);
	chunk_free(to);
	close_all();
}
END_TEST

static void any_driver(TCase *tcase)
{
	(void)tcase;
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, instances_are_devices);
	tcase_add_test(tcase, instances_without_nvml);
	tcase_add_test(tcase, names_are_of_the_uuids);
	tcase_add_test(tcase, gpus_names_instances);
	tcase_add_test(tcase, copies_arrive_in_another_instance);
}

int main(void)
{
	return cuda_main("cuda_mig", any_driver, standin);
}
