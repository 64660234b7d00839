/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by the tests of libgpumem. */
#ifndef TESTS_MOUNT_CLIENT_H
#define TESTS_MOUNT_CLIENT_H

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>

#include "client/lib/gpumem.h"
#include "tests/mount/prog.h"

/* A call of the library that must succeed. */
#define GOOD(call)                                                                                 \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			FAIL("%s: %s: %s", #call, strerror(errno), gpumem_error());                \
	} while (0)

/* A call that must fail with this errno and a text with the reason. */
#define REFUSED(error, text, call)                                                                 \
	do {                                                                                       \
		FAILS(error, call);                                                                \
		if (!strstr(gpumem_error(), text))                                                 \
			FAIL("%s: '%s' says nothing of '%s'", #call, gpumem_error(), text);        \
	} while (0)

/* Starts the program again with LD_LIBRARY_PATH: the loader finds the drivers there, and reads the
 * path only at the start of a program. */
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

/* The number of repetitions: on a real GPU a repetition costs more and shows as much. */
static inline int repeats(int anywhere, int on_real_gpus)
{
	return strcmp(getenv("BACKEND"), "cuda") != 0 ? anywhere : on_real_gpus;
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

/* A load through a GPU's BAR takes a microsecond, for a byte as for a vector: memcpy uses vectors.
 */
#define PIECE 1024

static inline void expect_pattern(const unsigned char *bytes, uint64_t seed, size_t from, size_t to)
{
	unsigned char piece[PIECE];

	for (size_t at = from, n; at < to; at += n) {
		n = to - at < PIECE ? to - at : PIECE;
		memcpy(piece, bytes + at, n);
		for (size_t i = 0; i < n; i++)
			if (piece[i] != pattern_at(seed, at + i))
				FAIL("byte %zu is %02x, wanted %02x", at + i, piece[i],
				     pattern_at(seed, at + i));
	}
}

static inline void expect_zero(const unsigned char *bytes, size_t from, size_t to)
{
	unsigned char piece[PIECE];

	for (size_t at = from, n; at < to; at += n) {
		n = to - at < PIECE ? to - at : PIECE;
		memcpy(piece, bytes + at, n);
		for (size_t i = 0; i < n; i++)
			if (piece[i])
				FAIL("byte %zu of a hole is %02x", at + i, piece[i]);
	}
}

static inline int patterned_file(const char *path, uint64_t seed, size_t bytes)
{
	int fd = new_file(path);

	pattern_write(fd, seed, 0, bytes);
	return fd;
}

/* Without "." and "..". */
static inline int names_in(const char *path)
{
	DIR *folder = opendir(path);
	int n = 0;

	while (readdir(folder))
		n++;
	closedir(folder);
	return n - 2;
}

static inline int names_here(void)
{
	return names_in(".");
}

static inline int open_descriptors(void)
{
	return names_in("/proc/self/fd");
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

/* A leased file cannot shrink, so a successful ftruncate shows that no lease is left. */
static inline bool shrinks(int fd, off_t to)
{
	int rc = -1;

	AWAIT((rc = ftruncate(fd, to)) == 0 || errno != EBUSY);
	return rc == 0;
}

/* Processes that hold leases of a file and are killed together: afterwards the file has no lease.
 * hold maps the file "file", writes a byte into the descriptor and waits. */
static inline void kill_sharers(int fd, int sharers, void (*hold)(int ready))
{
	pid_t *pids = calloc(sharers, sizeof(*pids));
	char bytes[64];
	int ready[2];

	OK(pipe(ready));
	for (int i = 0; i < sharers; i++)
		pids[i] = spawn(hold, ready[1]);
	OK(close(ready[1]));
	for (int got = 0, n; got < sharers; got += n) {
		n = OK(read(ready[0], bytes, sizeof(bytes)));
		if (!n)
			FAIL("only %d of %d sharers have the file", got, sharers);
	}
	FAILS(EBUSY, ftruncate(fd, 0));
	for (int i = 0; i < sharers; i++)
		OK(kill(pids[i], SIGKILL));
	for (int i = 0; i < sharers; i++)
		OK(wait(NULL));
	free(pids);
}

/* As repeats, or as many as GPUMEM_TEST_CYCLES asks for. */
static inline int cycles_wanted(int anywhere, int on_real_gpus)
{
	const char *wanted = getenv("GPUMEM_TEST_CYCLES");

	return wanted ? atoi(wanted) : repeats(anywhere, on_real_gpus);
}

/* Opens, uses and closes a file many times: after all cycles the process must have as many
 * descriptors and mappings as after the first tenth. */
static inline void cycle_through(void (*use)(int cycle))
{
	int cycles = cycles_wanted(500, 100), before = 0, mapped = 0;

	for (int i = 0; i < cycles; i++) {
		use(i);
		if (i == cycles / 10) {
			before = open_descriptors();
			mapped = mappings();
		}
	}
	EQUAL(open_descriptors(), before);
	CHECK(mappings() <= mapped + 3); /* the heap may have grown */
}

/* Sends a descriptor and a byte over a Unix socket. */
static inline void send_descriptor(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	*head = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	OK(sendmsg(socket, &message, 0));
}

static inline int receive_descriptor(int socket)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	int fd;

	OK(recvmsg(socket, &message, 0));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

#endif
