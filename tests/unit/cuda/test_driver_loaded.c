/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Whether a program has loaded a driver: the answer changes when the program loads the driver. */
#include "common/driver_library.h"

#include <dlfcn.h>

#include "tests/unit/unit.h"

#define LIBRARY "libgdrapi.so.2" /* the stand-in's */

START_TEST(loading_is_noticed)
{
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!driver_is_loaded(LIBRARY));
	ck_assert_ptr_nonnull(dlopen(LIBRARY, RTLD_NOW));
	ck_assert(driver_is_loaded(LIBRARY));
}
END_TEST

START_TEST(many_names_are_told_apart)
{
	static char names[40][32];

	for (unsigned i = 0; i < 40; i++) {
		snprintf(names[i], sizeof(names[i]), "libmissing.so.%u", i);
		ck_assert(!driver_is_loaded(names[i]));
	}
	ck_assert_ptr_nonnull(dlopen(LIBRARY, RTLD_NOW));
	ck_assert(driver_is_loaded(LIBRARY));
	for (unsigned i = 0; i < 40; i++)
		ck_assert(!driver_is_loaded(names[i]));
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("driver_loaded", &tests, 60);

	tcase_add_test(tests, loading_is_noticed);
	tcase_add_test(tests, many_names_are_told_apart);
	return unit_main(suite);
}
