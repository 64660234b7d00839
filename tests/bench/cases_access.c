/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Single stores and loads through a mapping, by size, with warm and with cold CPU caches. */
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
#include "tests/bench/raw.h"
#include "tests/bench/report.h"
#include "tests/bench/whole.h"

#define SAMPLES	    4096
#define SAMPLES_MIN 5
/* A warm access of few bytes is shorter than a reading of the clock: time this many accesses
 * together. */
#define BATCH	    32
#define BATCH_BYTES 4096
#define LINE	    64

enum access { STORE_WARM, STORE_COLD, LOAD_WARM, LOAD_COLD, ACCESSES };

#if defined(__x86_64__)
#define CAN_FLUSH true
static void flush_line(const char *at)
{
	__builtin_ia32_clflush(at);
}

static void flush_wait(void)
{
	__builtin_ia32_mfence();
}
#elif defined(__aarch64__)
#define CAN_FLUSH true
static void flush_line(const char *at)
{
	__asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
}

static void flush_wait(void)
{
	__asm__ volatile("dsb sy" : : : "memory");
}
#else
#define CAN_FLUSH false
static void flush_line(const char *at)
{
	(void)at;
}

static void flush_wait(void)
{
}
#endif

static void flush(const char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE)
		flush_line(at + i);
	flush_line(at + bytes - 1);
	flush_wait();
}

static void points(struct bench *bench)
{
	static const uint64_t sizes[] = {8, 64, 512, 4096, 65536, 1 << 20};
	static const char *const labels[ACCESSES] = {"store ", "store cold ", "load ",
						     "load cold "};

	for (unsigned access = 0; access < ACCESSES; access++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct point point = {
			    .bytes = sizes[i], .lanes = 1, .variant = access, .unit = UNIT_SECONDS};
			char size[FIGURE_TEXT_MAX];

			snprintf(point.label, sizeof(point.label), "%s%s", labels[access],
				 report_size(sizes[i], size));
			point_add(bench, &point);
		}
}

struct place {
	struct target *raw; /* owner of the memory, where there is no file */
	char *memory;
	bool streaming; /* the memory is write-combined */
};

static void store(const struct place *place, const char *from, size_t bytes)
{
	if (place->streaming)
		stream_store(place->memory, from, bytes);
	else
		memcpy(place->memory, from, bytes);
	stream_fence();
}

static void load(const struct place *place, char *to, size_t bytes)
{
	if (place->streaming)
		stream_load(to, place->memory, bytes);
	else
		memcpy(to, place->memory, bytes);
	__asm__ volatile("" ::: "memory");
}

static bool stores(const struct point *point)
{
	return point->variant == STORE_WARM || point->variant == STORE_COLD;
}

static void access_once(const struct data *data, const struct point *point,
			const struct place *place)
{
	if (stores(point))
		store(place, data_source(data, 0), point->bytes);
	else
		load(place, data_sink(data, 0), point->bytes);
}

/* The seconds that reading the clock twice takes. */
static double clock_cost(void)
{
	double times[101];

	for (unsigned i = 0; i < 101; i++) {
		double start = measure_now();

		times[i] = measure_now() - start;
	}
	return measure_median(times, 101);
}

/* Seconds of a single access, without the time of reading the clock. */
static double sample(const struct data *data, const struct point *point, const struct place *place,
		     double clock)
{
	bool cold = point->variant == STORE_COLD || point->variant == LOAD_COLD;
	unsigned batch = !cold && point->bytes <= BATCH_BYTES ? BATCH : 1;

	if (cold)
		flush(place->memory, point->bytes);
	if (cold)
		flush(stores(point) ? data_source(data, 0) : data_sink(data, 0), point->bytes);
	double start = measure_now();

	for (unsigned i = 0; i < batch; i++)
		access_once(data, point, place);
	double seconds = (measure_now() - start - clock) / batch;

	return seconds > 0 ? seconds : 0;
}

static void time_access(const struct bench *bench, const struct point *point,
			const struct place *place, struct figure *figure)
{
	static double times[SAMPLES];
	double clock = clock_cost(), end = measure_now() + bench->window;
	unsigned n = 0;

	access_once(&bench->data, point, place);
	while (n < SAMPLES && (n < SAMPLES_MIN || measure_now() < end))
		times[n++] = sample(&bench->data, point, place, clock);
	figure_good(figure, measure_percentile(times, n, 0.5), measure_percentile(times, n, 0.99));
}

/* A stored piece is read by another path. A loaded piece is compared with bytes written by another
 * path. */
static int check(const struct bench *bench, const struct point *point, const struct place *place,
		 int fd)
{
	char *sink = data_sink(&bench->data, 0);

	if (stores(point)) {
		data_poison(sink, point->bytes);
		if (place->raw) {
			int error = place->raw->ops->enter(place->raw, 0);
			ssize_t n =
			    error ? error
				  : place->raw->ops->read(place->raw, 0, sink, point->bytes, 0);
			if (n < 0)
				return (int)n;
		} else if (pread(fd, sink, point->bytes, 0) != (ssize_t)point->bytes) {
			return errno ? -errno : -EIO;
		}
	}
	return data_is_right(&bench->data, 0, 0, sink, point->bytes) ? 0 : -EILSEQ;
}

static void measure(const struct bench *bench, const struct point *point, const struct place *place,
		    int fd, struct figure *figure)
{
	bool cold = point->variant == STORE_COLD || point->variant == LOAD_COLD;

	if (cold && !CAN_FLUSH) {
		figure_skip(figure, "no way to flush this CPU's caches");
		return;
	}
	data_poison(data_sink(&bench->data, 0), point->bytes);
	time_access(bench, point, place, figure);
	int error = check(bench, point, place, fd);

	figure->verified = !error;
	if (error)
		whole_explain(figure, "accessing", error);
}

static void run_client(const struct bench *bench, const struct point *point, const char *path,
		       int fd, struct figure *figure)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	gpumem *file = gpumem_open(path, O_RDWR);
	void *memory;
	size_t bytes;

	if (!file || gpumem_map_host(file, &memory, &bytes) < 0 ||
	    gpumem_get_info(file, &info) < 0) {
		figure_skip(figure, "%.150s", gpumem_error());
	} else {
		struct place place = {.memory = memory,
				      .streaming = info.kind == GPUMEM_FILE_DEVICE};

		measure(bench, point, &place, fd, figure);
	}
	gpumem_close(file);
}

static void run_plain(const struct bench *bench, const struct point *point, int fd,
		      struct figure *figure)
{
	void *memory =
	    mmap(NULL, point->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (memory == MAP_FAILED) {
		figure_skip(figure, "mmap: %s", strerror(errno));
		return;
	}
	struct place place = {.memory = memory};

	measure(bench, point, &place, fd, figure);
	munmap(memory, point->bytes);
}

static void run_file(const struct bench *bench, const struct point *point,
		     const struct target *target, struct figure *figure)
{
	char path[PATH_MAX_];

	whole_path(path, target->dir, "accessed");
	int error = whole_make(bench, path, bench->data.block);
	int fd AUTO_CLOSE = error ? -1 : open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		whole_explain(figure, "preparing", error ? error : -errno);
	else if (target_is_gpumemfs(target))
		run_client(bench, point, path, fd, figure);
	else
		run_plain(bench, point, fd, figure);
	unlink(path);
}

/* Stores through the BAR, reads back by the GPU's copy: the two raw targets share their memory. */
static void run_raw(struct bench *bench, const struct point *point, struct target *target,
		    struct figure *figure)
{
	struct target copy = *target;
	struct place place = {.raw = &copy, .memory = target->raw->bar, .streaming = true};

	copy.ops = target->raw->copy_ops;
	for (unsigned i = 0; i < bench->n_targets; i++)
		if (target_is_raw(&bench->targets[i]))
			bench->targets[i].content = 0;
	if (!stores(point))
		store(&place, data_source(&bench->data, 0), point->bytes);
	measure(bench, point, &place, -1, figure);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	(void)n;
	switch (target->kind) {
	case TARGET_RAW_BAR:
		run_raw(bench, point, target, figure);
		return;
	case TARGET_GPU:
	case TARGET_HOST:
	case TARGET_TMPFS:
		run_file(bench, point, target, figure);
		return;
	default:
		figure_skip(figure, "not memory that the CPU maps");
	}
}

/* Every point uses different bytes. */
static void prepare(struct bench *bench, const struct point *points_)
{
	(void)points_;
	data_stamp(&bench->data);
}

const struct bench_case case_access = {
    .name = "access",
    .about =
	"one store with its fence, or one load, through a mapping: libgpumem's for gpumemfs "
	"(streaming ones on a GPU), mmap for tmpfs. The same place over and over; cold: mapping "
	"and buffer flushed from the CPU's caches before each (what is write-combined is in none)",
    .points = points,
    .prepare = prepare,
    .run = run,
};
