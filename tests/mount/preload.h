/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests under the preload library: the program starts itself again with the library, and fails if
 * the library served no calls directly. */
#ifndef TESTS_MOUNT_PRELOAD_H
#define TESTS_MOUNT_PRELOAD_H

#include "tests/mount/prog.h"

/* Number of calls of a kind ("mapped", "read", "written") in the library's output. */
static inline long served(const char *lines, const char *kind)
{
	char word[32];
	long sum = 0;

	sprintf(word, " %s ", kind);
	for (const char *at = strstr(lines, word); at; at = strstr(at + 1, word))
		sum += atol(at + strlen(word));
	return sum;
}

/* A sub-test says how many copies the library must have served in its process. */
static inline void expect_copied(int copies)
{
	fprintf(stderr, "expected of pid %d: copied %d\n", getpid(), copies);
}

/* Whether the library's lines agree with each expectation. */
static inline bool expected_copies(const char *lines)
{
	bool right = true;
	int pid, wanted;

	for (const char *at = lines; (at = strstr(at, "expected of pid ")); at++) {
		char head[64];
		long got = 0;
		if (sscanf(at, "expected of pid %d: copied %d", &pid, &wanted) != 2)
			continue;
		sprintf(head, "gpumem-preload: pid %d directly:", pid);
		const char *line = strstr(lines, head);
		const char *count = line ? strstr(line, " copied ") : NULL;
		if (count && count < strchr(line, '\n'))
			got = atol(count + strlen(" copied "));
		if (got != wanted)
			printf("pid %d: %ld copies by the GPU, wanted %d\n", pid, got, wanted);
		right = right && got == wanted;
	}
	return right;
}

static inline char *read_whole(int fd)
{
	size_t room = 1 << 20, bytes = 0;
	char *text = malloc(room);
	ssize_t n;

	while ((n = read(fd, text + bytes, room - bytes - 1)) > 0) {
		bytes += n;
		if (bytes + 1 == room)
			text = realloc(text, room *= 2);
	}
	text[bytes] = '\0';
	return text;
}

static inline void start_with_library(char **argv, const char *after)
{
	char library[PATH_MAX];

	sprintf(library, "%s/libgpumem-preload.so", getenv("BUILD"));
	setenv("LD_LIBRARY_PATH", getenv("DAEMON_LIBRARY_PATH"), 1);
	setenv("GPUMEM_PRELOAD_STATS", "1", 1);
	setenv("GPUMEM_PRELOAD_AFTER", after, 1);
#ifdef __SANITIZE_ADDRESS__
	const char *options = getenv("ASAN_OPTIONS");
	char more[PATH_MAX];

	snprintf(more, sizeof(more), "%s:verify_asan_link_order=0", options ? options : "");
	setenv("ASAN_OPTIONS", more, 1);
#endif
	setenv("LD_PRELOAD", library, 1);
	execv("/proc/self/exe", argv);
	_exit(1);
}

/* after: GPUMEM_PRELOAD_AFTER. kinds: the kinds of calls that must have been served, up to NULL. */
static inline int preload_main(int argc, char **argv, const struct prog_test *tests, size_t n,
			       const char *after, const char *const *kinds)
{
	int pipes[2], status;

	if (getenv("LD_PRELOAD"))
		return prog_main(argc, argv, tests, n);
#ifdef __SANITIZE_THREAD__
	puts("the thread sanitizer calls what the library stands in for before either is ready");
	return 77;
#endif
	OK(pipe(pipes));
	pid_t pid = OK(fork());
	if (pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		start_with_library(argv, after);
	}
	close(pipes[1]);
	char *lines = read_whole(pipes[0]);
	OK(waitpid(pid, &status, 0));
	fputs(lines, stdout);
	bool right = expected_copies(lines);
	for (; argc < 2 && *kinds; kinds++)
		if (served(lines, *kinds) == 0) {
			printf("nothing was %s directly\n", *kinds);
			free(lines);
			return 1;
		}
	free(lines);
	return WIFEXITED(status) && right ? WEXITSTATUS(status) : 1;
}

/* Whether the daemon lists a lease of the file for this process. */
static inline bool leased(const char *name)
{
	char path[PATH_MAX], holder[32], *line = NULL;
	size_t room = 0;
	bool found = false;

	sprintf(path, "%s/.gpumem/mappings", getenv("MNT"));
	sprintf(holder, " pid %d\t", getpid());
	FILE *file = fopen(path, "re");
	CHECK(file);
	while (!found && getline(&line, &room, file) > 0) {
		char *last = strrchr(line, '/');
		found = strstr(line, "\tlease\t") && strstr(line, holder) && last &&
			!strncmp(last + 1, name, strlen(name)) && last[1 + strlen(name)] == '\n';
	}
	free(line);
	fclose(file);
	return found;
}

/* Makes a file of data that the library serves through a lease. */
static inline int served_file(const char *name, int flags, size_t bytes)
{
	int fd = new_file(name);
	char byte;

	pattern_write(fd, 1, 0, bytes);
	OK(close(fd));
	fd = OK(open(name, flags));
	if ((flags & O_ACCMODE) == O_WRONLY)
		pattern_write(fd, 1, 0, 8);
	else
		read_all(fd, &byte, 1, 0);
	CHECK(leased(name));
	return fd;
}

#endif
