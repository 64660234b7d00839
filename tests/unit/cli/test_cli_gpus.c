/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the kernel tells about GPUs, on simulated machines: files and links below a scratch root. */
#include "client/cli/core/gpus.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/doctor/doctor.h"
#include "tests/unit/root_folder.h"

#define PCI    "0000:03:00.0"
#define OTHER  "0000:83:00.0"
#define DEVICE "/sys/bus/pci/devices/" PCI
#define GIB    (1ULL << 30)
#define MIB    (1ULL << 20)

static void put_link(const char *path, const char *target)
{
	ck_assert_int_eq(symlink(target, root_path(path)), 0);
}

static void put_card(const char *card, const char *pci, const char *vendor, const char *driver)
{
	char path[128], target[128];

	snprintf(path, sizeof(path), "/sys/class/drm/%s/device", card);
	snprintf(target, sizeof(target), "../../../%s", pci);
	put_link(path, target);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", pci);
	put(path, vendor);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", pci);
	snprintf(target, sizeof(target), "../../../../bus/pci/drivers/%s", driver);
	if (*driver)
		put_link(path, target);
}

static void expect_text(const char *wanted)
{
	struct gpu_facts facts;

	ck_assert(gpu_facts_read(root, PCI, &facts));
	char *text = gpu_facts_text(&facts);

	ck_assert_str_eq(text, wanted);
	free(text);
}

START_TEST(amdgpu_without_resizable_bar)
{
	put_card("card0", PCI, "0x1002\n", "amdgpu");
	put(DEVICE "/mem_info_vram_total", "25769803776\n");
	put(DEVICE "/mem_info_vram_used", "1610612736\n");
	put(DEVICE "/mem_info_vis_vram_total", "268435456\n");
	expect_text("driver amdgpu, 24 GiB of VRAM (1.5 GiB used), 256 MiB visible to the CPU: "
		    "resizable BAR is off");
}
END_TEST

START_TEST(amdgpu_all_visible)
{
	put_card("card0", PCI, "0x1002\n", "amdgpu");
	put(DEVICE "/mem_info_vram_total", "25769803776\n");
	put(DEVICE "/mem_info_vis_vram_total", "25769803776\n");
	expect_text("driver amdgpu, 24 GiB of VRAM, all of it visible to the CPU");
	put(DEVICE "/mem_info_vis_vram_total", "17179869184\n");
	expect_text("driver amdgpu, 24 GiB of VRAM, 16 GiB visible to the CPU: the BAR is smaller "
		    "than the VRAM");
}
END_TEST

/* Files that are missing or make no sense count as not told. */
START_TEST(nonsense_is_not_told)
{
	static const char *const texts[] = {"",
					    "\n",
					    "-1\n",
					    "12 34\n",
					    "0x10\n",
					    "abc\n",
					    "18446744073709551616\n",
					    "1152921504606846976\n"};

	put_card("card0", PCI, "0x1002\n", "amdgpu");
	expect_text("driver amdgpu");
	put(DEVICE "/mem_info_vram_total", texts[_i]);
	put(DEVICE "/mem_info_vis_vram_total", texts[_i]);
	put(DEVICE "/mem_info_vram_used", texts[_i]);
	expect_text("driver amdgpu");
	put(DEVICE "/mem_info_vram_total", "8589934592\n");
	expect_text("driver amdgpu, 8 GiB of VRAM");
	ck_assert_int_eq(unlink(root_path(DEVICE "/mem_info_vram_total")), 0);
	ck_assert_int_eq(mkdir(root_path(DEVICE "/mem_info_vram_total"), 0755), 0);
	expect_text("driver amdgpu");
}
END_TEST

START_TEST(xe_sums_its_tiles)
{
	put_card("card1", PCI, "0x8086\n", "xe");
	put(DEVICE "/tile0/physical_vram_size_bytes", "8589934592\n");
	put(DEVICE "/tile1/physical_vram_size_bytes", "8589934592\n");
	put(DEVICE "/resource2", "");
	ck_assert_int_eq(truncate(root_path(DEVICE "/resource2"), 256 * MIB), 0);
	expect_text("driver xe, 16 GiB of VRAM, 256 MiB visible to the CPU: resizable BAR is off");
	ck_assert_int_eq(truncate(root_path(DEVICE "/resource2"), (off_t)(16 * GIB)), 0);
	expect_text("driver xe, 16 GiB of VRAM, all of it visible to the CPU");
}
END_TEST

/* A version of xe without these files: BAR 2 may be an integrated GPU's. The programs tell what
 * they use; a client with two descriptors counts once, and clients of other GPUs do not count. */
START_TEST(xe_by_its_clients)
{
	static const char client[] = "pos:\t0\ndrm-driver:\txe\ndrm-pdev:\t" PCI
				     "\ndrm-client-id:\t7\ndrm-total-vram0:\t4096 KiB\n"
				     "drm-resident-vram0:\t1024 KiB\ndrm-resident-vram1:\t2 MiB\n"
				     "drm-resident-system:\t512 MiB\n";

	put_card("card1", PCI, "0x8086\n", "xe");
	put(DEVICE "/resource2", "");
	ck_assert_int_eq(truncate(root_path(DEVICE "/resource2"), 256 * MIB), 0);
	expect_text("driver xe");
	ck_assert_uint_eq(gpu_clients_used(root, PCI), 0);
	put("/proc/12/fdinfo/3", client);
	put("/proc/12/fdinfo/4", client);
	put("/proc/34/fdinfo/3",
	    "drm-pdev:\t" PCI "\ndrm-client-id: 8\ndrm-resident-vram0: 1048576\n");
	put("/proc/34/fdinfo/4",
	    "drm-pdev:\t" OTHER "\ndrm-client-id:\t9\ndrm-resident-vram0:\t64 MiB\n");
	put("/proc/56/fdinfo/5", "drm-pdev:\t" PCI "\ndrm-resident-vram0:\t64 MiB\n");
	put("/proc/self/fdinfo/5", client);
	ck_assert_uint_eq(gpu_clients_used(root, PCI), 4 * MIB);
	expect_text("driver xe, 4 MiB of VRAM used");
	put("/proc/56/fdinfo/5", "drm-pdev:\t" PCI "\ndrm-client-id:\t-3\n"
				 "drm-resident-vram0:\t64 MiB\n");
	put("/proc/56/fdinfo/6", "drm-pdev:\t" PCI "\ndrm-client-id:\t11\n:\n\nnonsense\n"
				 "drm-resident-vram0:\t64 GiB\ndrm-resident-vram0:\t-64 MiB\n"
				 "drm-resident-vram0:\t99999999999999 MiB\n"
				 "drm-resident-vram0:\t1 MiB");
	ck_assert_uint_eq(gpu_clients_used(root, PCI), 5 * MIB);
}
END_TEST

START_TEST(no_such_device)
{
	static const char *const addresses[] = {
	    "", "0000:04:00.0", "../../../etc", "0000:03:00.0/", "0000:03:00", "xxxx:03:00.0"};
	struct gpu_facts facts;

	put_card("card0", PCI, "0x1002\n", "");
	for (unsigned i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
		ck_assert(!gpu_facts_read(root, addresses[i], &facts));
	expect_text("driver none");
}
END_TEST

static const char *finding(const struct doctor *doctor, const char *about, const char *field)
{
	const json_t *one;
	size_t i;

	json_array_foreach (doctor->findings, i, one)
		if (strcmp(json_string_value(json_object_get(one, "about")), about) == 0)
			return json_string_value(json_object_get(one, field));
	return "";
}

START_TEST(doctor_names_every_gpu)
{
	struct doctor doctor = {.findings = json_array(), .root = root};

	put_card("card0", PCI, "0x1002\n", "amdgpu");
	put(DEVICE "/mem_info_vram_total", "25769803776\n");
	put(DEVICE "/mem_info_vis_vram_total", "268435456\n");
	put_card("card1", OTHER, "0x8086\n", "xe");
	put_card("card2", "0000:01:00.0", "0x1a03\n", "ast");
	put("/sys/class/drm/card0-DP-1/status", "connected\n");
	put("/sys/class/drm/version", "drm 1.1.0\n");
	put_link("/sys/class/drm/card3/device", "../../../simple-framebuffer.0");
	doctor_machine(&doctor);
	ck_assert_str_eq(finding(&doctor, "GPU " PCI, "level"), "limit");
	ck_assert_str_eq(finding(&doctor, "GPU " PCI, "finding"),
			 "driver amdgpu, 24 GiB of VRAM, 256 MiB visible to the CPU: resizable BAR "
			 "is off");
	ck_assert(strstr(finding(&doctor, "GPU " PCI, "lift"), "Resizable BAR") != NULL);
	ck_assert_str_eq(finding(&doctor, "GPU " OTHER, "finding"), "driver xe");
	ck_assert_str_eq(finding(&doctor, "GPU 0000:01:00.0", "level"), "");
	ck_assert(strstr(finding(&doctor, "GPU", "finding"), "Vulkan") != NULL);
	json_decref(doctor.findings);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("cli_gpus", &tcase, 60);

	tcase_add_checked_fixture(tcase, root_make, root_remove);
	tcase_add_test(tcase, amdgpu_without_resizable_bar);
	tcase_add_test(tcase, amdgpu_all_visible);
	tcase_add_loop_test(tcase, nonsense_is_not_told, 0, 8);
	tcase_add_test(tcase, xe_sums_its_tiles);
	tcase_add_test(tcase, xe_by_its_clients);
	tcase_add_test(tcase, no_such_device);
	tcase_add_test(tcase, doctor_names_every_gpu);
	return unit_main(suite);
}
