/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Processes that share a file; tests/gpu/pointers.py kills the processes and reads their counts:
 *   sharers stage FILE BYTES SEED     writes FILE, leases and maps it; prints "ready" and waits
 *   sharers hold FILE lease|device    leases FILE (device: and maps FILE in a context);
 *                                     prints "ready" and waits
 *   sharers see FILE SEED             counts the words that read(2), a copy by the GPU and a kernel
 *                                     see as written
 *   sharers again FILE BYTES SEED     writes FILE; until standard input ends maps FILE, counts the
 *                                     right words that a copy by the GPU delivers, and closes FILE
 *   sharers cycles FILE N PID         opens, maps and closes FILE N times; prints the resources of
 *                                     this process, of the daemon (PID) and of the GPU after
 *                                     a tenth of the cycles and at the end */
#include <dirent.h>
#include <poll.h>
#include <stdbool.h>

#include "tests/gpu/pointers.h"

#define PIECE (1ULL << 20)

static uint32_t words[PIECE / sizeof(uint32_t)];

/* Waits to be killed, or for the end of standard input when the parent process ends. */
static void wait_to_be_ended(void)
{
	printf("ready\n");
	fflush(stdout);
	for (char byte; read(STDIN_FILENO, &byte, 1) > 0;)
		;
}

static void write_pattern(int fd, uint64_t bytes, uint32_t seed)
{
	for (uint64_t done = 0; done < bytes; done += PIECE) {
		uint64_t piece = bytes - done < PIECE ? bytes - done : PIECE;

		pattern_fill(words, done / sizeof(words[0]), piece / sizeof(words[0]), seed);
		if (pwrite(fd, words, piece, (off_t)done) != (ssize_t)piece)
			FAIL("write: %s", strerror(errno));
	}
}

static void hold(const char *path, bool mapped)
{
	gpumem *file = lease(path);
	struct gpu gpu;

	if (mapped) {
		gpu_use(&gpu, info_of(file).uuid);
		count_by_copy(&gpu, device_pointer(file), 1, 0);
	}
	wait_to_be_ended();
}

static void stage(const char *path, uint64_t bytes, uint32_t seed)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	write_pattern(fd, bytes, seed);
	hold(path, true); /* fd stays open until the process ends */
}

static uint64_t count_by_read(const char *path, uint64_t n, uint32_t seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t right = 0;

	for (uint64_t done = 0; done < n;) {
		ssize_t got = pread(fd, words, PIECE, (off_t)(done * sizeof(words[0])));

		if (got <= 0)
			break;
		uint64_t count = (uint64_t)got / sizeof(words[0]);

		right += pattern_count(words, done, count, seed);
		done += count;
	}
	close(fd);
	return right;
}

static void see(const char *path, uint32_t seed)
{
	gpumem *file = lease(path);
	struct gpumem_info info = info_of(file);
	uint64_t n = info.size / sizeof(uint32_t);
	struct gpu gpu;

	gpu_use(&gpu, info.uuid);
	print_counts(&gpu, device_pointer(file), n, seed);
	printf("read %llu\n", (unsigned long long)count_by_read(path, n, seed));
	GOOD(gpumem_close(file));
}

static bool input_ended(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) > 0;
}

static void again(const char *path, uint64_t bytes, uint32_t seed)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	uint64_t n = bytes / sizeof(uint32_t), rounds = 0;
	struct gpu gpu;

	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	write_pattern(fd, bytes, seed);
	gpumem *file = lease(path);

	gpu_use(&gpu, info_of(file).uuid);
	GOOD(gpumem_close(file));
	for (; !input_ended(); rounds++) {
		file = lease(path);
		uint64_t right = count_by_copy(&gpu, device_pointer(file), n, seed);

		if (right != n)
			FAIL("round %llu: %llu of %llu words are right", (unsigned long long)rounds,
			     (unsigned long long)right, (unsigned long long)n);
		GOOD(gpumem_close(file));
	}
	printf("%llu rounds\n", (unsigned long long)rounds);
	close(fd);
}

/* --- resources left after many cycles --------------------------------------------------------- */

static long entries(const char *pid)
{
	char path[64];
	long n = 0;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *folder = opendir(path);

	if (!folder)
		FAIL("%s: %s", path, strerror(errno));
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static long lines_of(const char *path)
{
	FILE *file = fopen(path, "re");
	long n = 0;

	if (!file)
		FAIL("%s: %s", path, strerror(errno));
	for (int c; (c = getc(file)) != EOF;)
		n += c == '\n';
	fclose(file);
	return n;
}

static long resident_kib(const char *pid)
{
	char path[64], line[256];
	long kib = -1;

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	FILE *file = fopen(path, "re");

	if (!file)
		FAIL("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtol(line + 6, NULL, 10);
	fclose(file);
	return kib;
}

static void print_held(const struct gpu *gpu, const char *daemon, const char *when)
{
	size_t free_bytes, total;

	MUST(gpu->cu.cuMemGetInfo(&free_bytes, &total));
	printf("fds_%s %ld\n", when, entries("self"));
	printf("mappings_%s %ld\n", when, lines_of("/proc/self/maps"));
	printf("rss_%s %ld\n", when, resident_kib("self"));
	printf("daemon_fds_%s %ld\n", when, entries(daemon));
	printf("daemon_rss_%s %ld\n", when, resident_kib(daemon));
	printf("gpu_%s %zu\n", when, total - free_bytes);
}

static void cycles(const char *path, uint64_t n, const char *daemon)
{
	gpumem *file = lease(path);
	struct gpu gpu;
	double start = 0;

	gpu_use(&gpu, info_of(file).uuid);
	GOOD(gpumem_close(file));
	for (uint64_t i = 0; i < n; i++) {
		if (i == n / 10) {
			print_held(&gpu, daemon, "early");
			start = measure_now();
		}
		file = lease(path);
		device_pointer(file);
		GOOD(gpumem_close(file));
	}
	printf("cycle_us %.1f\n", (measure_now() - start) / (double)(n - n / 10) * 1e6);
	print_held(&gpu, daemon, "late");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (argc == 5 && strcmp(what, "stage") == 0) {
		stage(argv[2], number(argv[3], INT64_MAX), (uint32_t)number(argv[4], UINT32_MAX));
	} else if (argc == 4 && strcmp(what, "hold") == 0) {
		hold(argv[2], strcmp(argv[3], "device") == 0);
	} else if (argc == 4 && strcmp(what, "see") == 0) {
		see(argv[2], (uint32_t)number(argv[3], UINT32_MAX));
	} else if (argc == 5 && strcmp(what, "again") == 0) {
		again(argv[2], number(argv[3], INT64_MAX), (uint32_t)number(argv[4], UINT32_MAX));
	} else if (argc == 5 && strcmp(what, "cycles") == 0) {
		cycles(argv[2], number(argv[3], UINT32_MAX), argv[4]);
	} else {
		fprintf(stderr, "usage: sharers stage FILE BYTES SEED | hold FILE lease|device | "
				"see FILE SEED | again FILE BYTES SEED | cycles FILE N PID\n");
		return 1;
	}
	return 0;
}
