/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Many files: rates of the operations on names, and the daemon's memory for a file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/bench/cases.h"
#include "tests/bench/lanes.h"
#include "tests/bench/measure.h"
#include "tests/bench/process.h"

#define QUICK_FILES 2000
#define FILES	    10000
#define LONG_FILES  1000000
#define PREFIX	    "file-"

enum step { CREATE, STAT, STAT_FORCED, READDIR, UNLINK };

static unsigned files(const struct bench *bench)
{
	switch (bench->options.form) {
	case FORM_QUICK:
		return QUICK_FILES;
	case FORM_LONG:
		return LONG_FILES;
	default:
		return FILES;
	}
}

static void points(struct bench *bench)
{
	static const char *const labels[] = {"create and close", "stat", "statx, asking again",
					     "readdir, entries", "unlink"};

	for (unsigned i = CREATE; i <= UNLINK; i++) {
		struct point point = {
		    .bytes = files(bench), .lanes = 1, .variant = i, .unit = UNIT_OPS};

		snprintf(point.label, sizeof(point.label), "%s", labels[i]);
		point_add(bench, &point);
	}
}

static const char *name_of(unsigned i, char name[32])
{
	snprintf(name, 32, PREFIX "%08u", i);
	return name;
}

/* Every step works on all files and returns 0 or -errno. */
static int create_all(int dir, unsigned n)
{
	char name[32];

	for (unsigned i = 0; i < n; i++) {
		int fd =
		    openat(dir, name_of(i, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || close(fd))
			return -errno;
	}
	return 0;
}

static int stat_all(int dir, unsigned n)
{
	struct stat st;
	char name[32];

	for (unsigned i = 0; i < n; i++)
		if (fstatat(dir, name_of(i, name), &st, 0))
			return -errno;
		else if (!S_ISREG(st.st_mode))
			return -EILSEQ;
	return 0;
}

static int stat_all_forced(int dir, unsigned n)
{
	struct statx st;
	char name[32];

	for (unsigned i = 0; i < n; i++)
		if (statx(dir, name_of(i, name), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st))
			return -errno;
		else if (!S_ISREG(st.stx_mode))
			return -EILSEQ;
	return 0;
}

/* Lists the directory: expects exactly n files with the prefix. */
static int list_all(int dir, unsigned n)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	unsigned found = 0;

	if (!stream)
		return -errno;
	while ((entry = readdir(stream)))
		found += strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0;
	closedir(stream);
	return found == n ? 0 : -EILSEQ;
}

static int unlink_all(int dir, unsigned n)
{
	char name[32];

	for (unsigned i = 0; i < n; i++)
		if (unlinkat(dir, name_of(i, name), 0))
			return -errno;
	return 0;
}

static int timed(int (*step)(int, unsigned), int dir, unsigned n, const char *what,
		 struct figure *figure)
{
	double start = measure_now();
	int error = step(dir, n);

	if (!error)
		figure_good(figure, n / (measure_now() - start), 0);
	else if (error == -EILSEQ)
		figure_wrong(figure, "%s: not the files that were made", what);
	else
		figure_wrong(figure, "%s: %s", what, strerror(-error));
	figure->verified = !error;
	return error;
}

static void run_steps(struct bench *bench, int dir, struct figure *figures)
{
	unsigned n = files(bench);

	if (timed(create_all, dir, n, "create", &figures[CREATE]) == 0) {
		timed(stat_all, dir, n, "stat", &figures[STAT]);
		timed(stat_all_forced, dir, n, "statx", &figures[STAT_FORCED]);
		timed(list_all, dir, n, "readdir", &figures[READDIR]);
	}
	if (timed(unlink_all, dir, n, "unlink", &figures[UNLINK]) == 0 && list_all(dir, 0))
		figure_wrong(&figures[UNLINK], "files are still there");
}

static void run(struct bench *bench, const struct point *points_, unsigned n, struct target *target,
		struct figure *figures)
{
	(void)points_;
	if (bench->options.form == FORM_LONG && bench->rep > 0)
		return; /* with a million files a single repetition is enough */
	int dir AUTO_CLOSE =
	    target_is_raw(target) ? -1 : open(target->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir >= 0) {
		run_steps(bench, dir, figures);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		figure_skip(&figures[i], "no filesystem");
}

const struct bench_case case_names = {
    .name = "names",
    .about =
	"empty files in one directory, one thread, in the order of their creation. stat: the "
	"kernel's cached attributes, if the filesystem lets it; asking again: statx with "
	"AT_STATX_FORCE_SYNC; readdir: of names just created (gpumemfs gives attributes too where "
	"the kernel asks for them, the null daemon never)",
    .rounds = CASE_TOGETHER,
    .transports = true,
    .points = points,
    .run = run,
};

/* --- many threads, each with its own directory */

#define CROWD 8

struct crowd {
	int dirs[CROWD];
	unsigned n; /* files of each thread */
	int (*step)(int dir, unsigned n);
	struct stretch lanes[CROWD]; /* count files */
};

static int crowd_lane(void *context, struct target *target, unsigned lane)
{
	struct crowd *crowd = context;

	(void)target;
	double start = measure_now();
	int error = crowd->step(crowd->dirs[lane], crowd->n);

	crowd->lanes[lane] = (struct stretch){crowd->n, start, measure_now()};
	return error;
}

/* Runs the step in all directories at the same time. */
static void crowd_step(struct crowd *crowd, int (*step)(int, unsigned), const char *what,
		       struct target *target, struct figure *figure)
{
	crowd->step = step;
	int error = lanes_run(target, CROWD, crowd_lane, crowd);

	for (unsigned i = 0; !error && i < CROWD; i++)
		error = list_all(crowd->dirs[i], step == create_all ? crowd->n : 0);
	if (error)
		figure_wrong(figure, "%s: %s", what, strerror(-error));
	else
		figure_good(figure, measure_rate(crowd->lanes, CROWD), 0);
	figure->verified = !error;
}

static void crowd_points(struct bench *bench)
{
	static const char *const labels[] = {"create and close", "unlink"};

	for (unsigned i = 0; i < 2; i++) {
		struct point point = {
		    .bytes = files(bench), .lanes = CROWD, .variant = i, .unit = UNIT_OPS};

		snprintf(point.label, sizeof(point.label), "%s, %u threads", labels[i], CROWD);
		point_add(bench, &point);
	}
}

static int crowd_dir(const struct target *target, unsigned i, char path[PATH_MAX_ + 16])
{
	snprintf(path, PATH_MAX_ + 16, "%s/crowd-%u", target->dir, i);
	if (mkdir(path, 0700) && errno != EEXIST)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void run_crowd(struct bench *bench, const struct point *points_, unsigned n,
		      struct target *target, struct figure *figures)
{
	struct crowd crowd = {.n = files(bench) / CROWD};
	char path[PATH_MAX_ + 16];
	int *dirs = crowd.dirs;
	bool all = true;

	(void)points_;
	if (bench->options.form == FORM_LONG && bench->rep > 0)
		return;
	for (unsigned i = 0; i < CROWD; i++) {
		dirs[i] = target_is_raw(target) ? -1 : crowd_dir(target, i, path);
		all = all && dirs[i] >= 0;
	}
	if (all) {
		crowd_step(&crowd, create_all, "create", target, &figures[0]);
		crowd_step(&crowd, unlink_all, "unlink", target, &figures[1]);
	}
	for (unsigned i = 0; !all && i < n; i++)
		figure_skip(&figures[i],
			    target_is_raw(target) ? "no filesystem" : "no directories");
	for (unsigned i = 0; i < CROWD; i++) {
		if (dirs[i] < 0)
			continue;
		close(dirs[i]);
		snprintf(path, sizeof(path), "%s/crowd-%u", target->dir, i);
		rmdir(path);
	}
}

const struct bench_case case_crowd = {
    .name = "crowd",
    .about = "empty files made and removed by 8 threads at once, each in a directory of its own",
    .rounds = CASE_TOGETHER,
    .transports = true,
    .points = crowd_points,
    .run = run_crowd,
};

/* --- memory: runs first, before files of another case have used the daemon's heap */

/* A smaller number would measure the steps in which the heap grows. */
static unsigned memory_files(const struct bench *bench)
{
	return bench->options.form == FORM_LONG ? LONG_FILES : FILES;
}

static void memory_points(struct bench *bench)
{
	struct point point = {.bytes = memory_files(bench), .lanes = 1, .unit = UNIT_BYTES};

	snprintf(point.label, sizeof(point.label), "a file, of %u", memory_files(bench));
	point_add(bench, &point);
}

static void measure_memory(struct bench *bench, struct target *target, int dir,
			   struct figure *figure)
{
	unsigned n = memory_files(bench);
	unsigned long long before = process_use(target->daemon).memory, after;

	if (timed(create_all, dir, n, "create", figure))
		return;
	after = process_use(target->daemon).memory;
	if (timed(list_all, dir, n, "readdir", figure) == 0) {
		figure->verified = true;
		figure_good(figure, after > before ? (double)(after - before) / n : 0, 0);
	}
	if (unlink_all(dir, n))
		figure_wrong(figure, "unlink: %s", strerror(errno));
}

static void run_memory(struct bench *bench, const struct point *point, unsigned n,
		       struct target *target, struct figure *figure)
{
	int dir AUTO_CLOSE =
	    target->daemon ? open(target->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	(void)point, (void)n;
	if (target->kind == TARGET_HOST)
		figure_skip(figure, "the same daemon as gpumemfs");
	else if (!target->daemon)
		figure_skip(figure, "no daemon of ours");
	else if (dir < 0)
		figure_wrong(figure, "%s: %s", target->dir, strerror(errno));
	else if (bench->rep == 0) /* later repetitions reuse memory of the first */
		measure_memory(bench, target, dir, figure);
}

const struct bench_case case_memory = {
    .name = "memory",
    .about =
	"the daemon's resident memory (VmRSS) grown by creating empty files, once; the kernel's "
	"own for them is not in it",
    .points = memory_points,
    .run = run_memory,
};
