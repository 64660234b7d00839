/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the tests of libgpumem share. */
#ifndef TESTS_MOUNT_CLIENT_H
#define TESTS_MOUNT_CLIENT_H

#include <dirent.h>

#include "client/gpumem.h"
#include "tests/mount/prog.h"

/* A call of the library that must succeed. */
#define GOOD(call)                                                                                 \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			FAIL("%s: %s: %s", #call, strerror(errno), gpumem_error());                \
	} while (0)

/* One that must fail with this errno and a text that says why. */
#define REFUSED(error, text, call)                                                                 \
	do {                                                                                       \
		FAILS(error, call);                                                                \
		if (!strstr(gpumem_error(), text))                                                 \
			FAIL("%s: '%s' says nothing of '%s'", #call, gpumem_error(), text);        \
	} while (0)

/* The drivers are found by the loader, which reads its path when a program starts. */
static inline void client_start(char **argv)
{
	const char *wanted = getenv("DAEMON_LIBRARY_PATH"), *path = getenv("LD_LIBRARY_PATH");

	if (!wanted || !*wanted || (path && !strcmp(path, wanted)))
		return;
	setenv("LD_LIBRARY_PATH", wanted, 1);
	execv("/proc/self/exe", argv);
	FAIL("exec: %s", strerror(errno));
}

#define CLIENT_PROG(...)                                                                           \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		static const struct prog_test tests[] = {__VA_ARGS__};                             \
		client_start(argv);                                                                \
		return prog_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));             \
	}

static inline bool on_gpu(void)
{
	return strcmp(getenv("BACKEND"), "host") != 0;
}

static inline gpumem *lease(const char *path, int flags)
{
	gpumem *file = gpumem_open(path, flags);

	if (!file)
		FAIL("gpumem_open(%s): %s: %s", path, strerror(errno), gpumem_error());
	return file;
}

static inline struct gpumem_info info_of(gpumem *file)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	GOOD(gpumem_get_info(file, &info));
	return info;
}

static inline unsigned char *host_pointer(gpumem *file, size_t wanted)
{
	void *address;
	size_t bytes;

	GOOD(gpumem_map_host(file, &address, &bytes));
	EQUAL(bytes, wanted);
	return address;
}

static inline void expect_pattern(const unsigned char *bytes, uint64_t seed, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (bytes[i] != pattern_at(seed, i))
			FAIL("byte %zu is %02x, wanted %02x", i, bytes[i], pattern_at(seed, i));
}

static inline int patterned_file(const char *path, uint64_t seed, size_t bytes)
{
	int fd = new_file(path);

	pattern_write(fd, seed, 0, bytes);
	return fd;
}

static inline int open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static inline int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int n = 0, c;

	while ((c = getc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
	return n;
}

/* A leased file cannot shrink: whether the leases are gone is seen by that. */
static inline bool shrinks(int fd, off_t to)
{
	for (int tries = 0; tries < 1000; tries++) {
		if (ftruncate(fd, to) == 0)
			return true;
		if (errno != EBUSY)
			return false;
		usleep(10000);
	}
	return false;
}

#endif
