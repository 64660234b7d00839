/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Runs a scenario once for each of its calls, in a process of its own, and makes this call fail:
 * once, and once with all later calls of the same operation. The operation that meets the failure
 * reports a documented error or succeeds, everything that is counted equals a recount, the repeated
 * operation succeeds, the rest of the scenario too, and at the end nothing is left allocated, open
 * or mapped.
 *
 * `make check` takes a sample. GPUMEM_FAILURES=all runs all, GPUMEM_FAILURES=17 the 17th call
 * alone, as the report of a failure names it. */
#ifndef TESTS_UNIT_FAILURES_RUNNER_H
#define TESTS_UNIT_FAILURES_RUNNER_H

#include <dirent.h>
#include <sys/wait.h>

#include "common/number.h"
#include "tests/unit/failures/inject.h"
#include "tests/unit/unit.h"

/* Processes for each test of a sample. */
#define SAMPLE unit_rounds(6, 48)

/* Seconds after which a scenario has hung. */
#define SCENARIO_SECONDS 120

#define LEFT_MAX 512

/* What a process has allocated, open and mapped at its end. */
struct left {
	unsigned n_blocks, descriptors, mappings, threads;
	void *places[LEFT_MAX];
};

/* Shared with the process of a scenario. */
struct run {
	uint64_t calls;
	bool fired;
	int line; /* of the operation that met the failure */
	char operation[128];
	struct inject_trace trace;
	struct left left;
};

static struct run *run;
static struct left normal; /* what is left without a failure */
static bool in_scenario;

/* Compares counters with a recount; set while the scenario's daemon is open. */
static void (*recount_all)(void);

/* libcheck's messages go to its own process, and only the last is shown. */
void __real__ck_assert_failed(const char *file, int line, const char *expression,
			      const char *message, ...) __attribute__((noreturn));
void __wrap__ck_assert_failed(const char *file, int line, const char *expression,
			      const char *message, ...) __attribute__((noreturn));
void __wrap__ck_assert_failed(const char *file, int line, const char *expression,
			      const char *message, ...)
{
	char text[1024] = "";
	va_list arguments;

	inject_counts = false;
	va_start(arguments, message);
	if (message)
		vsnprintf(text, sizeof(text), message, arguments);
	va_end(arguments);
	if (!in_scenario)
		__real__ck_assert_failed(file, line, expression, "%s", message ? text : expression);
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, expression, text);
	_exit(1);
}

static inline void operation_begin(int line, const char *expression)
{
	if (!run->fired) {
		run->line = line;
		snprintf(run->operation, sizeof(run->operation), "%s", expression);
	}
	inject_begin();
}

static inline bool error_is_documented(long error)
{
	static const int documented[] = {ENOMEM, ENOSPC, EMFILE, ENFILE, EDQUOT, EAGAIN, ENOBUFS};

	/* A copy that the driver refuses. */
	if (inject.kind == INJECT_DRIVER && error == -EIO)
		return true;
	for (unsigned i = 0; i < sizeof(documented) / sizeof(documented[0]); i++)
		if (error == -documented[i])
			return true;
	return false;
}

/* Whether the operation has to be repeated. */
static inline bool operation_failed(long result)
{
	bool fired = inject_end();

	if (fired) {
		run->fired = true;
		run->trace = inject.trace;
		if (recount_all)
			recount_all();
	}
	ck_assert_msg(result >= 0 || (fired && error_is_documented(result)), "line %d: %s: %ld",
		      run->line, run->operation, result);
	return result < 0;
}

static inline void operation_repeated(int line, const char *expression, long result)
{
	ck_assert_msg(result >= 0, "line %d, again: %s: %ld", line, expression, result);
	if (recount_all)
		recount_all();
}

/* An operation that a failure may meet: its result is 0 or more, or -errno. */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		operation_begin(__LINE__, #expression);                                            \
		if (operation_failed(expression))                                                  \
			operation_repeated(__LINE__, #expression, expression);                     \
	} while (0)

static inline unsigned entries_of(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline unsigned object_mappings(void)
{
	FILE *maps = __real_fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:") != NULL;
	fclose(maps);
	return n;
}

static inline void left_note(struct left *left)
{
	*left = (struct left){.descriptors = entries_of("/proc/self/fd"),
			      .threads = entries_of("/proc/self/task"),
			      .mappings = object_mappings()};
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (blocks[i].memory > BLOCK_FREED && left->n_blocks < LEFT_MAX)
			left->places[left->n_blocks++] = blocks[i].place;
}

static inline unsigned count_of(const struct left *left, const void *place)
{
	unsigned n = 0;

	for (unsigned i = 0; i < left->n_blocks; i++)
		n += left->places[i] == place;
	return n;
}

static inline void place_print(void *const *frames, int n)
{
	char command[4096];
	size_t at =
	    (size_t)snprintf(command, sizeof(command), "addr2line -fipe /proc/%d/exe", getpid());
	FILE *maps = __real_fopen("/proc/self/maps", "re");
	unsigned long base = 0;

	if (maps && fscanf(maps, "%lx", &base) != 1)
		base = 0;
	fclose(maps);
	for (int i = 0; i < n && at < sizeof(command) - 32; i++)
		at += (size_t)snprintf(command + at, sizeof(command) - at, " 0x%lx",
				       (unsigned long)frames[i] - base - 1);
	snprintf(command + at, sizeof(command) - at, " >&2");
	if (system(command))
		fprintf(stderr, "%s\n", command);
}

static inline void left_compare(const struct left *left)
{
	bool same = left->descriptors <= normal.descriptors && left->threads <= normal.threads &&
		    left->mappings <= normal.mappings;

	for (unsigned i = 0; i < left->n_blocks; i++) {
		if (count_of(left, left->places[i]) <= count_of(&normal, left->places[i]))
			continue;
		fprintf(stderr, "still allocated: ");
		place_print(&left->places[i], 1);
		same = false;
	}
	ck_assert_msg(same, "left: %u descriptors, %u mappings, %u threads; else %u, %u, %u",
		      left->descriptors, left->mappings, left->threads, normal.descriptors,
		      normal.mappings, normal.threads);
}

/* The kernel counts a thread that was joined a moment longer. */
#define SETTLE_TRIES 1000
#define SETTLE_US    10000

static inline void left_settle(struct left *left)
{
	left_note(left);
	for (unsigned i = 0; i < SETTLE_TRIES && left->threads > normal.threads; i++) {
		usleep(SETTLE_US);
		left_note(left);
	}
}

enum { SCENARIO_PASSED, SCENARIO_FAILED, SCENARIO_NOT_REACHED };

/* With the address sanitizer. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static inline void scenario_child(void (*scenario)(void), FILE *said)
{
	dup2(fileno(said), STDERR_FILENO);
	alarm(SCENARIO_SECONDS);
	in_scenario = true;
	unit_notes_places = false;
	bool fails = inject.target;

	scenario();
	run->calls = inject.calls;
	if (fails) {
		left_settle(&run->left);
		left_compare(&run->left);
	} else {
		left_note(&run->left);
	}
	if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
		_exit(SCENARIO_FAILED);
	_exit(!fails || run->fired ? SCENARIO_PASSED : SCENARIO_NOT_REACHED);
}

static inline void failure_report(FILE *said, int status)
{
	char line[1024];

	fprintf(stderr, "GPUMEM_FAILURES=%" PRIu64 "%s: status %x: line %d: %s\n", inject.target,
		inject.lasting ? " and later calls" : "", (unsigned)status, run->line,
		run->operation);
	rewind(said);
	while (fgets(line, sizeof(line), said))
		fprintf(stderr, "    %s", line);
	if (run->fired && run->trace.n) {
		fprintf(stderr, "  failed: %s, by\n", run->trace.function);
		place_print(run->trace.frames + 1, run->trace.n - 1);
	}
}

static inline int scenario_run(void (*scenario)(void))
{
	FILE *said = tmpfile();
	int status;

	ck_assert_ptr_nonnull(said);
	*run = (struct run){0};
	inject.calls = 0;
	pid_t pid = fork();

	if (pid == 0)
		scenario_child(scenario, said);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	bool failed = !WIFEXITED(status) || WEXITSTATUS(status) == SCENARIO_FAILED;

	if (failed)
		failure_report(said, status);
	fclose(said);
	return failed ? SCENARIO_FAILED : WEXITSTATUS(status);
}

static inline uint64_t stride_for(uint64_t calls, uint64_t *first, uint64_t *last)
{
	const char *text = getenv("GPUMEM_FAILURES");

	*first = 1;
	*last = calls;
	if (!text) {
		uint64_t stride = (calls + SAMPLE - 1) / SAMPLE;

		*first = 1 + unit_seed() % stride;
		return stride;
	}
	if (strcmp(text, "all") != 0) {
		ck_assert_int_eq(parse_u64(text, 1, UINT64_MAX, first), 0);
		*last = *first;
	}
	return 1;
}

/* Each call of the kind fails. */
static inline void each_fails(void (*scenario)(void), enum inject_kind kind)
{
	unsigned failures = 0, runs = 0;
	uint64_t first, last;

	run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(run, MAP_FAILED);
	inject.kind = kind;
	ck_assert_int_eq(scenario_run(scenario), SCENARIO_PASSED);
	normal = run->left;
	uint64_t calls = run->calls, stride = stride_for(calls, &first, &last);

	ck_assert_uint_gt(calls, 0);
	bool may_last = kind != INJECT_KILL;

	for (int lasting = 0; lasting < 1 + may_last; lasting++)
		for (uint64_t n = first; n <= last; n += stride, runs++) {
			inject.target = n;
			inject.lasting = lasting;
			failures += scenario_run(scenario) == SCENARIO_FAILED;
			mark_point();
		}
	inject.target = 0;
	printf("%" PRIu64 " calls, %u runs\n", calls, runs);
	ck_assert_msg(failures == 0, "%u of %u runs", failures, runs);
	munmap(run, sizeof(*run));
}

/* The tests of a scenario. */
static void (*tested)(void);

START_TEST(without_memory)
{
	each_fails(tested, INJECT_MEMORY);
}
END_TEST

START_TEST(without_system_calls)
{
	each_fails(tested, INJECT_SYSTEM);
}
END_TEST

START_TEST(without_the_driver)
{
	each_fails(tested, INJECT_DRIVER);
}
END_TEST

START_TEST(killed)
{
	each_fails(tested, INJECT_KILL);
}
END_TEST

/* with_driver: the scenario can run with the stand-in for the driver, and makes calls there. */
static inline int failures_main(const char *name, void (*scenario)(void), bool with_driver)
{
	TCase *tcase;
	Suite *suite = unit_suite(name, &tcase, 7200);

	tested = scenario;
	tcase_add_test(tcase, without_memory);
	tcase_add_test(tcase, without_system_calls);
	if (with_driver)
		tcase_add_test(tcase, without_the_driver);
	tcase_add_test(tcase, killed);
	return unit_main(suite);
}

#endif
