/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by the parts of the bench: targets, cases and results. */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/bench/data.h"

#define REPS_MAX    15
#define TARGETS_MAX 16
#define PEERS_MAX   4
#define POINTS_MAX  8
#define PATH_MAX_   4096
#define WHY_MAX	    160
#define LABEL_MAX   64

/* --- targets */

enum target_kind {
	TARGET_RAW_COPY, /* pinned copies by the driver; without a GPU, memcpy */
	TARGET_RAW_BAR, /* stores and streaming loads through the BAR; without a GPU, to host memory
			 */
	TARGET_NULL,	/* a FUSE daemon on gpumemfs's own session: FUSE's floor */
	TARGET_STOCK,	/* a FUSE daemon on libfuse's own loop */
	TARGET_GPU,	/* gpumemfs, gpu0/ */
	TARGET_RING,	/* the same over io_uring */
	TARGET_HOST,	/* gpumemfs, host/ */
	TARGET_TMPFS,
	TARGET_PEER
};

struct target;

/* Single operations on a target's data. A lane's thread may call read and write from its call of
 * enter until the thread ends. All return -errno on failure; on success read and write return the
 * number of bytes moved. */
struct target_ops {
	int (*enter)(struct target *target, unsigned lane);
	ssize_t (*read)(struct target *target, unsigned lane, void *to, size_t bytes,
			uint64_t offset);
	ssize_t (*write)(struct target *target, unsigned lane, const void *from, size_t bytes,
			 uint64_t offset);
};

struct raw;

struct target {
	const char *name;
	enum target_kind kind;
	const struct target_ops *ops;
	char about[WHY_MAX];   /* the target's kind and the way to open its files */
	char absent[WHY_MAX];  /* reason why the target is not measured; "": it is measured */
	char dir[PATH_MAX_];   /* folder of the target's files; "" for raw targets */
	char other[PATH_MAX_]; /* folder on another GPU; "": there is no other GPU */
	char mount[PATH_MAX_]; /* of the target's own daemon; "": there is none */
	int fd;		       /* of the file of data; -1: there is no file */
	bool over_ring;	       /* requests come over io_uring, which the kernel may lack */
	struct raw *raw;
	pid_t daemon;	  /* the process whose memory grows; 0: not a process of the bench */
	uint32_t content; /* generation of the data in the target's file; 0: mixed content */
};

/* --- cases */

enum unit {
	UNIT_RATE,    /* bytes per second */
	UNIT_SECONDS, /* p50 and p99 of single operations */
	UNIT_ELAPSED, /* seconds of a single action, no p99 */
	UNIT_OPS,     /* per second */
	UNIT_BYTES
};

struct point {
	char label[LABEL_MAX];
	uint64_t bytes; /* of an operation, or of the file */
	unsigned lanes; /* threads */
	unsigned variant;
	enum unit unit;
};

enum figure_state { FIGURE_NONE, FIGURE_GOOD, FIGURE_SKIPPED, FIGURE_WRONG };

/* The result of a repetition at a point. */
struct figure {
	enum figure_state state;
	bool verified; /* the moved bytes were compared in this repetition */
	double value, p99;
	char why[WHY_MAX]; /* reason for FIGURE_SKIPPED or FIGURE_WRONG */
};

struct bench;

struct bench_case {
	const char *name;
	const char *about; /* the timed calls, and the effect of caches on them */
	enum { CASE_SINGLE, CASE_TOGETHER } rounds; /* a point a round, or all together */
	/* Also on libfuse's own loop and over io_uring. */
	bool transports;
	/* Calls point_add for each point. */
	void (*points)(struct bench *bench);
	/* Before the repetitions of a point; may be NULL. */
	void (*prepare)(struct bench *bench, const struct point *points);
	/* A repetition on a target: fills n figures for n points. */
	void (*run)(struct bench *bench, const struct point *points, unsigned n,
		    struct target *target, struct figure *figures);
};

/* --- results */

struct result {
	unsigned point, target; /* indices */
	enum figure_state state;
	bool verified;
	unsigned n; /* repetitions */
	double values[REPS_MAX], p99s[REPS_MAX];
	double value, p99; /* medians of the repetitions */
	double p10, p90;   /* of the repetitions' values */
	char why[WHY_MAX];
};

struct case_report {
	const struct bench_case *of;
	struct point *points;
	unsigned n_points;
	struct result *results; /* [point * n_targets + target] */
	double seconds;		/* duration of the case */
};

/* --- a run of the bench */

enum bench_form { FORM_QUICK, FORM_DEFAULT, FORM_LONG };
enum bench_backend { BENCH_AUTO, BENCH_CUDA, BENCH_HOST, BENCH_STANDIN };

struct peer {
	char name[32];
	const char *dir;
};

struct options {
	enum bench_form form;
	enum bench_backend backend;
	const char *only;		/* cases, comma-separated; NULL: all */
	const char *points[POINTS_MAX]; /* labels; none: all points */
	unsigned n_points;
	/* Additional options for gpumemfs and the null daemon, or NULL. */
	const char *mount_options;
	const char *json, *svg;
	unsigned reps;	 /* 0: default of the form */
	uint64_t region; /* 0: default for the form and the machine's memory */
	double budget;	 /* seconds for all measuring; 0: default of the form */
	struct peer peers[PEERS_MAX];
	unsigned n_peers;
};

struct bench {
	struct options options;
	unsigned reps;
	unsigned rep;	 /* the running repetition: bytes are verified in the first */
	double window;	 /* seconds for which a rate or a latency is measured */
	double deadline; /* by measure_now: cases that have not begun by then are skipped */
	struct data data;
	struct raw *raw;
	struct target targets[TARGETS_MAX];
	unsigned n_targets;
	char exe_dir[PATH_MAX_]; /* folder of build/bench */
	char scratch[PATH_MAX_]; /* in tmpfs: source files of dd and cp */
	bool own_tmpfs;		 /* scratch is a tmpfs mounted by the bench */
	char mounts[PATH_MAX_];	 /* folder of the mountpoints */
	struct case_report *reports;
	unsigned n_reports;
};

extern const struct bench_case *const bench_cases[]; /* NULL at the end */

void point_add(struct bench *bench, const struct point *point);

/* Runs a case with all its repetitions, interleaved over the targets, and adds a new report. */
void bench_run_case(struct bench *bench, const struct bench_case *of);
/* Number of results that are wrong or were never verified, plus the number of missing targets that
 * the bench provides itself. */
unsigned bench_failures(const struct bench *bench);
/* Set by a signal handler: no more rounds are begun. */
extern volatile bool bench_interrupted;

void figure_good(struct figure *figure, double value, double p99);
void figure_skip(struct figure *figure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void figure_wrong(struct figure *figure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool target_is_raw(const struct target *target)
{
	return target->kind == TARGET_RAW_COPY || target->kind == TARGET_RAW_BAR;
}

static inline bool target_is_gpumemfs(const struct target *target)
{
	return target->kind == TARGET_GPU || target->kind == TARGET_HOST;
}

#endif
