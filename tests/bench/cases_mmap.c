/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Bytes through mappings: plain mmap of files, and the client library's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "client/lib/gpumem.h"
#include "common/cleanup.h"
#include "tests/bench/cases.h"
#include "tests/bench/measure.h"
#include "tests/bench/targets.h"
#include "tests/bench/whole.h"

#define MAP_BYTES (64ULL << 20)

enum way {
	PLAIN_STORE,
	PLAIN_LOAD_FIRST,
	PLAIN_LOAD_AGAIN,
	CLIENT_STORE,
	CLIENT_LOAD,
	CLIENT_LOAD_PLAIN
};

static void points(struct bench *bench)
{
	static const char *const labels[] = {"mmap: store, msync",     "mmap: load, first touch",
					     "mmap: load, again",      "client: store, flush",
					     "client: streaming load", "client: plain load"};
	uint64_t bytes = targets_file_bytes(bench);

	for (unsigned i = PLAIN_STORE; i <= CLIENT_LOAD_PLAIN; i++) {
		struct point point = {.bytes = bytes < MAP_BYTES ? bytes : MAP_BYTES,
				      .lanes = 1,
				      .variant = i,
				      .unit = UNIT_RATE};

		/* This way moves some 60 MB/s: limit the bytes, so that a repetition stays short.
		 */
		if (i == CLIENT_LOAD_PLAIN && point.bytes > bench->data.block)
			point.bytes = bench->data.block;
		snprintf(point.label, sizeof(point.label), "%s", labels[i]);
		point_add(bench, &point);
	}
}

static void prepare(struct bench *bench, const struct point *points_)
{
	(void)points_;
	data_stamp(&bench->data);
}

/* Loads every byte into the first lane's sink. */
static void load_all(const struct bench *bench, const char *memory, uint64_t bytes, enum way way)
{
	const struct data *data = &bench->data;

	for (uint64_t at = 0; at < bytes; at += data->block) {
		size_t piece = bytes - at < data->block ? bytes - at : data->block;

		if (way == CLIENT_LOAD)
			stream_load(data_sink(data, 0), memory + at, piece);
		else
			memcpy(data_sink(data, 0), memory + at, piece);
		__asm__ volatile("" ::: "memory");
	}
}

static void store_all(const struct bench *bench, char *memory, uint64_t bytes)
{
	const struct data *data = &bench->data;

	for (uint64_t at = 0; at < bytes; at += data->block)
		memcpy(memory + at, data_source(data, 0),
		       bytes - at < data->block ? bytes - at : data->block);
}

/* Makes a file of the right size: filled for loads, empty for stores. */
static int make_file(const struct bench *bench, const struct point *point, const char *path)
{
	if (point->variant != PLAIN_STORE && point->variant != CLIENT_STORE)
		return whole_make(bench, path, point->bytes);
	int fd AUTO_CLOSE = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	/* Allocate the memory now: the case measures mapping, not allocation. */
	return fallocate(fd, 0, 0, (off_t)point->bytes) && ftruncate(fd, (off_t)point->bytes)
		   ? -errno
		   : 0;
}

static void time_plain(struct bench *bench, const struct point *point, const char *path,
		       struct figure *figure)
{
	int fd AUTO_CLOSE = open(path, O_RDWR | O_CLOEXEC);
	int error = 0;

	if (fd >= 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	double start = measure_now();
	char *memory = fd < 0 ? MAP_FAILED
			      : mmap(NULL, point->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED) {
		figure_skip(figure, "mmap: %s", strerror(errno));
		return;
	}
	if (point->variant == PLAIN_STORE) {
		store_all(bench, memory, point->bytes);
		error = msync(memory, point->bytes, MS_SYNC) ? -errno : 0;
	} else {
		load_all(bench, memory, point->bytes, PLAIN_LOAD_FIRST);
		if (point->variant == PLAIN_LOAD_AGAIN) {
			start = measure_now();
			load_all(bench, memory, point->bytes, PLAIN_LOAD_FIRST);
		}
	}
	double seconds = measure_now() - start;

	if (point->variant != PLAIN_STORE && !whole_is_right(bench, memory, point->bytes))
		error = -EILSEQ;
	munmap(memory, point->bytes);
	if (!error && point->variant == PLAIN_STORE)
		error = whole_check(bench, path, point->bytes);
	figure->verified = true;
	figure_good(figure, (double)point->bytes / seconds, 0);
	if (error)
		whole_explain(figure, "mmap", error);
}

static void time_client(struct bench *bench, const struct point *point, const char *path,
			struct figure *figure)
{
	gpumem *file = gpumem_open(path, O_RDWR);
	void *memory;
	size_t bytes;
	int error = 0;

	if (!file || gpumem_map_host(file, &memory, &bytes) < 0) {
		figure_skip(figure, "%.150s", gpumem_error());
		gpumem_close(file);
		return;
	}
	double start = measure_now();

	if (point->variant == CLIENT_STORE) {
		store_all(bench, memory, point->bytes);
		error = gpumem_flush(file) ? -errno : 0;
	} else {
		load_all(bench, memory, point->bytes, (enum way)point->variant);
	}
	double seconds = measure_now() - start;

	/* The sink still has the block that was loaded last: verify this block. */
	if (point->variant != CLIENT_STORE &&
	    !data_is_right(&bench->data, 0, 0, data_sink(&bench->data, 0),
			   point->bytes < bench->data.block ? point->bytes : bench->data.block))
		error = -EILSEQ;
	gpumem_close(file);
	if (!error && point->variant == CLIENT_STORE)
		error = whole_check(bench, path, point->bytes);
	figure->verified = true;
	figure_good(figure, (double)point->bytes / seconds, 0);
	if (error)
		whole_explain(figure, "mapping", error);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	bool client = point->variant >= CLIENT_STORE;
	char path[PATH_MAX_];

	(void)n;
	if (target_is_raw(target)) {
		figure_skip(figure, "no filesystem");
		return;
	}
	if (client && !target_is_gpumemfs(target)) {
		figure_skip(figure, "libgpumem maps files of gpumemfs only");
		return;
	}
	whole_path(path, target->dir, "mapped");
	data_poison(data_sink(&bench->data, 0), bench->data.block);
	int error = make_file(bench, point, path);

	if (error)
		whole_explain(figure, "preparing", error);
	else if (client)
		time_client(bench, point, path, figure);
	else
		time_plain(bench, point, path, figure);
	unlink(path);
}

const struct bench_case case_mmap = {
    .name = "mmap",
    .about = "one pass over a file's mapping. mmap: on FUSE, page faults through the page cache, "
	     "which was emptied before (but for 'again'), and msync writes back; host/ and tmpfs: "
	     "their own pages. client: libgpumem's mapping, through the BAR on a GPU",
    .points = points,
    .prepare = prepare,
    .run = run,
};
