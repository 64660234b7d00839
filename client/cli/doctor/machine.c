/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor: the kernel, the driver and the hardware. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "client/cli/core/facts.h"
#include "client/cli/core/gpus.h"
#include "client/cli/doctor/doctor.h"
#include "common/cleanup.h"
#include "common/number.h"

#define PAGES_LIMIT  "/proc/sys/fs/fuse/max_pages_limit"
#define SHMEM_HUGE   "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define IOMMU_GROUPS "/sys/kernel/iommu_groups"
#define PCI_DEVICES  "/sys/bus/pci/devices"

/* A request of the daemon has 1 MiB in pages of 4 KiB. */
#define PAGES_WANTED 256

char *doctor_line(const struct doctor *doctor, const char *path)
{
	return facts_first_line(doctor->root, path);
}

bool doctor_exists(const struct doctor *doctor, const char *path)
{
	AUTO_FREE char *full = NULL;

	return asprintf(&full, "%s%s", doctor->root, path) >= 0 && access(full, F_OK) == 0;
}

/* A user without access to /dev/fuse can still use mounts of other users. */
static void check_fuse_rights(struct doctor *doctor)
{
	AUTO_FREE char *path = NULL;
	AUTO_CLOSE int fd =
	    asprintf(&path, "%s/dev/fuse", doctor->root) < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
	int error = fd < 0 ? errno : 0;
	enum doctor_level level = doctor->mounted ? DOCTOR_NOTE : DOCTOR_ERROR;

	if (!error)
		doctor_find(doctor, DOCTOR_GOOD, "fuse", NULL,
			    "/dev/fuse is there, and this user may open it");
	else if (error == EACCES)
		doctor_find(doctor, level, "fuse",
			    "mount as root; or chmod 0666 /dev/fuse, as udev makes it",
			    "/dev/fuse is there, and user %u may not open it: this user cannot "
			    "mount",
			    geteuid());
	else
		doctor_find(doctor, level, "fuse",
			    error == EPERM ? "in a container: give it the device /dev/fuse"
					   : "modprobe fuse",
			    "/dev/fuse is there, and cannot be opened: %s", strerror(error));
	if (geteuid() != 0 && !doctor_exists(doctor, "/bin/fusermount3") &&
	    !doctor_exists(doctor, "/usr/bin/fusermount3"))
		doctor_find(doctor, level, "fuse", "install fuse3",
			    "there is no fusermount3: only root can mount");
}

static void check_fuse(struct doctor *doctor)
{
	if (doctor_exists(doctor, "/dev/fuse"))
		check_fuse_rights(doctor);
	else
		doctor_find(doctor, DOCTOR_ERROR, "fuse",
			    "modprobe fuse; in a container: give it /dev/fuse, or bind-mount the "
			    "host's mount into it",
			    "there is no /dev/fuse: nothing can be mounted here");
}

/* A mount has its own finding about io_uring, with the reason. */
static void check_uring(struct doctor *doctor)
{
	AUTO_FREE char *setting = doctor_line(doctor, DOCTOR_URING_PARAMETER);
	int cores = get_nprocs();

	if (doctor->mounted)
		return;
	if (!setting)
		doctor_find(doctor, DOCTOR_NOTE, "fuse.enable_uring",
			    "Linux 6.14 has it, once the module fuse is loaded",
			    "this kernel does not offer FUSE over io_uring: open and stat are "
			    "slower");
	else if (cores < DOCTOR_URING_CORES)
		doctor_find(doctor, DOCTOR_NOTE, "fuse.enable_uring", NULL,
			    "%s: a mount would not use it on %d processors",
			    *setting == 'Y' ? "on" : "off", cores);
	else if (*setting == 'Y')
		doctor_find(doctor, DOCTOR_GOOD, "fuse.enable_uring", NULL,
			    "on, for mounts with io_uring=on or recovery=off");
	else
		doctor_find(doctor, DOCTOR_NOTE, "fuse.enable_uring", DOCTOR_URING_LIFT,
			    "off: open and stat on mounts with io_uring=on or recovery=off would "
			    "be faster with it");
}

static void check_pages(struct doctor *doctor)
{
	AUTO_FREE char *text = doctor_line(doctor, PAGES_LIMIT);
	uint64_t pages;

	if (!text || parse_u64(text, 0, UINT64_MAX, &pages) < 0)
		return; /* an older kernel, with a limit of 256 */
	if (pages < PAGES_WANTED)
		doctor_find(doctor, DOCTOR_LIMIT, "fs.fuse.max_pages_limit",
			    "sysctl fs.fuse.max_pages_limit=256; then mount again",
			    "%s pages: requests of 1 MiB are cut into smaller ones", text);
	else
		doctor_find(doctor, DOCTOR_GOOD, "fs.fuse.max_pages_limit", NULL,
			    "%s pages: requests of 1 MiB fit", text);
}

static void check_huge_pages(struct doctor *doctor)
{
	AUTO_FREE char *text = doctor_line(doctor, SHMEM_HUGE);

	if (!text || strstr(text, "[never]") || strstr(text, "[deny]"))
		doctor_find(
		    doctor, DOCTOR_LIMIT, "huge pages", "echo advise > " SHMEM_HUGE,
		    "shared memory has no huge pages: files in host/ with page_size=2M have "
		    "ordinary pages");
	else
		doctor_find(doctor, DOCTOR_GOOD, "huge pages", NULL, "shared memory may have them");
}

/* Whether accepts is true for an entry of the machine's folder. */
static bool folder_has_entry(const struct doctor *doctor, const char *path,
			     bool (*accepts)(const struct doctor *doctor, const char *path))
{
	AUTO_FREE char *full = NULL;
	bool found = false;

	if (asprintf(&full, "%s%s", doctor->root, path) < 0)
		return false;
	DIR *dir = opendir(full);

	for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
		AUTO_FREE char *entry_path = NULL;

		if (entry->d_name[0] != '.' &&
		    asprintf(&entry_path, "%s/%s", path, entry->d_name) >= 0)
			found = accepts(doctor, entry_path);
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool group_translates(const struct doctor *doctor, const char *group)
{
	AUTO_FREE char *path = NULL, *type = NULL;

	if (asprintf(&path, "%s/type", group) < 0)
		return false;
	type = doctor_line(doctor, path);
	return type && strncmp(type, "DMA", 3) == 0;
}

static void check_iommu(struct doctor *doctor)
{
	if (folder_has_entry(doctor, IOMMU_GROUPS, group_translates))
		doctor_find(doctor, DOCTOR_NOTE, "IOMMU",
			    "iommu=pt on the kernel's command line takes it out of the way where "
			    "devices are trusted",
			    "translates addresses: copies between GPUs over PCIe may take the way "
			    "through it");
	else
		doctor_find(doctor, DOCTOR_GOOD, "IOMMU", NULL, "off, or passes addresses through");
}

/* Whether the device is an NVIDIA display or 3D controller. */
static bool device_is_gpu(const struct doctor *doctor, const char *device)
{
	AUTO_FREE char *vendor_path = NULL, *class_path = NULL;

	if (asprintf(&vendor_path, "%s/vendor", device) < 0 ||
	    asprintf(&class_path, "%s/class", device) < 0)
		return false;
	AUTO_FREE char *vendor = doctor_line(doctor, vendor_path),
		       *class = doctor_line(doctor, class_path);

	return vendor && class && strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

static void check_nodes(struct doctor *doctor)
{
	static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
	bool all = true;

	for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		if (doctor_exists(doctor, nodes[i]))
			continue;
		all = false;
		doctor_find(doctor, DOCTOR_ERROR, "driver",
			    "nvidia-modprobe -u -c 0; in a container: give it the GPU's devices",
			    "%s is missing: the driver cannot be used", nodes[i]);
	}
	if (all)
		doctor_find(doctor, DOCTOR_GOOD, "driver", NULL, "its device nodes are there");
}

static void check_cuda(struct doctor *doctor)
{
	void *cuda = *doctor->root ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (cuda)
		doctor_find(doctor, DOCTOR_GOOD, "driver", NULL, "libcuda.so.1 can be loaded");
	else if (!*doctor->root)
		doctor_find(doctor, DOCTOR_ERROR, "driver",
			    "install the driver's CUDA library (libcuda1); in a container: the "
			    "NVIDIA container toolkit brings it",
			    "libcuda.so.1 cannot be loaded");
	if (cuda)
		dlclose(cuda);
}

struct other_gpus {
	struct doctor *doctor;
	unsigned n; /* GPUs of other vendors than NVIDIA */
};

static void check_gpu(void *context, const struct gpu_facts *facts)
{
	AUTO_FREE char *text = gpu_facts_text(facts), *about = NULL;
	struct other_gpus *other_gpus = context;
	bool small = gpu_facts_small_window(facts);

	other_gpus->n += strcmp(facts->driver, "amdgpu") == 0 || strcmp(facts->driver, "xe") == 0;
	if (asprintf(&about, "GPU %s", facts->pci) >= 0)
		doctor_find(other_gpus->doctor, small ? DOCTOR_LIMIT : DOCTOR_GOOD, about,
			    small ? "turn on Resizable BAR and Above 4G Decoding in the firmware"
				  : NULL,
			    "%s", text ? text : "");
}

static void check_driver(struct doctor *doctor)
{
	struct other_gpus other_gpus = {.doctor = doctor};

	gpus_each(doctor->root, check_gpu, &other_gpus);
	AUTO_FREE char *version = doctor_line(doctor, "/proc/driver/nvidia/version");

	doctor->gpu = folder_has_entry(doctor, PCI_DEVICES, device_is_gpu);
	doctor->driver = version;
	if (!doctor->gpu && !version) {
		doctor_find(doctor, DOCTOR_NOTE, "GPU", NULL,
			    other_gpus.n
				? "no NVIDIA GPU: files are kept in the memory of other GPUs "
				  "if Vulkan can use them, else in system memory"
				: "no NVIDIA GPU: files are kept in system memory");
		return;
	}
	if (!version) {
		doctor_find(doctor, DOCTOR_ERROR, "driver",
			    "install NVIDIA's driver, or modprobe nvidia",
			    "there is a GPU, but its driver is not loaded");
		return;
	}
	doctor_find(doctor, DOCTOR_GOOD, "driver", NULL, "%s", version);
	check_nodes(doctor);
	check_cuda(doctor);
}

void doctor_machine(struct doctor *doctor)
{
	struct utsname name;

	uname(&name);
	if (version_at_least(name.release, 6, 9))
		doctor_find(doctor, DOCTOR_GOOD, "kernel", NULL, "Linux %s", name.release);
	else
		doctor_find(doctor, DOCTOR_LIMIT, "kernel",
			    "a newer one: 6.6 for shared mappings, 6.9 for direct mappings of "
			    "host/, 6.14 for io_uring",
			    "Linux %s lacks features", name.release);
	check_fuse(doctor);
	check_uring(doctor);
	check_pages(doctor);
	check_huge_pages(doctor);
	check_iommu(doctor);
	check_driver(doctor);
}
