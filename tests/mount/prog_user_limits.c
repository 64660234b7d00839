/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* mount: user_leases=40
 * needs: daemon
 * kills: no
 * backends: host standin cuda
 * The daemon's resources of a user are bounded: leases, and open files of .gpumem/. Another user
 * and root get leases and files meanwhile, and all resources come back. */
#include "tests/mount/protocol.h"

#include <signal.h>

#define LEASES	    40
#define CONNECTIONS 4
#define OTHER	    1234
#define TEXTS	    128

static void become(uid_t uid)
{
	OK(setgroups(0, NULL));
	OK(setresgid(uid, uid, uid));
	OK(setresuid(uid, uid, uid));
}

static int control_open(const char *name, int flags)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.gpumem/%s", getenv("MNT"), name);
	return open(path, flags | O_CLOEXEC);
}

/* Whether a lease was given; otherwise the errno is the wanted errno. */
static bool take(int fd, int connection, int wanted)
{
	struct answer answer;
	int error = lease_try(fd, connection, &answer);

	if (error)
		EQUAL(error, wanted);
	else
		drop(&answer);
	return error == 0;
}

static void take_one(int fd)
{
	become(OTHER);
	CHECK(take(fd, dial(), 0));
}

/* Takes all leases that the user may have, over several connections that stay open. */
static void fill(int fd, int connections[CONNECTIONS])
{
	for (int i = 0; i < CONNECTIONS; i++)
		connections[i] = dial();
	for (int i = 0; i < LEASES; i++)
		CHECK(take(fd, connections[i % CONNECTIONS], 0));
	for (int i = 0; i < CONNECTIONS; i++)
		CHECK(!take(fd, connections[i], EMFILE));
}

static void flood(int fd)
{
	int connections[CONNECTIONS];

	become_user();
	fill(fd, connections);
	EQUAL(leases_of(fd), LEASES);
	/* A connection that ends makes room for another. */
	int fresh = dial();

	CHECK(!take(fd, fresh, EMFILE));
	OK(close(connections[0]));
	expect_leases(fd, LEASES - LEASES / CONNECTIONS);
	for (int i = 0; i < LEASES / CONNECTIONS; i++)
		CHECK(take(fd, fresh, 0));
	CHECK(!take(fd, fresh, EMFILE));
}

static void leases_of_one_user(void)
{
	int fd = filled_file("file", 0666);

	for (int turn = 0; turn < 3; turn++) {
		spawn(flood, fd);
		join_all(1);
		expect_leases(fd, 0);
	}
	int ends[2];
	char byte;

	OK(pipe(ends));
	pid_t pid = OK(fork());

	if (pid == 0) {
		int connections[CONNECTIONS];

		become_user();
		fill(fd, connections);
		OK(close(ends[1]));
		pause();
	}
	OK(close(ends[1]));
	EQUAL(OK(read(ends[0], &byte, 1)), 0);
	EQUAL(leases_of(fd), LEASES);
	spawn(take_one, fd);
	/* The process of the flood ends later. */
	int status;

	do
		OK(wait(&status));
	while (!WIFEXITED(status));
	EQUAL(status, 0);
	int own = dial();

	for (int i = 0; i < 2 * LEASES; i++)
		CHECK(take(fd, own, 0));
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, &status, 0));
	expect_leases(fd, 2 * LEASES);
	OK(close(own));
	expect_leases(fd, 0);
}

/* Takes and drops leases until the process is killed. Those of a connection that was closed may
 * count a moment longer. */
static void come_and_go(int fd)
{
	become(OTHER);
	for (;;) {
		int connection = dial();

		for (int i = 0; i < 20; i++)
			take(fd, connection, EMFILE);
		OK(close(connection));
	}
}

/* Reads a text with reads of at_once bytes; a NUL follows the text. */
static char *control_text(const char *name, size_t at_once)
{
	size_t room = MIB, used = 0;
	char *text = malloc(room);
	int fd = OK(control_open(name, O_RDONLY));
	ssize_t n;

	CHECK(text);
	while ((n = OK(read(fd, text + used, at_once))) > 0) {
		used += (size_t)n;
		if (room - used > at_once)
			continue;
		text = realloc(text, room *= 2);
		CHECK(text);
	}
	OK(close(fd));
	text[used] = '\0';
	return text;
}

static void copy_all(int unused)
{
	(void)unused;
	become_user();
	int fd = OK(open("file", O_RDONLY)), connection = dial();

	for (int i = 0; i < LEASES; i++)
		CHECK(take(fd, connection, 0));
	CHECK(!take(fd, connection, EMFILE));
}

static bool lists_copies(void)
{
	char *text = control_text("mappings", 65536);
	bool listed = strstr(text, "\tcopy\t");

	free(text);
	return listed;
}

/* Private copies of a reader count as leases. The list shows them until the daemon has noticed the
 * reader's end. */
static void copies_count(void)
{
	int fd = OK(open("file", O_CREAT | O_RDWR | O_CLOEXEC, 0644));

	pattern_write(fd, 3, 0, KIB);
	spawn(copy_all, 0);
	join_all(1);
	AWAIT(!lists_copies());
	CHECK(!lists_copies());
}

/* Each line is a lease; returns the number of this user's leases. */
static int count_lines(char *text, unsigned uid)
{
	char *rest = text, *line;
	int count = 0;

	while ((line = strsep(&rest, "\n")) && rest) {
		unsigned long long bytes;
		unsigned holder;
		int pid, at = 0;

		if (strstr(line, "\tbar\t"))
			continue;
		if (sscanf(line, "%llu\tlease\trw\tuid %u pid %d\t/gpu0/%n", &bytes, &holder, &pid,
			   &at) != 3 ||
		    !at || bytes != BYTES || strcmp(line + strlen(line) - 5, "/file") != 0)
			FAIL("no line of a lease: '%s'", line);
		count += holder == uid;
	}
	EQUAL(line ? strlen(line) : 0, 0);
	return count;
}

static void the_list_is_whole(void)
{
	int fd = filled_file("file", 0666), connections[CONNECTIONS], status;

	for (int i = 0; i < CONNECTIONS; i++)
		connections[i] = dial();
	for (int i = 0; i < 400; i++)
		CHECK(take(fd, connections[i % CONNECTIONS], 0));
	pid_t pid = spawn(come_and_go, fd);

	for (int turn = 0; turn < 30; turn++) {
		char *text = control_text("mappings", turn % 3 ? 65536 : 7);

		EQUAL(count_lines(text, 0), 400);
		free(text);
	}
	EQUAL(waitpid(pid, &status, WNOHANG), 0);
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, &status, 0));
	for (int i = 0; i < CONNECTIONS; i++)
		OK(close(connections[i]));
	expect_leases(fd, 0);
	char *text = control_text("mappings", 65536);

	EQUAL(count_lines(text, 0), 0);
	free(text);
}

/* Opens the file until an open is refused. Returns the number of opens. */
static int open_all(const char *name, int *fds, int wanted)
{
	int n = 0;

	while (n <= TEXTS && (fds[n] = control_open(name, O_RDONLY)) >= 0)
		n++;
	CHECK(n <= TEXTS);
	EQUAL(errno, wanted);
	return n;
}

static void open_version(int unused)
{
	char text[16];

	(void)unused;
	become(OTHER);
	int fd = OK(control_open("version", O_RDONLY));

	CHECK(OK(read(fd, text, sizeof(text))) > 0);
}

/* Whether all files of earlier turns are released. */
static bool all_are_free(void)
{
	int fds[TEXTS + 1], n = open_all("version", fds, EMFILE);

	for (int i = 0; i < n; i++)
		OK(close(fds[i]));
	return n == TEXTS;
}

static void open_texts(int ends)
{
	int fds[TEXTS + 1];

	become_user();
	for (int turn = 0; turn < 3; turn++) {
		int n = open_all(turn % 2 ? "metrics" : "version", fds, EMFILE);

		CHECK(n >= 8);
		if (turn % 2 == 0)
			EQUAL(n, TEXTS);
		/* A closed file makes room for another; the kernel tells the daemon a little later.
		 */
		OK(close(fds[0]));
		AWAIT((fds[0] = control_open("version", O_RDONLY)) >= 0);
		OK(fds[0]);
		for (int i = 0; i < n && turn < 2; i++)
			OK(close(fds[i]));
		AWAIT(turn == 2 || all_are_free());
	}
	OK(close(ends));
	pause();
}

static void texts_of_one_user(void)
{
	int ends[2], status;
	char byte;

	OK(pipe2(ends, O_CLOEXEC));
	pid_t pid = spawn(open_texts, ends[1]);

	OK(close(ends[1]));
	EQUAL(OK(read(ends[0], &byte, 1)), 0);
	EQUAL(waitpid(pid, &status, WNOHANG), 0);
	for (int i = 0; i < 3 * TEXTS; i++)
		OK(control_open("metrics", O_RDONLY));
	spawn(open_version, 0);
	OK(wait(&status));
	EQUAL(status, 0);
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, &status, 0));
}

struct crowd_end {
	uid_t uid;
	int pipe;
};
static struct crowd_end crowd_member;

static void fill_lists(int unused)
{
	int fds[TEXTS + 1];

	(void)unused;
	become(crowd_member.uid);
	EQUAL(open_all("mappings", fds, EMFILE), TEXTS);
	OK(close(crowd_member.pipe));
	pause();
}

static void one_too_many(int unused)
{
	(void)unused;
	become(OTHER + 100);
	CHECK(control_open("metrics", O_RDONLY) < 0);
	EQUAL(errno, ENFILE);
}

/* Many users together leave room for root. */
static void texts_of_many_users(void)
{
	enum { USERS = 7 };
	pid_t pids[USERS];
	int status;

	for (int i = 0; i < USERS; i++) {
		int ends[2];
		char byte;

		OK(pipe2(ends, O_CLOEXEC));
		crowd_member = (struct crowd_end){OTHER + (uid_t)i, ends[1]};
		pids[i] = spawn(fill_lists, 0);
		OK(close(ends[1]));
		EQUAL(OK(read(ends[0], &byte, 1)), 0);
		EQUAL(waitpid(pids[i], &status, WNOHANG), 0);
	}
	spawn(one_too_many, 0);
	OK(wait(&status));
	EQUAL(status, 0);
	for (int i = 0; i < 3 * TEXTS; i++)
		OK(control_open("metrics", O_RDONLY));
	for (int i = 0; i < USERS; i++) {
		OK(kill(pids[i], SIGKILL));
		OK(waitpid(pids[i], &status, 0));
	}
}

static long long metadata_bytes(void)
{
	char *text = control_text("metrics", 65536);
	char *line = strstr(text, "\ngpumemfs_metadata_bytes{");

	CHECK(line);
	long long bytes = atoll(strstr(line, "} ") + 2);

	free(text);
	return bytes;
}

/* A handle opened write-only has no text, and the daemon stores no text for the handle. */
static void writers_have_no_text(void)
{
	long long before = metadata_bytes();
	int fds[100];

	for (int i = 0; i < 100; i++)
		fds[i] = OK(control_open("params", O_WRONLY));
	CHECK(metadata_bytes() - before < 100 * 128);
	for (int i = 0; i < 100; i++)
		OK(close(fds[i]));
	int fd = OK(control_open("params", O_RDWR));
	char text[64];

	CHECK(OK(read(fd, text, sizeof(text))) > 0);
	EQUAL(OK(write(fd, "trace off\n", 10)), 10);
}

PROG(TEST(leases_of_one_user), TEST(copies_count), TEST(the_list_is_whole), TEST(texts_of_one_user),
     TEST(texts_of_many_users), TEST(writers_have_no_text))
