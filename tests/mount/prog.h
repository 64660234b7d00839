/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by the C mount tests. Each sub-test runs in a child process and in a fresh directory of
 * gpu0/, so that a failure does not hide the next; a program's arguments name sub-tests to run. The
 * last line counts the sub-tests, and lists skipped sub-tests with their reasons. */
#ifndef TESTS_MOUNT_PROG_H
#define TESTS_MOUNT_PROG_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct prog_test {
	const char *name;
	void (*run)(void);
};

#define TEST(function)                                                                             \
	{                                                                                          \
#function, function                                                                \
	}
#define PROG(...)                                                                                  \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		static const struct prog_test tests[] = {__VA_ARGS__};                             \
		return prog_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));             \
	}

#define EXIT_SKIP 77
#define KIB	  1024L
#define MIB	  (1024L * KIB)

#define PROG_REASON_MAX 240

static int prog_failures;
static volatile sig_atomic_t prog_late; /* the runner's deadline has passed */
static char *prog_reason; /* reason why the sub-test skips; shared with the sub-test's process */
static char prog_other[PATH_MAX]; /* this sub-test's directory on the second GPU */

/* Ends the sub-test. */
#define FAIL(format, ...)                                                                          \
	do {                                                                                       \
		printf("%s:%d: " format "\n", __FILE__, __LINE__, ##__VA_ARGS__);                  \
		fflush(stdout);                                                                    \
		_exit(1);                                                                          \
	} while (0)

#define SKIP(why)                                                                                  \
	do {                                                                                       \
		snprintf(prog_reason, PROG_REASON_MAX, "%s", why);                                 \
		printf("%s\n", why);                                                               \
		fflush(stdout);                                                                    \
		_exit(EXIT_SKIP);                                                                  \
	} while (0)

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			FAIL("not so: %s (errno %s)", #condition, strerror(errno));                \
	} while (0)

#define EQUAL(got, wanted)                                                                         \
	do {                                                                                       \
		long long got_ = (got), wanted_ = (wanted);                                        \
		if (got_ != wanted_)                                                               \
			FAIL("%s is %lld, wanted %lld", #got, got_, wanted_);                      \
	} while (0)

/* A call that must succeed. Evaluates to the call's value. */
#define OK(call)                                                                                   \
	({                                                                                         \
		long long value_ = (long long)(call);                                              \
		if (value_ < 0)                                                                    \
			FAIL("%s: %s", #call, strerror(errno));                                    \
		value_;                                                                            \
	})

/* A call that must fail with exactly this errno. Continues after a mismatch, so that a table of bad
 * calls shows every wrong row. */
#define FAILS(error, call)                                                                         \
	do {                                                                                       \
		errno = 0;                                                                         \
		long long value_ = (long long)(call);                                              \
		if (value_ != -1 || errno != (error)) {                                            \
			printf("%s:%d: %s gave %lld, %s; wanted %s\n", __FILE__, __LINE__, #call,  \
			       value_, strerrorname_np(errno), strerrorname_np(error));            \
			prog_failures++;                                                           \
		}                                                                                  \
	} while (0)

/* Waits for an event. There is no other limit than the runner's deadline, after which the check
 * that follows fails and says what did not happen. */
#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		while (!prog_late && !(condition))                                                 \
			usleep(10000);                                                             \
	} while (0)

static inline bool prog_on_daemon(void)
{
	return strcmp(getenv("BACKEND"), "dir") != 0;
}

static inline void need_daemon(void)
{
	if (!prog_on_daemon())
		SKIP("needs a daemon");
}

/* The path of a name on the second GPU; skips the sub-test if there is no second GPU. */
static inline const char *other(const char *name)
{
	static char paths[4][PATH_MAX + NAME_MAX + 2];
	static unsigned next;
	char *path = paths[next++ % 4];

	if (!*prog_other)
		SKIP("needs 2 GPUs");
	sprintf(path, "%s/%s", prog_other, name);
	return path;
}

/* For sub-tests that need other processes: runs work in a child. */
static inline pid_t spawn(void (*work)(int), int argument)
{
	fflush(stdout);
	pid_t pid = OK(fork());

	if (pid == 0) {
		work(argument);
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	return pid;
}

static inline void join_all(int children)
{
	int bad = 0;

	while (children-- > 0) {
		int status;

		OK(wait(&status));
		bad += status != 0;
	}
	if (bad)
		FAIL("%d children failed", bad);
}

/* --- Bytes that depend on their position --------------------------------------------------- */

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline uint64_t random_next(uint64_t *state)
{
	return mix((*state)++);
}

static inline unsigned char pattern_at(uint64_t seed, uint64_t offset)
{
	return mix(seed * 1000003 + offset / 8) >> (8 * (offset % 8));
}

static inline void pattern_fill(void *bytes, size_t size, uint64_t seed, uint64_t offset)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)bytes)[i] = pattern_at(seed, offset + i);
}

static inline void write_all(int fd, const void *bytes, size_t size, off_t offset)
{
	for (size_t done = 0; done < size;)
		done += OK(pwrite(fd, (const char *)bytes + done, size - done, offset + done));
}

/* Reads exactly size bytes; the file must have them. */
static inline void read_all(int fd, void *bytes, size_t size, off_t offset)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = OK(pread(fd, (char *)bytes + done, size - done, offset + done));

		if (got == 0)
			FAIL("end of file at %lld", (long long)offset + (long long)done);
		done += got;
	}
}

static inline void pattern_write(int fd, uint64_t seed, off_t offset, size_t size)
{
	char *bytes = malloc(size);

	pattern_fill(bytes, size, seed, offset);
	write_all(fd, bytes, size, offset);
	free(bytes);
}

/* Checks a range written by pattern_write; offset base has the pattern's first byte. */
static inline void pattern_check_from(int fd, uint64_t seed, off_t base, off_t offset, size_t size)
{
	unsigned char *bytes = malloc(size);

	read_all(fd, bytes, size, offset);
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != pattern_at(seed, base + i))
			FAIL("byte %lld is %02x, wanted %02x", (long long)offset + (long long)i,
			     bytes[i], pattern_at(seed, base + i));
	free(bytes);
}

static inline void pattern_check(int fd, uint64_t seed, off_t offset, size_t size)
{
	pattern_check_from(fd, seed, offset, offset, size);
}

static inline void zero_check(int fd, off_t offset, size_t size)
{
	unsigned char *bytes = malloc(size);

	read_all(fd, bytes, size, offset);
	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			FAIL("byte %lld is %02x, wanted zero", (long long)offset + (long long)i,
			     bytes[i]);
	free(bytes);
}

/* --- Small files --------------------------------------------------------------------------- */

static inline int new_file(const char *path)
{
	return OK(open(path, O_RDWR | O_CREAT | O_EXCL, 0644));
}

static inline void put(const char *path, const char *text)
{
	int fd = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));

	write_all(fd, text, strlen(text), 0);
	OK(close(fd));
}

static inline void expect_text(const char *path, const char *text)
{
	char got[256] = "";
	int fd = OK(open(path, O_RDONLY));

	OK(read(fd, got, sizeof(got) - 1));
	OK(close(fd));
	if (strcmp(got, text))
		FAIL("%s holds '%s', wanted '%s'", path, got, text);
}

static inline struct stat stat_of(const char *path)
{
	struct stat st;

	OK(lstat(path, &st));
	return st;
}

static inline off_t size_of(int fd)
{
	struct stat st;

	OK(fstat(fd, &st));
	return st.st_size;
}

static inline bool exists(const char *path)
{
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Moves a file from host/ to a GPU as soon as no program has the file open or leased: close returns
 * before the daemon gets the release request. */
static inline void rename_when_closed(const char *from, const char *to)
{
	int error = EBUSY;

	AWAIT((error = rename(from, to) ? errno : 0) != EBUSY && error != EXDEV);
	EQUAL(error, 0);
}

static inline uint64_t seed_from_environment(uint64_t fallback)
{
	const char *text = getenv("GPUMEM_SEED");

	return text ? strtoull(text, NULL, 0) : fallback;
}

/* --- main ---------------------------------------------------------------------------------- */

static inline void prog_child(const struct prog_test *test)
{
	char path[PATH_MAX];
	const char *second = getenv("GPU1");

	umask(022);
	snprintf(path, sizeof(path), "%s/%s.%s", getenv("GPU0"), getenv("TEST"), test->name);
	OK(mkdir(path, 0755));
	OK(chdir(path));
	if (second && *second) {
		snprintf(prog_other, sizeof(prog_other), "%s/%s.%s", second, getenv("TEST"),
			 test->name);
		OK(mkdir(prog_other, 0755));
	}
	test->run();
	fflush(stdout);
	_exit(prog_failures ? 1 : 0);
}

static inline bool prog_wanted(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

static inline void prog_set_late(int number)
{
	(void)number;
	prog_late = true;
}

/* Runs a sub-test in its own process. Returns the exit status, or -1 after a signal. */
static inline int prog_run(const struct prog_test *test)
{
	int status;

	printf("%s\n", test->name);
	fflush(stdout);
	prog_reason[0] = '\0';
	pid_t pid = OK(fork());
	if (pid == 0)
		prog_child(test);
	OK(waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int prog_main(int argc, char **argv, const struct prog_test *tests, size_t n)
{
	size_t failed = 0, skipped = 0, passed = 0, length = 0;
	char *reasons = NULL;
	FILE *why = open_memstream(&reasons, &length);

	prog_reason =
	    mmap(NULL, PROG_REASON_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!why || prog_reason == MAP_FAILED)
		FAIL("no memory");
	signal(SIGTERM, prog_set_late); /* calls go on, but not sleep */
	for (size_t i = 0; i < n && !prog_late; i++) {
		if (!prog_wanted(argc, argv, tests[i].name))
			continue;
		int status = prog_run(&tests[i]);

		passed += status == 0;
		failed += status != 0 && status != EXIT_SKIP;
		if (status == EXIT_SKIP)
			fprintf(why, "%s %s (%s)", skipped++ ? "," : ":", tests[i].name,
				prog_reason);
		else if (status != 0)
			printf("%s: FAILED\n", tests[i].name);
	}
	fclose(why);
	printf("%zu passed, %zu failed, %zu skipped%s\n", passed, failed, skipped, reasons);
	free(reasons);
	return failed ? 1 : passed ? 0 : EXIT_SKIP;
}

#endif
