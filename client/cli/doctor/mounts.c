/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem doctor: examines the mounts through the texts of their daemons. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/doctor/doctor.h"
#include "common/cleanup.h"
#include "common/number.h"

/* Features that a daemon reports as on or off, with the remedy for off. */
static const struct {
	const char *name, *lift;
} feature_switches[] = {
    {"passthrough", "run the daemon as root, on Linux 6.9 or later"},
    {"mmap", "Linux 6.6 or later"},
    {"parallel_writes", "libfuse 3.15 or later"},
};

static bool machine_is_container(const struct doctor *doctor)
{
	const char *said = getenv("container");

	return doctor_exists(doctor, "/.dockerenv") ||
	       doctor_exists(doctor, "/run/.containerenv") || (said && *said);
}

static void report_no_mount(struct doctor *doctor)
{
	if (machine_is_container(doctor))
		doctor_find(doctor, DOCTOR_ERROR, "mount",
			    "start the container with the host's mount bound into it: "
			    "-v /mnt/gpumem:/mnt/gpumem:rslave",
			    "this is a container, and no gpumemfs is mounted in it");
	else
		doctor_find(doctor, DOCTOR_NOTE, "mount", "gpumemfs /mnt/gpumem",
			    "no gpumemfs is mounted here");
}

static void check_version(struct doctor *doctor, const char *mountpoint, const char *version)
{
	AUTO_FREE char *fuse = facts_line(version, "libfuse"),
		       *backend = facts_line(version, "backend");

	if (fuse && !version_at_least(fuse, 3, 18))
		doctor_find(doctor, DOCTOR_LIMIT, mountpoint,
			    "libfuse 3.18: make setup builds it where the distribution's is older",
			    "its daemon runs with libfuse %s, without io_uring", fuse);
	else
		doctor_find(doctor, DOCTOR_GOOD, mountpoint, NULL, "libfuse %s", fuse ? fuse : "?");
	if (!backend)
		return;
	bool host = strncmp(backend, "host", 4) == 0;

	if (host && doctor->driver)
		doctor_find(doctor, DOCTOR_ERROR, mountpoint,
			    "mount with backend=cuda: the error message has the reason",
			    "there is a GPU, but this mount simulates one in system memory");
	else
		doctor_find(doctor, host ? DOCTOR_NOTE : DOCTOR_GOOD, mountpoint, NULL,
			    "backend %s", backend);
}

static void check_switch(struct doctor *doctor, const char *mountpoint, const char *params,
			 const char *name, const char *lift)
{
	AUTO_FREE char *line = facts_line(params, name);

	if (!line)
		return;
	const char *reason = strchr(line, ' ');

	if (strncmp(line, "on", 2) == 0)
		doctor_find(doctor, DOCTOR_GOOD, mountpoint, NULL, "%s is on", name);
	else
		doctor_find(doctor, DOCTOR_LIMIT, mountpoint, lift, "%s is off:%s", name,
			    reason ? reason : "");
}

/* Only the kernel's switch counts as a limit: other reasons are requested or right. */
static void check_uring(struct doctor *doctor, const char *mountpoint, const char *params)
{
	AUTO_FREE char *line = facts_line(params, "io_uring"),
		       *kernel = doctor_line(doctor, DOCTOR_URING_PARAMETER);
	const char *reason = line ? strchr(line, ' ') : NULL;

	if (!line || strncmp(line, "on", 2) == 0) {
		check_switch(doctor, mountpoint, params, "io_uring", NULL);
	} else if (!reason || !strstr(reason, "the kernel has it off")) {
		doctor_find(doctor, DOCTOR_NOTE, mountpoint, NULL, "io_uring is off:%s",
			    reason ? reason : "");
	} else if (kernel && *kernel == 'Y') {
		doctor_find(doctor, DOCTOR_NOTE, mountpoint, "mount again",
			    "io_uring is off: the kernel had it off at the time of the mount, and "
			    "has it on now");
	} else if (!kernel || get_nprocs() < DOCTOR_URING_CORES) {
		doctor_find(doctor, DOCTOR_NOTE, mountpoint, NULL,
			    kernel ? "io_uring is off, which is right for few processors"
				   : "io_uring is off: this kernel does not have it (Linux 6.14)");
	} else {
		doctor_find(doctor, DOCTOR_LIMIT, mountpoint, DOCTOR_URING_LIFT,
			    "io_uring is off: the kernel has it off. Small reads and writes are "
			    "slower than they could be");
	}
}

static void check_switches(struct doctor *doctor, const char *mountpoint, const char *params)
{
	check_uring(doctor, mountpoint, params);
	for (unsigned i = 0; i < sizeof(feature_switches) / sizeof(feature_switches[0]); i++)
		check_switch(doctor, mountpoint, params, feature_switches[i].name,
			     feature_switches[i].lift);
}

static bool library_loads(const char *library)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);

	if (!handle)
		return false;
	dlclose(handle);
	return true;
}

/* Reports why each way to the BAR is missing. */
static void check_missing_ways(struct doctor *doctor, const char *gpu)
{
	doctor_find(doctor, DOCTOR_NOTE, gpu, "a driver of CUDA 13.3 or later",
		    "dmabuf: this driver does not let it be mapped");
	if (!doctor_exists(doctor, "/dev/gdrdrv"))
		doctor_find(doctor, DOCTOR_NOTE, gpu,
			    "install GDRCopy: the module gdrdrv and libgdrapi.so.2",
			    "gdrcopy: there is no /dev/gdrdrv");
	if (!library_loads("libvulkan.so.1"))
		doctor_find(doctor, DOCTOR_NOTE, gpu, "install libvulkan1",
			    "vulkan: libvulkan.so.1 cannot be loaded");
	else if (!doctor_exists(doctor, "/usr/share/vulkan/icd.d/nvidia_icd.json") &&
		 !doctor_exists(doctor, "/etc/vulkan/icd.d/nvidia_icd.json"))
		doctor_find(
		    doctor, DOCTOR_NOTE, gpu,
		    "install the driver's Vulkan library; in a container: "
		    "NVIDIA_DRIVER_CAPABILITIES=all",
		    "vulkan: there is no nvidia_icd.json, so the driver is not known to it");
	else
		doctor_find(
		    doctor, DOCTOR_NOTE, gpu, NULL,
		    "vulkan: is installed but not used: see the mount's log for the reason");
}

static void check_bar(struct doctor *doctor, const char *mountpoint, const char *params,
		      const json_t *volume)
{
	const char *name = json_string_value(json_object_get(volume, "name"));
	const json_t *bar = json_object_get(volume, "bar");
	const char *provider = json_string_value(json_object_get(bar, "provider"));
	const char *reason = json_string_value(json_object_get(bar, "reason"));
	AUTO_FREE char *gpu = NULL, *backend = facts_line(params, "backend");

	if (!name || asprintf(&gpu, "%s/%s", mountpoint, name) < 0)
		return;
	if (strcmp(facts_health(volume), "failed") == 0)
		doctor_find(
		    doctor, DOCTOR_ERROR, gpu,
		    "see dmesg and nvidia-smi -q for the cause, and the log for attempts to "
		    "reset it; otherwise reset the GPU and mount again",
		    "reported an error: its files give EIO");
	if (!provider || !backend || strncmp(backend, "host", 4) == 0)
		return;
	if (strcmp(provider, "none") != 0) {
		doctor_find(doctor, DOCTOR_GOOD, gpu, NULL, "BAR provider %s", provider);
		return;
	}
	bool off = reason && strstr(reason, "bar=off");

	doctor_find(doctor, off ? DOCTOR_NOTE : DOCTOR_LIMIT, gpu,
		    off ? "mount without bar=off" : NULL,
		    "BAR provider none%s%s: small reads and writes go through the copy engines",
		    reason ? ": " : "", reason ? reason : "");
	if (!off)
		check_missing_ways(doctor, gpu);
}

static void check_compute_mode(struct doctor *doctor, const char *mountpoint, const json_t *volume)
{
	const char *name = json_string_value(json_object_get(volume, "name"));
	const char *mode = json_string_value(json_object_get(volume, "compute_mode"));
	AUTO_FREE char *gpu = NULL, *lift = NULL;

	if (!name || !mode || asprintf(&gpu, "%s/%s", mountpoint, name) < 0)
		return;
	if (strcmp(mode, "default") == 0)
		doctor_find(doctor, DOCTOR_GOOD, gpu, NULL, "compute mode default");
	else if (asprintf(&lift, "nvidia-smi -i %u -c DEFAULT; then mount again",
			  (unsigned)facts_number(volume, "index")) >= 0)
		doctor_find(doctor, DOCTOR_ERROR, gpu, lift,
			    "compute mode %s: while it has files, all other programs that use the "
			    "GPU fail with CUDA_ERROR_DEVICE_UNAVAILABLE",
			    mode);
}

static void report_error(struct doctor *doctor, const char *mountpoint, int error)
{
	if (error == EACCES)
		doctor_find(doctor, DOCTOR_NOTE, mountpoint, NULL,
			    "user %u may not enter this mount: it is another user's", geteuid());
	else if (error == ENOENT)
		doctor_find(doctor, DOCTOR_NOTE, mountpoint, NULL, "it is unmounted by now");
	else
		doctor_find(doctor, DOCTOR_ERROR, mountpoint, NULL, "%s", cli_words(error));
}

static void check_mount(struct doctor *doctor, const struct mount_at *mount)
{
	AUTO_FREE char *version = NULL, *params = NULL;
	const char *mountpoint = mount->mountpoint;
	int error = mounts_answers(mount);
	const json_t *volume;
	size_t i;

	if (!error)
		error = facts_text(mountpoint, "version", &version);
	if (!error)
		error = facts_text(mountpoint, "params", &params);
	json_t *stats = error ? NULL : facts_stats(mountpoint);

	if (error) {
		report_error(doctor, mountpoint, -error);
		return;
	}
	check_version(doctor, mountpoint, version);
	check_switches(doctor, mountpoint, params);
	json_array_foreach (json_object_get(stats, "volumes"), i, volume) {
		check_bar(doctor, mountpoint, params, volume);
		check_compute_mode(doctor, mountpoint, volume);
	}
	if (doctor->decisions)
		doctor_decisions(doctor, mountpoint, params, json_object_get(stats, "volumes"));
	json_decref(stats);
}

void doctor_mounts(struct doctor *doctor, const struct mounts *mounts)
{
	if (!mounts->count)
		report_no_mount(doctor);
	for (size_t i = 0; i < mounts->count; i++)
		if (doctor->named_mount ? doctor->named_mount == &mounts->at[i]
					: strcmp(mounts->at[i].root, "/") == 0)
			check_mount(doctor, &mounts->at[i]);
}
