/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem: the cost of its calls, and the time from a path to a device pointer. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/gpumem.h"
#include "tests/bench/cases.h"
#include "tests/bench/measure.h"
#include "tests/bench/raw.h"
#include "tests/bench/report.h"
#include "tests/bench/targets.h"
#include "tests/bench/whole.h"

#define ROUNDS_MAX 1000
#define ROUNDS_MIN 3
#define SMALL	   4096

/* Targets without a mapping have no calls. */
static bool not_ours(const struct target *target, unsigned n, struct figure *figures)
{
	for (unsigned i = 0; i < n && !target_is_gpumemfs(target); i++)
		figure_skip(&figures[i], "libgpumem maps files of gpumemfs only");
	return !target_is_gpumemfs(target);
}

/* Compares the bytes at the GPU's address, copied by the driver, with the file's first bytes: 0 or
 * -EILSEQ. */
static int check_device(const struct bench *bench, unsigned long long address)
{
	char *sink = data_sink(&bench->data, 0);

	data_poison(sink, SMALL);
	return bench->raw->fetch(bench->raw, sink, address, SMALL) == 0 &&
		       data_is_right(&bench->data, 0, 0, sink, SMALL)
		   ? 0
		   : -EILSEQ;
}

/* Without a GPU there is no device pointer. With a GPU, a missing device pointer is a fault. */
static void no_device(const struct bench *bench, struct figure *figure, const char *why)
{
	if (bench->options.backend == BENCH_HOST)
		figure_skip(figure, "%.150s", why);
	else
		figure_wrong(figure, "%.150s", why);
}

static void use_context(const struct bench *bench)
{
	if (bench->raw)
		bench->raw->use(bench->raw);
}

static void size_label(char *label, const char *what, uint64_t bytes)
{
	char size[FIGURE_TEXT_MAX];

	snprintf(label, LABEL_MAX, "%s%s", what, report_size(bytes, size));
}

/* --- from a path to a device pointer */

static void pointer_points(struct bench *bench)
{
	const uint64_t sizes[] = {SMALL, targets_file_bytes(bench)};

	for (unsigned i = 0; i < 2; i++) {
		struct point point = {.bytes = sizes[i], .lanes = 1, .unit = UNIT_SECONDS};

		size_label(point.label, "a file of ", sizes[i]);
		point_add(bench, &point);
	}
}

/* A round: the seconds, or -errno through error with the library's text. */
static double open_and_map(struct bench *bench, const char *path, bool verify, int *error)
{
	unsigned long long address;
	double start = measure_now(), seconds;
	gpumem *file = gpumem_open(path, O_RDWR);

	*error = !file || gpumem_map_device(file, &address, NULL) < 0 ? -errno : 0;
	seconds = measure_now() - start;
	if (!*error && verify)
		*error = check_device(bench, address);
	gpumem_close(file);
	return seconds;
}

static void time_pointers(struct bench *bench, const char *path, struct figure *figure)
{
	double times[ROUNDS_MAX], end = measure_now() + bench->window;
	unsigned n = 0;
	int error;

	use_context(bench);
	open_and_map(bench, path, true, &error); /* and the cost of the first mapping alone */
	figure->verified = !error;
	if (error == -EILSEQ) {
		figure_wrong(figure, "the GPU sees other bytes than the file's");
		return;
	}
	if (error) {
		no_device(bench, figure, gpumem_error());
		return;
	}
	while (!error && n < ROUNDS_MAX && (n < ROUNDS_MIN || measure_now() < end))
		times[n++] = open_and_map(bench, path, false, &error);
	if (error)
		figure_wrong(figure, "%.150s", gpumem_error());
	else
		figure_good(figure, measure_percentile(times, n, 0.5),
			    measure_percentile(times, n, 0.99));
}

static void run_pointer(struct bench *bench, const struct point *point, unsigned n,
			struct target *target, struct figure *figure)
{
	char path[PATH_MAX_];

	if (not_ours(target, n, figure))
		return;
	whole_path(path, target->dir, "pointer");
	int error = whole_make(bench, path, point->bytes);

	if (error)
		whole_explain(figure, "preparing", error);
	else
		time_pointers(bench, path, figure);
	unlink(path);
}

const struct bench_case case_pointer = {
    .name = "pointer",
    .about =
	"gpumem_open and gpumem_map_device of a file that is there, until the device pointer is "
	"in hand; the process has its CUDA context already; host/: its memory is pinned for the "
	"GPU",
    .points = pointer_points,
    .run = run_pointer,
};

/* --- every call */

enum call {
	OPEN,
	GET_INFO,
	MAP_DEVICE,
	UNMAP_DEVICE,
	MAP_HOST,
	FLUSH,
	EXTEND,
	UNMAP_HOST,
	CLOSE,
	CALLS
};

static const char *const call_names[CALLS] = {
    "open ",  "get_info ",	    "map_device ", "unmap_device ", "map_host ",
    "flush ", "extend, no growth ", "unmap_host ", "close "};

static void call_points(struct bench *bench)
{
	const uint64_t sizes[] = {SMALL, targets_file_bytes(bench)};

	for (unsigned i = 0; i < 2; i++)
		for (unsigned call = OPEN; call < CALLS; call++) {
			struct point point = {
			    .bytes = sizes[i], .lanes = 1, .variant = call, .unit = UNIT_SECONDS};

			size_label(point.label, call_names[call], sizes[i]);
			point_add(bench, &point);
		}
}

/* Times of all calls on a file, and the reasons why device or host calls were not possible. */
struct calls {
	struct bench *bench;
	double times[CALLS][ROUNDS_MAX];
	unsigned n;
	char device_why[WHY_MAX], host_why[WHY_MAX];
	bool device_right, host_right;
};

static double lap(double *since)
{
	double now = measure_now(), took = now - *since;

	*since = now;
	return took;
}

static void call_device(struct calls *calls, gpumem *file, unsigned i)
{
	unsigned long long address;
	double at = measure_now();

	if (*calls->device_why)
		return;
	if (gpumem_map_device(file, &address, NULL) < 0) {
		snprintf(calls->device_why, WHY_MAX, "%.150s", gpumem_error());
		return;
	}
	calls->times[MAP_DEVICE][i] = lap(&at);
	if (i == 0)
		calls->device_right = check_device(calls->bench, address) == 0;
	at = measure_now();
	gpumem_unmap_device(file);
	calls->times[UNMAP_DEVICE][i] = lap(&at);
}

static void call_host(struct calls *calls, gpumem *file, unsigned i)
{
	void *memory;
	size_t bytes;
	double at = measure_now();

	if (*calls->host_why)
		return;
	if (gpumem_map_host(file, &memory, &bytes) < 0) {
		snprintf(calls->host_why, WHY_MAX, "%.150s", gpumem_error());
		return;
	}
	calls->times[MAP_HOST][i] = lap(&at);
	if (i == 0)
		calls->host_right = data_is_right(&calls->bench->data, 0, 0, memory, SMALL);
	at = measure_now();
	gpumem_flush(file);
	calls->times[FLUSH][i] = lap(&at);
	gpumem_extend(file);
	calls->times[EXTEND][i] = lap(&at);
	gpumem_unmap_host(file);
	calls->times[UNMAP_HOST][i] = lap(&at);
}

/* Makes every call on the file: 0 or -errno. */
static int call_all(struct calls *calls, const char *path, unsigned i)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	double at = measure_now();
	gpumem *file = gpumem_open(path, O_RDWR);

	if (!file)
		return -errno;
	calls->times[OPEN][i] = lap(&at);
	gpumem_get_info(file, &info);
	calls->times[GET_INFO][i] = lap(&at);
	call_device(calls, file, i);
	call_host(calls, file, i);
	at = measure_now();
	gpumem_close(file);
	calls->times[CLOSE][i] = lap(&at);
	return 0;
}

static void conclude_call(struct calls *calls, enum call call, struct figure *figure)
{
	bool device = call == MAP_DEVICE || call == UNMAP_DEVICE;
	bool host = call >= MAP_HOST && call <= UNMAP_HOST;
	const char *why = device ? calls->device_why : host ? calls->host_why : "";

	if (*why && device) {
		no_device(calls->bench, figure, why);
		return;
	}
	if (*why) {
		figure_skip(figure, "%s", why);
		return;
	}
	/* The other calls move no bytes: they were right if the opened file was. */
	figure->verified = device ? calls->device_right
			   : host ? calls->host_right
				  : calls->device_right || calls->host_right;
	if (!figure->verified) {
		figure_wrong(figure, "what is mapped is not the file's");
		return;
	}
	figure_good(figure, measure_percentile(calls->times[call], calls->n, 0.5),
		    measure_percentile(calls->times[call], calls->n, 0.99));
}

static void time_calls(struct bench *bench, const char *path, struct figure *figures)
{
	static struct calls calls; /* large */
	double end;
	int error;

	calls = (struct calls){.bench = bench};
	use_context(bench);
	error = call_all(&calls, path, 0); /* and the cost of the first call alone */
	end = measure_now() + bench->window;
	while (!error && calls.n < ROUNDS_MAX && (calls.n < ROUNDS_MIN || measure_now() < end)) {
		error = call_all(&calls, path, calls.n);
		calls.n++;
	}
	for (unsigned call = OPEN; call < CALLS; call++)
		if (error)
			figure_wrong(&figures[call], "%.150s", gpumem_error());
		else
			conclude_call(&calls, (enum call)call, &figures[call]);
}

static void run_calls(struct bench *bench, const struct point *points, unsigned n,
		      struct target *target, struct figure *figures)
{
	char path[PATH_MAX_];

	if (not_ours(target, n, figures))
		return;
	whole_path(path, target->dir, "calls");
	for (unsigned first = 0; first < n; first += CALLS) {
		int error = whole_make(bench, path, points[first].bytes);

		if (!error)
			time_calls(bench, path, &figures[first]);
		for (unsigned i = 0; error && i < CALLS; i++)
			whole_explain(&figures[first + i], "preparing", error);
	}
	unlink(path);
}

const struct bench_case case_calls = {
    .name = "calls",
    .about = "each call of libgpumem by itself, on a file that is there",
    .rounds = CASE_TOGETHER,
    .points = call_points,
    .run = run_calls,
};
