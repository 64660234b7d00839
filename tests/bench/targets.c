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
#include "tests/bench/daemons.h"
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

struct target *target_add(struct bench *bench, const char *name, enum target_kind kind)
{
	struct target *target = &bench->targets[bench->n_targets++];

	*target = (struct target){.name = name, .kind = kind, .ops = &file_ops, .fd = -1};
	return target;
}

void target_absent(struct target *target, const char *what, int error)
{
	snprintf(target->absent, sizeof(target->absent), "%s: %s", what, strerror(error));
}

void path_join(char out[PATH_MAX_], const char *dir, const char *name)
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
	path_join(path, target->dir, "data");
	target->fd = target->kind == TARGET_PEER
			 ? open_peer(target, path)
			 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (target->fd < 0 ||
	    ftruncate(target->fd, (off_t)(bench->data.lanes * bench->data.region)))
		target_absent(target, path, errno);
}

/* --- other targets */

static void open_raw(struct bench *bench)
{
	struct target *copy = target_add(bench, "raw copy", TARGET_RAW_COPY);
	struct target *bar = target_add(bench, "raw BAR", TARGET_RAW_BAR);
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
	struct target *target = target_add(bench, "tmpfs", TARGET_TMPFS);

	snprintf(target->about, sizeof(target->about), "%s",
		 bench->own_tmpfs ? "a mount for this run" : SHM);
	snprintf(target->dir, sizeof(target->dir), "%s", bench->scratch);
}

static void open_peers(struct bench *bench)
{
	for (unsigned i = 0; i < bench->options.n_peers; i++) {
		const struct peer *peer = &bench->options.peers[i];
		struct target *target = target_add(bench, peer->name, TARGET_PEER);

		path_join(target->dir, peer->dir, "gpumem-bench.XXXXXX");
		if (!mkdtemp(target->dir)) {
			target_absent(target, peer->dir, errno);
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
	path_join(bench->scratch, bench->mounts, "tmpfs");
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
	daemons_open(bench);
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

		if (target->daemon)
			process_unmount(target->daemon, target->mount);
		/* Remove empty folders only: if an unmount failed, the mounted files must stay. */
		if (*target->mount)
			rmdir(target->mount);
	}
	if (bench->own_tmpfs)
		umount2(bench->scratch, MNT_DETACH);
	if (*bench->scratch)
		remove_folder(bench->scratch);
	if (*bench->mounts)
		rmdir(bench->mounts);
}

uint64_t targets_file_bytes(const struct bench *bench)
{
	uint64_t bytes = bench->data.lanes * bench->data.region / 4;

	return bench->options.form == FORM_QUICK ? bytes
	       : bytes < 256ULL << 20		 ? bytes
						 : 256ULL << 20;
}
