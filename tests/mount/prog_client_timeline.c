/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin cuda
 * needs: daemon
 * Timelines: order between processes, by CPUs and by streams, and the end of the creator. */
#include "tests/mount/prog.h"

#include "common/protocol.h"
#include "tests/mount/client_gpu.h"

#include <signal.h>
#include <sys/ioctl.h>

static gpumem_timeline *created(const char *path, size_t count)
{
	gpumem_timeline *timeline = gpumem_timeline_create(path, count, 0600, 0);

	if (!timeline)
		FAIL("gpumem_timeline_create: %s", gpumem_error());
	return timeline;
}

static gpumem_timeline *opened(const char *path)
{
	gpumem_timeline *timeline = gpumem_timeline_open(path);

	if (!timeline)
		FAIL("gpumem_timeline_open: %s", gpumem_error());
	return timeline;
}

static uint64_t value_of(gpumem_timeline *timeline, size_t number)
{
	uint64_t value = 99;

	GOOD(gpumem_timeline_value(timeline, number, &value));
	return value;
}

/* Runs in a child, before this process uses CUDA, which does not survive a fork. */
static pid_t child_start(void (*run)(void))
{
	pid_t pid = OK(fork());

	if (pid == 0) {
		run();
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	return pid;
}

static void child_end(pid_t pid)
{
	int status;

	OK(waitpid(pid, &status, 0));
	EQUAL(status, 0);
}

static void await_name(void)
{
	AWAIT(exists("timeline"));
}

static void signal_some(void)
{
	gpumem_timeline *timeline = created("timeline", 3);

	for (uint64_t value = 1; value <= 5; value++) {
		usleep(1000);
		GOOD(gpumem_timeline_signal_host(timeline, 2, value));
	}
	AWAIT(exists("seen"));
	GOOD(gpumem_timeline_close(timeline));
}

static void between_cpus(void)
{
	pid_t pid = child_start(signal_some);

	await_name();
	gpumem_timeline *timeline = opened("timeline");

	for (uint64_t value = 1; value <= 5; value++) {
		GOOD(gpumem_timeline_wait_host(timeline, 2, value, -1));
		CHECK(value_of(timeline, 2) >= value);
	}
	EQUAL(value_of(timeline, 0), 0);
	FAILS(ETIMEDOUT, gpumem_timeline_wait_host(timeline, 1, 1, 1000000));
	GOOD(gpumem_timeline_check(timeline));
	OK(close(new_file("seen")));
	child_end(pid);
	GOOD(gpumem_timeline_close(timeline));
	CHECK(!exists("timeline"));
}

static void signal_one_and_die(void)
{
	gpumem_timeline *timeline = created("timeline", 1);

	GOOD(gpumem_timeline_signal_host(timeline, 0, 7));
	AWAIT(exists("seen"));
	raise(SIGKILL);
}

static void the_end_of_the_creator(void)
{
	pid_t pid = child_start(signal_one_and_die);
	int status;

	await_name();
	gpumem_timeline *timeline = opened("timeline"), *second = opened("timeline");

	GOOD(gpumem_timeline_wait_host(timeline, 0, 7, -1));
	GOOD(gpumem_timeline_close(second));
	OK(close(new_file("seen")));
	FAILS(EOWNERDEAD, gpumem_timeline_wait_host(timeline, 0, 8, -1));
	EQUAL(value_of(timeline, 0), GPUMEM_TIMELINE_ENDED);
	FAILS(EOWNERDEAD, gpumem_timeline_check(timeline));
	OK(waitpid(pid, &status, 0));
	/* The name of a killed process's file stays, and opens nothing. */
	CHECK(exists("timeline"));
	CHECK(!gpumem_timeline_open("timeline") && errno == EOWNERDEAD);
	GOOD(gpumem_timeline_close(timeline));
	gpumem_timeline *again = created("timeline", 1);

	EQUAL(value_of(again, 0), 0);
	GOOD(gpumem_timeline_close(again));
	CHECK(!exists("timeline"));
}

/* The child of the creator does not keep the timelines alive. */
static void create_fork_and_die(void)
{
	gpumem_timeline *timeline = created("timeline", 1);

	if (OK(fork()) == 0) {
		FAILS(EINVAL, gpumem_timeline_signal_host(timeline, 0, 1));
		AWAIT(exists("told"));
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	AWAIT(exists("seen"));
	raise(SIGKILL);
}

static void a_child_is_no_creator(void)
{
	pid_t pid = child_start(create_fork_and_die);
	int status;

	await_name();
	gpumem_timeline *timeline = opened("timeline");

	OK(close(new_file("seen")));
	FAILS(EOWNERDEAD, gpumem_timeline_wait_host(timeline, 0, 1, -1));
	OK(close(new_file("told")));
	OK(waitpid(pid, &status, 0));
	GOOD(gpumem_timeline_close(timeline));
}

static void wrong_arguments(void)
{
	gpumem_timeline *timeline = created("timeline", 2);
	char bytes[128] = {0};
	uint64_t value;

	CHECK(!gpumem_timeline_create("timeline", 2, 0600, GPUMEM_CREATE_EXCL) && errno == EEXIST);
	CHECK(!gpumem_timeline_create("other", 0, 0600, 0) && errno == EINVAL);
	CHECK(!gpumem_timeline_create("other", 1, 0600, 64) && errno == EINVAL);
	CHECK(!gpumem_timeline_open("missing") && errno == ENOENT);
	FAILS(EINVAL, gpumem_timeline_value(timeline, 2, &value));
	FAILS(EINVAL, gpumem_timeline_signal_host(timeline, 0, GPUMEM_TIMELINE_MAX + 1));
	FAILS(EINVAL, gpumem_timeline_wait_host(timeline, 5, 1, -1));
	int fd = new_file("plain");

	write_all(fd, bytes, sizeof(bytes), 0);
	OK(close(fd));
	CHECK(!gpumem_timeline_open("plain") && errno == EINVAL);
	OK(truncate("plain", 0));
	CHECK(!gpumem_timeline_open("plain") && errno == EINVAL);
	OK(truncate("plain", 65 * MIB));
	CHECK(!gpumem_timeline_open("plain") && errno == EINVAL);
	GOOD(gpumem_timeline_close(timeline));
	GOOD(gpumem_timeline_close(NULL));
	CHECK(!exists("other"));
}

static void in_host(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/../host/timeline.%d", getenv("GPU0"), (int)getpid());
	gpumem_timeline *timeline = created(path, 1), *other = opened(path);

	GOOD(gpumem_timeline_signal_host(timeline, 0, 3));
	GOOD(gpumem_timeline_wait_host(other, 0, 3, -1));
	GOOD(gpumem_timeline_close(timeline));
	FAILS(EOWNERDEAD, gpumem_timeline_check(other));
	GOOD(gpumem_timeline_close(other));
}

/* The path may be relative, and the file may not be parked. */
static void stays_where_it_is(void)
{
	gpumem_timeline *timeline = created("timeline", 1);
	const struct gpumem_notify wanted = {.version = GPUMEM_PROTOCOL_VERSION,
					     .what = GPUMEM_NOTICE_PARK,
					     .flags = GPUMEM_NOTICE_NOW,
					     .pid = getpid()};
	struct gpumem_notify notify;
	int fd = OK(open("timeline", O_RDONLY));

	EQUAL(gpumem_safe_point(), 0);
	do {
		notify = wanted;
		usleep(10000);
	} while (ioctl(fd, GPUMEM_IOC_NOTIFY, &notify) < 0 && errno == ESRCH);
	struct gpumem_notified answer;

	do {
		usleep(10000);
		answer = (struct gpumem_notified){.number = notify.number};
		OK(ioctl(fd, GPUMEM_IOC_NOTIFIED, &answer));
	} while (answer.state == GPUMEM_NOTIFIED_WAITS);
	EQUAL(answer.error, ENOTSUP);
	GOOD(gpumem_timeline_signal_host(timeline, 0, 1));
	OK(close(fd));
	OK(mkdir("below", 0700));
	OK(chdir("below"));
	GOOD(gpumem_timeline_close(timeline));
	CHECK(!exists("../timeline"));
}

/* A stream signals the process's own timeline and waits for the other, in turns. */
static void turns_take(gpumem_timeline *own, gpumem_timeline *other, bool begins)
{
	gm_CUstream stream;

	MUST(cuStreamCreate(&stream, 1));
	for (uint64_t value = 1; value <= 20; value++) {
		if (begins)
			GOOD(gpumem_timeline_signal(own, 0, stream, value));
		GOOD(gpumem_timeline_wait(other, 0, stream, value));
		if (!begins)
			GOOD(gpumem_timeline_signal(own, 0, stream, value));
	}
	MUST(cuStreamSynchronize(stream));
	EQUAL(value_of(begins ? other : own, 0), 20);
	MUST(cuStreamDestroy(stream));
}

static void stream_and_signal(void)
{
	use_gpu();
	gpumem_timeline *mine = created("mine", 1);

	await_name();
	gpumem_timeline *timeline = opened("timeline");

	turns_take(mine, timeline, false);
	AWAIT(exists("seen"));
	GOOD(gpumem_timeline_close(timeline));
	GOOD(gpumem_timeline_close(mine));
}

/* Back and forth, with no CPU in between. */
static void between_streams(void)
{
	if (!on_gpu())
		SKIP("no streams here");
	pid_t pid = child_start(stream_and_signal);

	use_gpu();
	gpumem_timeline *timeline = created("timeline", 1);

	AWAIT(exists("mine"));
	gpumem_timeline *theirs = opened("mine");

	turns_take(timeline, theirs, true);
	GOOD(gpumem_timeline_check(theirs));
	OK(close(new_file("seen")));
	child_end(pid);
	GOOD(gpumem_timeline_close(theirs));
	GOOD(gpumem_timeline_close(timeline));
}

static void a_stream_goes_on_after_the_creator(void)
{
	if (!on_gpu())
		SKIP("no streams here");
	pid_t pid = child_start(signal_one_and_die);
	int status;

	use_gpu();
	await_name();
	gpumem_timeline *timeline = opened("timeline");
	gm_CUstream stream;

	MUST(cuStreamCreate(&stream, 1));
	GOOD(gpumem_timeline_wait(timeline, 0, stream, 8));
	CHECK(cu.cuStreamQuery(stream) != 0);
	OK(close(new_file("seen")));
	MUST(cuStreamSynchronize(stream));
	FAILS(EOWNERDEAD, gpumem_timeline_check(timeline));
	MUST(cuStreamDestroy(stream));
	OK(waitpid(pid, &status, 0));
	GOOD(gpumem_timeline_close(timeline));
}

CLIENT_PROG(TEST(between_cpus), TEST(the_end_of_the_creator), TEST(a_child_is_no_creator),
	    TEST(wrong_arguments), TEST(in_host), TEST(stays_where_it_is), TEST(between_streams),
	    TEST(a_stream_goes_on_after_the_creator))
