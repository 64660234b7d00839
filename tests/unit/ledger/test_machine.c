/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The memory limits of control groups, of both versions, read from a copy of their trees. */
#include "fs/ledger/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/unit/unit.h"

static char root[] = "/tmp/gpumemfs-machine-XXXXXX";
static char groups[64];

static void up(void)
{
	snprintf(root, sizeof(root), "/tmp/gpumemfs-machine-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(groups, sizeof(groups), "%s/groups", root);
}

static void down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

static void put(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = path + sizeof(root); (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		mkdir(path, 0755);
	}
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

START_TEST(the_lowest_limit_above_holds)
{
	put("groups", "0::/a/b/c\n");
	put("memory.max", "max\n");
	put("a/memory.max", "1000\n");
	put("a/b/memory.max", "3000\n");
	put("a/b/c/memory.max", "max\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), 1000);
	put("a/b/c/memory.max", "500\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), 500);
}
END_TEST

/* A container sees its own group as the root, below a path of the machine. */
START_TEST(missing_groups_are_skipped)
{
	put("groups", "0::/machine/container\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), UINT64_MAX);
	put("memory.max", "700\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), 700);
}
END_TEST

START_TEST(version_1_has_limits_too)
{
	put("groups", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/a/b\n");
	put("memory/a/memory.limit_in_bytes", "900\n");
	put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), 900);
}
END_TEST

START_TEST(without_limits_the_machine_is_the_limit)
{
	ck_assert_uint_eq(cgroups_memory_limit("/nowhere", root), UINT64_MAX);
	put("groups", "garbage\n0:\n:::\n");
	ck_assert_uint_eq(cgroups_memory_limit(groups, root), UINT64_MAX);
	ck_assert_uint_gt(machine_memory(), 0);
	ck_assert_uint_le(machine_memory_allowed(), machine_memory());
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("machine", &tcase, 30);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, the_lowest_limit_above_holds);
	tcase_add_test(tcase, missing_groups_are_skipped);
	tcase_add_test(tcase, version_1_has_limits_too);
	tcase_add_test(tcase, without_limits_the_machine_is_the_limit);
	return unit_main(suite);
}
