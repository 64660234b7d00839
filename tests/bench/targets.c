/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/targets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/bench/process.h"
#include "tests/bench/raw.h"

#define TMPFS_MAGIC_ 0x01021994
#define SHM	     "/dev/shm"

/* --- targets with files */

static int file_enter(struct target *target, unsigned lane)
{
	(void)target, (void)lane;
	return 0;
}

static ssize_t file_read(struct target *target, unsigned lane, void *to, size_t bytes,
			 uint64_t offset)
{
	(void)lane;
	ssize_t n = pread(target->fd, to, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

static ssize_t file_write(struct target *target, unsigned lane, const void *from, size_t bytes,
			  uint64_t offset)
{
	(void)lane;
	ssize_t n = pwrite(target->fd, from, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

static const struct target_ops file_ops = {file_enter, file_read, file_write};

static struct target *add(struct bench *bench, const char *name, enum target_kind kind)
{
	struct target *target = &bench->targets[bench->n_targets++];

	*target = (struct target){.name = name, .kind = kind, .ops = &file_ops, .fd = -1};
	return target;
}

static void absent(struct target *target, const char *what, int error)
{
	snprintf(target->absent, sizeof(target->absent), "%s: %s", what, strerror(error));
}

static void join(char out[PATH_MAX_], const char *dir, const char *name)
{
	if (snprintf(out, PATH_MAX_, "%s/%s", dir, name) >= PATH_MAX_)
		*out = '\0';
}

/* Opens without the page cache if the filesystem supports unaligned direct access: a peer must not
 * win by keeping the file in the kernel. */
static int open_peer(struct target *target, const char *path)
{
	char bytes[64] = {1};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0600);

	if (fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes) &&
	    pread(fd, bytes, sizeof(bytes), 0) == sizeof(bytes)) {
		snprintf(target->about, sizeof(target->about), "%.100s, opened with O_DIRECT",
			 target->dir);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	snprintf(target->about, sizeof(target->about),
		 "%.80s, without O_DIRECT (not taken): what it keeps in the page cache counts",
		 target->dir);
	return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void open_data(struct bench *bench, struct target *target)
{
	char path[PATH_MAX_];

	if (*target->absent)
		return;
	join(path, target->dir, "data");
	target->fd = target->kind == TARGET_PEER
			 ? open_peer(target, path)
			 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (target->fd < 0 ||
	    ftruncate(target->fd, (off_t)(bench->data.lanes * bench->data.region)))
		absent(target, path, errno);
}

/* --- daemons */

static int mountpoint(struct bench *bench, const char *name, char path[PATH_MAX_])
{
	join(path, bench->mounts, name);
	return mkdir(path, 0700) ? -errno : 0;
}

static void open_null(struct bench *bench)
{
	struct target *target = add(bench, "null FUSE", TARGET_NULL);
	char exe[PATH_MAX_], options[512];

	snprintf(target->about, sizeof(target->about),
		 "a FUSE daemon on gpumemfs's own session and threads, from memory to memory");
	snprintf(options, sizeof(options), "log_level=error%s%s",
		 bench->options.mount_options ? "," : "",
		 bench->options.mount_options ? bench->options.mount_options : "");
	join(exe, bench->exe_dir, "bench");
	char *arguments[] = {exe,  "--null-daemon", "null-fuse", target->dir, "-f",
			     "-o", options,	    NULL};
	int error = mountpoint(bench, "null", target->dir);
	pid_t pid = error ? error : process_mount(arguments, target->dir);

	if (pid < 0)
		absent(target, "the null daemon does not mount", -pid);
	else
		target->daemon = pid;
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
	join(path, mount, ".gpumem/params");
	FILE *file AUTO_FCLOSE = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			snprintf(value, 16, "%.*s", (int)strcspn(line + length + 1, " :\n"),
				 line + length + 1);
}

static void describe(const struct bench *bench, struct target *gpu, struct target *host,
		     const char *mount)
{
	char threads[16], uring[16];

	parameter(mount, "threads", threads);
	parameter(mount, "io_uring", uring);
	snprintf(gpu->about, sizeof(gpu->about),
		 "gpumemfs, gpu0/: memory of the GPU%s; %s threads, "
		 "io_uring %s, as the null daemon",
		 bench->options.backend == BENCH_HOST ? ", simulated in system memory" : "",
		 threads, uring);
	snprintf(host->about, sizeof(host->about),
		 "gpumemfs, host/: system memory, by the kernel "
		 "alone where it passes through");
}

/* In a build and in a bundle the daemon is in the folder above the bench; in an installation it is
 * among the system's programs. */
static void find_daemon(const struct bench *bench, char exe[PATH_MAX_])
{
	struct stat st;

	join(exe, bench->exe_dir, "../gpumemfs");
	if (stat(exe, &st) < 0 || !S_ISREG(st.st_mode))
		join(exe, bench->exe_dir, "../../bin/gpumemfs");
}

static void open_gpumemfs(struct bench *bench)
{
	struct target *gpu = add(bench, "gpumemfs", TARGET_GPU);
	struct target *host = add(bench, "host/", TARGET_HOST);
	char exe[PATH_MAX_], options[512], mount[PATH_MAX_];

	snprintf(options, sizeof(options), "backend=%s,log_level=error%s%s", backend_name(bench),
		 bench->options.mount_options ? "," : "",
		 bench->options.mount_options ? bench->options.mount_options : "");
	find_daemon(bench, exe);
	char *arguments[] = {exe, "-f", mount, "-o", options, NULL};
	int error = mountpoint(bench, "gpumemfs", mount);
	pid_t pid = error ? error : process_mount(arguments, mount);

	if (pid < 0) {
		absent(gpu, "gpumemfs does not mount", -pid);
		absent(host, "gpumemfs does not mount", -pid);
		return;
	}
	gpu->daemon = pid; /* both targets use this daemon, but only gpu has the pid, so the daemon
			      is ended once */
	join(gpu->dir, mount, "gpu0");
	join(gpu->other, mount, "gpu1");
	if (access(gpu->other, X_OK))
		*gpu->other = '\0';
	join(host->dir, mount, "host");
	describe(bench, gpu, host, mount);
}

/* --- other targets */

static void open_raw(struct bench *bench)
{
	struct target *copy = add(bench, "raw copy", TARGET_RAW_COPY);
	struct target *bar = add(bench, "raw BAR", TARGET_RAW_BAR);
	char why[WHY_MAX] = "no memory";

	bench->raw = bench->options.backend == BENCH_HOST
			 ? raw_memory_open(&bench->data, targets_file_bytes(bench), why)
			 : raw_cuda_open(&bench->data, targets_file_bytes(bench), why);
	copy->raw = bar->raw = bench->raw;
	if (!bench->raw) {
		memcpy(copy->absent, why, WHY_MAX);
		memcpy(bar->absent, why, WHY_MAX);
		return;
	}
	copy->ops = bench->raw->copy_ops;
	bar->ops = bench->raw->bar_ops;
	memcpy(copy->about, bench->raw->copy_about, WHY_MAX);
	memcpy(bar->about, bench->raw->bar_about, WHY_MAX);
	memcpy(bar->absent, bench->raw->bar_absent, WHY_MAX);
}

static void open_tmpfs(struct bench *bench)
{
	struct target *target = add(bench, "tmpfs", TARGET_TMPFS);

	snprintf(target->about, sizeof(target->about), "%s",
		 bench->own_tmpfs ? "a mount for this run" : SHM);
	snprintf(target->dir, sizeof(target->dir), "%s", bench->scratch);
}

static void open_peers(struct bench *bench)
{
	for (unsigned i = 0; i < bench->options.n_peers; i++) {
		const struct peer *peer = &bench->options.peers[i];
		struct target *target = add(bench, peer->name, TARGET_PEER);

		join(target->dir, peer->dir, "gpumem-bench.XXXXXX");
		if (!mkdtemp(target->dir)) {
			absent(target, peer->dir, errno);
			*target->dir = '\0';
		}
	}
}

static bool has_room(const char *dir, uint64_t bytes)
{
	struct statfs fs;

	return statfs(dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC_ &&
	       (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= bytes;
}

/* The source files of dd and cp are in memory: a disk would limit the rate. In containers with a
 * small /dev/shm the bench mounts its own tmpfs. */
static int open_scratch(struct bench *bench)
{
	uint64_t bytes = bench->data.lanes * bench->data.region + 4 * targets_file_bytes(bench);

	snprintf(bench->mounts, sizeof(bench->mounts), "/tmp/gpumem-bench.XXXXXX");
	if (!mkdtemp(bench->mounts)) {
		fprintf(stderr, "bench: %s: %m\n", bench->mounts);
		*bench->mounts = '\0';
		return -1;
	}
	if (has_room(SHM, bytes)) {
		snprintf(bench->scratch, sizeof(bench->scratch), SHM "/gpumem-bench.XXXXXX");
		if (mkdtemp(bench->scratch))
			return 0;
	}
	join(bench->scratch, bench->mounts, "tmpfs");
	if (mkdir(bench->scratch, 0700) == 0 &&
	    mount("tmpfs", bench->scratch, "tmpfs", MS_NOSUID | MS_NODEV, "size=50%") == 0) {
		bench->own_tmpfs = true;
		return 0;
	}
	fprintf(stderr,
		"bench: " SHM " has no room for %llu MiB, and no tmpfs can be mounted: %m\n",
		(unsigned long long)bytes >> 20);
	return -1;
}

int targets_open(struct bench *bench)
{
	int error = open_scratch(bench);

	if (error)
		return error;
	/* Start child processes before CUDA, which does not survive a fork. The order of the calls
	 * is the order of the report's columns. */
	open_null(bench);
	open_gpumemfs(bench);
	open_tmpfs(bench);
	open_peers(bench);
	open_raw(bench);
	for (unsigned i = 0; i < bench->n_targets; i++)
		if (!target_is_raw(&bench->targets[i]))
			open_data(bench, &bench->targets[i]);
	return 0;
}

/* Removes a folder made by the bench, with its files. */
static void remove_folder(const char *dir)
{
	char *arguments[] = {"rm", "-rf", "--", (char *)dir, NULL};

	process_run(arguments, NULL);
}

void targets_close(struct bench *bench)
{
	char path[PATH_MAX_];

	for (unsigned i = 0; i < bench->n_targets; i++) {
		struct target *target = &bench->targets[i];

		if (target->fd >= 0)
			close(target->fd);
		if (target->kind == TARGET_PEER && *target->dir)
			remove_folder(target->dir);
	}
	if (bench->raw)
		bench->raw->close(bench->raw);
	for (unsigned i = 0; i < bench->n_targets; i++) {
		struct target *target = &bench->targets[i];

		join(path, bench->mounts, target->kind == TARGET_NULL ? "null" : "gpumemfs");
		if (target->daemon)
			process_unmount(target->daemon, path);
	}
	if (bench->own_tmpfs)
		umount2(bench->scratch, MNT_DETACH);
	if (*bench->scratch)
		remove_folder(bench->scratch);
	if (!*bench->mounts)
		return;
	/* Remove empty folders only: if an unmount failed, the mounted files must stay. */
	join(path, bench->mounts, "null");
	rmdir(path);
	join(path, bench->mounts, "gpumemfs");
	rmdir(path);
	rmdir(bench->mounts);
}

uint64_t targets_file_bytes(const struct bench *bench)
{
	uint64_t bytes = bench->data.lanes * bench->data.region / 4;

	return bench->options.form == FORM_QUICK ? bytes
	       : bytes < 256ULL << 20		 ? bytes
						 : 256ULL << 20;
}
