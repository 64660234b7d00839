/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* bench: the cost of gpumemfs beside the rates of the machine and of FUSE. See --help. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/number.h"
#include "tests/bench/cases.h"
#include "tests/bench/measure.h"
#include "tests/bench/null_daemon.h"
#include "tests/bench/raw.h"
#include "tests/bench/report.h"
#include "tests/bench/targets.h"

#define USAGE 2

/* The memory case runs first: after other cases the daemon's heap has free room. The following
 * cases are ordered by importance, because the budget may cut off the last cases. */
const struct bench_case *const bench_cases[] = {
    &case_memory, &case_read,	&case_random,	&case_storm,   &case_write, &case_processor,
    &case_copy,	  &case_names,	&case_crowd,	&case_command, &case_mmap,  &case_pointer,
    &case_calls,  &case_access, &case_pingpong, NULL};

static const char help[] =
    "usage: bench [OPTION]...\n"
    "Measures gpumemfs, the ceilings above it and the floor below it, interleaved in one run.\n"
    "\n"
    "  --backend cuda|host|standin   whose memory (default: cuda where there is a GPU, else host)\n"
    "  --peer NAME=DIR               measure the filesystem mounted at DIR too (up to 4 times)\n"
    "  --quick                       small and short, to see that every case works\n"
    "  --long                        a million files, and more time\n"
    "  --only CASE[,CASE]...         these cases (--list shows them)\n"
    "  --point LABEL                 of these cases the points with this label (up to 8 times), "
    "where\n"
    "                                points are measured one by one\n"
    "  --reps N                      repetitions, whose median counts (default 5)\n"
    "  --size SIZE                   each thread's part of the large file (default 64M, or what\n"
    "                                memory allows; a multiple of the largest operation, 16M)\n"
    "  --budget SECONDS              time for all measuring (default 300)\n"
    "  --mount-options OPTIONS       for gpumemfs and the null daemon\n"
    "  --json FILE  --svg FILE       write these too\n"
    "  --list                        the cases, and what they time\n"
    "\n"
    "Exit status: 0; 1 where a case failed, or moved bytes that are not right; 2 for bad usage.\n";

enum {
	OPT_BACKEND = 256,
	OPT_PEER,
	OPT_QUICK,
	OPT_LONG,
	OPT_ONLY,
	OPT_POINT,
	OPT_REPS,
	OPT_SIZE,
	OPT_BUDGET,
	OPT_MOUNT_OPTIONS,
	OPT_JSON,
	OPT_SVG,
	OPT_LIST,
	OPT_HELP
};

static const struct option long_options[] = {
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"peer", required_argument, NULL, OPT_PEER},
    {"quick", no_argument, NULL, OPT_QUICK},
    {"long", no_argument, NULL, OPT_LONG},
    {"only", required_argument, NULL, OPT_ONLY},
    {"point", required_argument, NULL, OPT_POINT},
    {"reps", required_argument, NULL, OPT_REPS},
    {"size", required_argument, NULL, OPT_SIZE},
    {"budget", required_argument, NULL, OPT_BUDGET},
    {"mount-options", required_argument, NULL, OPT_MOUNT_OPTIONS},
    {"json", required_argument, NULL, OPT_JSON},
    {"svg", required_argument, NULL, OPT_SVG},
    {"list", no_argument, NULL, OPT_LIST},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static void list_cases(void)
{
	for (unsigned i = 0; bench_cases[i]; i++)
		printf("%-10s %s\n", bench_cases[i]->name, bench_cases[i]->about);
}

static int bad(const char *option, const char *text)
{
	fprintf(stderr, "bench: --%s %s: makes no sense (--help)\n", option, text);
	return -1;
}

static int parse_backend(const char *text, enum bench_backend *backend)
{
	static const char *const names[] = {"auto", "cuda", "host", "standin"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i]) == 0) {
			*backend = (enum bench_backend)i;
			return 0;
		}
	return bad("backend", text);
}

static int parse_peer(const char *text, struct options *options)
{
	size_t length = strcspn(text, "=");
	struct peer *peer = &options->peers[options->n_peers];

	if (options->n_peers == PEERS_MAX || length == 0 || length >= sizeof(peer->name) ||
	    !text[length] || !text[length + 1])
		return bad("peer", text);
	memcpy(peer->name, text, length);
	peer->dir = text + length + 1;
	options->n_peers++;
	return 0;
}

static bool is_case(const char *name, size_t length)
{
	for (unsigned i = 0; bench_cases[i]; i++)
		if (strlen(bench_cases[i]->name) == length &&
		    memcmp(bench_cases[i]->name, name, length) == 0)
			return true;
	return false;
}

static int parse_only(const char *text, struct options *options)
{
	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ",");

		if (!is_case(at, length))
			return bad("only", text);
		at += length;
		if (!*at)
			break;
	}
	options->only = text;
	return 0;
}

/* 0: go on; 1: --help or --list was printed; -1: error. */
static int parse_one(int option, const char *text, struct options *options)
{
	uint64_t number;

	switch (option) {
	case OPT_BACKEND:
		return parse_backend(text, &options->backend);
	case OPT_PEER:
		return parse_peer(text, options);
	case OPT_QUICK:
		options->form = FORM_QUICK;
		return 0;
	case OPT_LONG:
		options->form = FORM_LONG;
		return 0;
	case OPT_ONLY:
		return parse_only(text, options);
	case OPT_POINT:
		if (options->n_points == POINTS_MAX)
			return bad("point", text);
		options->points[options->n_points++] = text;
		return 0;
	case OPT_REPS:
		if (parse_u64(text, 1, REPS_MAX, &number) < 0)
			return bad("reps", text);
		options->reps = (unsigned)number;
		return 0;
	case OPT_SIZE:
		if (parse_size(text, &options->region) < 0 || options->region == 0)
			return bad("size", text);
		return 0;
	case OPT_BUDGET:
		if (parse_u64(text, 1, 86400, &number) < 0)
			return bad("budget", text);
		options->budget = (double)number;
		return 0;
	case OPT_MOUNT_OPTIONS:
		options->mount_options = text;
		return 0;
	case OPT_JSON:
		options->json = text;
		return 0;
	case OPT_SVG:
		options->svg = text;
		return 0;
	case OPT_LIST:
		list_cases();
		return 1;
	case OPT_HELP:
		fputs(help, stdout);
		return 1;
	default:
		return -1;
	}
}

static int parse(int argc, char **argv, struct options *options)
{
	int option, result = 0;

	options->form = FORM_DEFAULT;
	while (result == 0 && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		result = parse_one(option, optarg, options);
	if (result == 0 && optind != argc)
		return bad("only", argv[optind]);
	return result;
}

static int find_self(struct bench *bench)
{
	ssize_t n = readlink("/proc/self/exe", bench->exe_dir, sizeof(bench->exe_dir) - 1);
	char *slash = n > 0 ? strrchr(bench->exe_dir, '/') : NULL;

	if (!slash)
		return -1;
	*slash = '\0';
	return 0;
}

/* Starts the bench again with the stand-in driver's folder in LD_LIBRARY_PATH, because the loader
 * reads the path only at the start of a program. */
static int become_standin(const struct bench *bench, char **argv)
{
	char path[PATH_MAX_ + 32], exe[PATH_MAX_ + 16];

	if (getenv("GPUMEM_BENCH_STANDIN"))
		return 0;
	snprintf(path, sizeof(path), "%s/../driver", bench->exe_dir);
	if (access(path, X_OK)) {
		fprintf(stderr, "bench: %s: %m (make driver)\n", path);
		return -1;
	}
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("GPUMEM_BENCH_STANDIN", "1", 1);
	setenv("GPUMEM_STANDIN_MEMORY", "4G", 0);
	snprintf(exe, sizeof(exe), "%s/bench", bench->exe_dir);
	execv(exe, argv);
	fprintf(stderr, "bench: %s: %m\n", exe);
	return -1;
}

static uint64_t default_region(enum bench_form form, size_t block, unsigned lanes)
{
	struct sysinfo info;
	uint64_t region = 64ULL << 20, targets = 12;

	if (form == FORM_QUICK)
		return 2 * block;
	if (sysinfo(&info))
		return 2 * block;
	/* Leave half of the free memory to the machine. */
	while (region > 2 * block &&
	       region * lanes * targets > (uint64_t)info.freeram * info.mem_unit / 2)
		region /= 2;
	return region;
}

static int open_data(struct bench *bench)
{
	const struct options *options = &bench->options;
	bool quick = options->form == FORM_QUICK;
	unsigned lanes = quick ? 4 : LANES_MAX;
	size_t block = quick ? 1 << 20 : 16 << 20;
	uint64_t region =
	    options->region ? options->region : default_region(options->form, block, lanes);

	if (region % block) {
		fprintf(stderr, "bench: --size must be a multiple of %zuM\n", block >> 20);
		return -1;
	}
	return data_open(&bench->data, lanes, block, region);
}

/* So that the streams and latencies, with most of the points, take half of the budget. */
static void choose_times(struct bench *bench)
{
	const struct options *options = &bench->options;
	bool quick = options->form == FORM_QUICK;
	double budget = options->budget		     ? options->budget
			: quick			     ? 60
			: options->form == FORM_LONG ? 3600
						     : 300;
	double in_all = 64 * bench->n_targets, reps = options->reps ? options->reps : quick ? 1 : 5;
	double window = budget / 2 / in_all / reps;

	bench->reps = (unsigned)reps;
	bench->window = quick ? 0.002 : window < 0.02 ? 0.02 : window > 0.2 ? 0.2 : window;
	bench->deadline = measure_now() + budget;
}

static bool wanted(const struct bench *bench, const char *name)
{
	const char *only = bench->options.only;
	size_t length = strlen(name);

	while (only && *only) {
		size_t part = strcspn(only, ",");

		if (part == length && memcmp(only, name, length) == 0)
			return true;
		only += part + (only[part] == ',');
	}
	return !bench->options.only;
}

static void interrupt(int signal)
{
	(void)signal;
	bench_interrupted = true;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int measure_all(struct bench *bench)
{
	choose_times(bench);
	report_head(bench);
	for (unsigned i = 0; bench_cases[i] && !bench_interrupted; i++)
		if (wanted(bench, bench_cases[i]->name)) {
			bench_run_case(bench, bench_cases[i]);
			report_case(bench, &bench->reports[bench->n_reports - 1]);
		}
	int error = 0;

	if (bench->options.json && report_json(bench, bench->options.json))
		error = -1;
	if (bench->options.svg && report_svg(bench, bench->options.svg))
		error = -1;
	return report_end(bench) || error || bench_interrupted ? 1 : 0;
}

static void free_reports(struct bench *bench)
{
	for (unsigned i = 0; i < bench->n_reports; i++) {
		free(bench->reports[i].points);
		free(bench->reports[i].results);
	}
	free(bench->reports);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	int parsed, status;

	if (argc > 1 && strcmp(argv[1], "--null-daemon") == 0)
		return null_daemon_main(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "--stock-daemon") == 0)
		return stock_daemon_main(argc - 1, argv + 1);
	parsed = parse(argc, argv, &bench.options);
	if (parsed)
		return parsed < 0 ? USAGE : 0;
	if (find_self(&bench) ||
	    (bench.options.backend == BENCH_STANDIN && become_standin(&bench, argv)))
		return 1;
	if (bench.options.backend == BENCH_AUTO)
		bench.options.backend = raw_cuda_is_here() ? BENCH_CUDA : BENCH_HOST;
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	catch_signals();
	if (open_data(&bench)) {
		fprintf(stderr, "bench: no memory for the buffers\n");
		return 1;
	}
	status = targets_open(&bench) ? 1 : measure_all(&bench);
	targets_close(&bench);
	free_reports(&bench);
	data_close(&bench.data);
	return status;
}
