/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/daemons.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/fuse/capabilities.h"
#include "tests/bench/process.h"
#include "tests/bench/targets.h"

/* Starts a daemon that mounts at target->mount. */
static void start(struct target *target, char *const arguments[])
{
	int error = mkdir(target->mount, 0700) ? -errno : 0;
	pid_t pid = error ? error : process_mount(arguments, target->mount);

	if (pid < 0)
		target_absent(target, "its daemon does not mount", -pid);
	else
		target->daemon = pid;
}

static void own_options(const struct bench *bench, const char *wanted, char text[512])
{
	const char *more = bench->options.mount_options;

	snprintf(text, 512, "log_level=error%s%s%s", wanted, more ? "," : "", more ? more : "");
}

static void open_null(struct bench *bench, char *exe)
{
	struct target *target = target_add(bench, "null FUSE", TARGET_NULL);
	char options[512];

	snprintf(target->about, sizeof(target->about),
		 "a FUSE daemon on gpumemfs's own session and threads, from memory to memory");
	own_options(bench, "", options);
	path_join(target->mount, bench->mounts, "null");
	path_join(target->dir, target->mount, "");
	char *arguments[] = {exe,  "--null-daemon", "null-fuse", target->mount, "-f",
			     "-o", options,	    NULL};
	start(target, arguments);
}

/* Whether the target can be measured; if not, the target says why. */
static bool ring_is_here(struct target *target)
{
	target->over_ring = true;
	if (!capabilities_kernel_has_uring())
		snprintf(target->absent, sizeof(target->absent),
			 "the kernel has FUSE over io_uring off");
	return !*target->absent;
}

static void open_stock(struct bench *bench, char *exe, const char *name, char *threads, bool ring)
{
	struct target *target = target_add(bench, name, TARGET_STOCK);

	snprintf(target->about, sizeof(target->about), "such a daemon on libfuse's own loop, %s%s",
		 ring ? "over io_uring" : threads, ring ? "" : " threads, clone_fd");
	path_join(target->mount, bench->mounts, name);
	path_join(target->dir, target->mount, "");
	char *arguments[] = {exe,	    "--stock-daemon",
			     threads,	    ring ? "fsname=null,io_uring" : "fsname=null",
			     target->mount, NULL};
	if (!ring || ring_is_here(target))
		start(target, arguments);
}

static const char *backend_name(const struct bench *bench)
{
	return bench->options.backend == BENCH_HOST ? "host,host_gpus=2" : "cuda";
}

/* The daemon's value of a parameter, up to the first blank or colon: "on", "32". */
static void parameter(const char *mount, const char *name, char value[16])
{
	char path[PATH_MAX_], line[512];
	size_t length = strlen(name);

	snprintf(value, 16, "?");
	path_join(path, mount, ".gpumem/params");
	FILE *file AUTO_FCLOSE = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			snprintf(value, 16, "%.*s", (int)strcspn(line + length + 1, " :\n"),
				 line + length + 1);
}

static void describe(const struct bench *bench, struct target *target)
{
	char threads[16], uring[16];

	parameter(target->mount, "threads", threads);
	parameter(target->mount, "io_uring", uring);
	snprintf(target->about, sizeof(target->about),
		 "gpumemfs, gpu0/: memory of the GPU%s; %s threads, io_uring %s",
		 bench->options.backend == BENCH_HOST ? ", simulated in system memory" : "",
		 threads, uring);
}

/* In a build and in a bundle the daemon is in the folder above the bench; in an installation it is
 * among the system's programs. */
static void find_daemon(const struct bench *bench, char exe[PATH_MAX_])
{
	struct stat st;

	path_join(exe, bench->exe_dir, "../gpumemfs");
	if (stat(exe, &st) < 0 || !S_ISREG(st.st_mode))
		path_join(exe, bench->exe_dir, "../../bin/gpumemfs");
}

static void mount_gpumemfs(struct bench *bench, struct target *target, const char *more)
{
	char exe[PATH_MAX_], wanted[64], options[512];

	snprintf(wanted, sizeof(wanted), ",backend=%s%s", backend_name(bench), more);
	own_options(bench, wanted, options);
	find_daemon(bench, exe);
	char *arguments[] = {exe, "-f", target->mount, "-o", options, NULL};
	start(target, arguments);
	if (!*target->absent)
		describe(bench, target);
	path_join(target->dir, target->mount, "gpu0");
}

static void open_gpumemfs(struct bench *bench)
{
	struct target *gpu = target_add(bench, "gpumemfs", TARGET_GPU);
	struct target *host = target_add(bench, "host/", TARGET_HOST);

	path_join(gpu->mount, bench->mounts, "gpumemfs");
	mount_gpumemfs(bench, gpu, "");
	path_join(gpu->other, gpu->mount, "gpu1");
	if (access(gpu->other, X_OK))
		*gpu->other = '\0';
	/* The daemon is gpu's, which ends it. */
	path_join(host->dir, gpu->mount, "host");
	memcpy(host->absent, gpu->absent, WHY_MAX);
	snprintf(host->about, sizeof(host->about),
		 "gpumemfs, host/: system memory, by the kernel alone where it passes through");
}

static void open_ring(struct bench *bench)
{
	struct target *target = target_add(bench, "gpumemfs ring", TARGET_RING);

	path_join(target->mount, bench->mounts, "ring");
	if (ring_is_here(target))
		mount_gpumemfs(bench, target, ",io_uring=on");
}

void daemons_open(struct bench *bench)
{
	char exe[PATH_MAX_];

	path_join(exe, bench->exe_dir, "bench");
	open_null(bench, exe);
	open_stock(bench, exe, "stock 16", "16", false);
	open_stock(bench, exe, "stock 32", "32", false);
	open_stock(bench, exe, "stock ring", "16", true);
	open_gpumemfs(bench);
	open_ring(bench);
}
