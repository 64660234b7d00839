/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor on simulated machines: a few files below a scratch root. */
#include "client/cli/doctor/doctor.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "tests/unit/root_folder.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct doctor examined(void)
{
	struct doctor doctor = {.findings = json_array(), .root = root};

	doctor_machine(&doctor);
	return doctor;
}

/* Returns the level of the first finding about a subject with part in its text; "": no such
 * finding. */
static const char *level(const struct doctor *doctor, const char *about, const char *part)
{
	const json_t *finding;
	size_t i;

	json_array_foreach (doctor->findings, i, finding)
		if (strcmp(json_string_value(json_object_get(finding, "about")), about) == 0 &&
		    strstr(json_string_value(json_object_get(finding, "finding")), part))
			return json_string_value(json_object_get(finding, "level"));
	return "";
}

static const struct {
	const char *path, *text, *about, *part, *level;
} machines[] = {
    {"/none", "", "fuse", "no /dev/fuse", "error"},
    {"/dev/fuse", "", "fuse", "is there", "good"},
    {"/none", "", "fuse.enable_uring", "does not offer", "note"},
    {"/proc/sys/fs/fuse/max_pages_limit", "32\n", "fs.fuse.max_pages_limit", "32 pages", "limit"},
    {"/proc/sys/fs/fuse/max_pages_limit", "256\n", "fs.fuse.max_pages_limit", "256", "good"},
    {"/none", "", "huge pages", "has no huge pages", "limit"},
    {"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
     "always within_size advise [never] deny force\n", "huge pages", "has no huge pages", "limit"},
    {"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
     "always within_size [advise] never deny force\n", "huge pages", "may have", "good"},
    {"/sys/kernel/iommu_groups/7/type", "identity\n", "IOMMU", "passes", "good"},
    {"/sys/kernel/iommu_groups/7/type", "DMA-FQ\n", "IOMMU", "translates", "note"},
    {"/none", "", "GPU", "no NVIDIA GPU", "note"},
    {"/proc/driver/nvidia/version", "NVRM version: 580.1\n", "driver", "580.1", "good"},
    {"/proc/driver/nvidia/version", "x\n", "driver", "/dev/nvidiactl is missing", "error"},
};

START_TEST(machine_is_seen)
{
	put(machines[_i].path, machines[_i].text);
	struct doctor doctor = examined();

	ck_assert_str_eq(level(&doctor, machines[_i].about, machines[_i].part), machines[_i].level);
	json_decref(doctor.findings);
}
END_TEST

/* The level depends on whether io_uring would pay on the machine. With a mount the finding is left
 * out, because the mount reports io_uring itself. */
START_TEST(uring_goes_by_the_processors)
{
	struct doctor doctor, mounted = {.findings = json_array(), .root = root, .mounted = true};

	put("/sys/module/fuse/parameters/enable_uring", _i ? "Y\n" : "N\n");
	doctor = examined();
	ck_assert_str_eq(level(&doctor, "fuse.enable_uring", _i ? "on" : "off"),
			 _i && get_nprocs() >= 4 ? "good" : "note");
	json_decref(doctor.findings);
	doctor_machine(&mounted);
	ck_assert_str_eq(level(&mounted, "fuse.enable_uring", ""), "");
	json_decref(mounted.findings);
}
END_TEST

/* Without a mount such a user can do no work with gpumemfs; with a mount there is no need to mount.
 */
START_TEST(who_may_not_open_fuse)
{
	struct doctor mounted = {.findings = json_array(), .root = root, .mounted = true};
	char path[64];

	put("/dev/fuse", "");
	put("/bin/fusermount3", "");
	snprintf(path, sizeof(path), "%s/dev/fuse", root);
	ck_assert_int_eq(chmod(path, 0), 0);
	ck_assert_int_eq(chmod(root, 0755), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	struct doctor doctor = examined();

	doctor_machine(&mounted);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_str_eq(level(&doctor, "fuse", "may not open it"), "error");
	ck_assert_str_eq(level(&mounted, "fuse", "may not open it"), "note");
	ck_assert_str_eq(level(&doctor, "fuse", "fusermount3"), "");
	json_decref(doctor.findings);
	json_decref(mounted.findings);
}
END_TEST

START_TEST(gpu_without_its_driver)
{
	put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
	put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
	struct doctor doctor = examined();

	ck_assert_str_eq(level(&doctor, "driver", "is not loaded"), "error");
	ck_assert_int_eq(doctor.worst, DOCTOR_ERROR);
	ck_assert(doctor.gpu && !doctor.driver);
	json_decref(doctor.findings);
}
END_TEST

/* A network card of the same vendor is no GPU. */
START_TEST(other_devices_are_none)
{
	put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
	put("/sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n");
	put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
	put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
	struct doctor doctor = examined();

	ck_assert(!doctor.gpu);
	json_decref(doctor.findings);
}
END_TEST

START_TEST(container_without_the_mount)
{
	struct doctor doctor = {.findings = json_array(), .root = root};
	struct mounts none = {0};

	unsetenv("container");
	doctor_mounts(&doctor, &none);
	ck_assert_str_eq(level(&doctor, "mount", "no gpumemfs is mounted here"), "note");
	put("/.dockerenv", "");
	doctor_mounts(&doctor, &none);
	ck_assert_str_eq(level(&doctor, "mount", "this is a container"), "error");
	json_decref(doctor.findings);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("cli_doctor", &tests, 60);

	tcase_add_checked_fixture(tests, root_make, root_remove);
	tcase_add_loop_test(tests, machine_is_seen, 0, COUNT(machines));
	tcase_add_loop_test(tests, uring_goes_by_the_processors, 0, 2);
	tcase_add_test(tests, who_may_not_open_fuse);
	tcase_add_test(tests, gpu_without_its_driver);
	tcase_add_test(tests, other_devices_are_none);
	tcase_add_test(tests, container_without_the_mount);
	return unit_main(suite);
}
