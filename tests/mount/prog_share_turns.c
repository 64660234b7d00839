/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host standin cuda
 * timeout: 300
 * A user requests more leases than the daemon can answer at once; the daemon still serves another
 * user. */
#include "tests/mount/protocol.h"

#define OTHER_USER  65533
#define CONNECTIONS 128
#define LARGE	    (16 * MIB)
/* Less than half of a user's requests may be answered before a request of another user. */
#define ANSWERS_MAX (CONNECTIONS / 2)

static struct counts {
	_Atomic unsigned answers;
	_Atomic bool all_asked, stop;
} * counts;

static void become(uid_t user)
{
	OK(setgroups(0, NULL));
	OK(setresgid(user, user, user));
	OK(setresuid(user, user, user));
}

static void ask_for_copy(int connection)
{
	int fd = OK(open("large", O_RDONLY));
	struct gpumem_token token = token_of(fd);

	show(connection, &token);
	OK(close(fd));
}

/* Drops each copy that arrives, and asks for the next: the number of requests stays the same. */
static void ask_for_ever(int unused)
{
	struct pollfd ready[CONNECTIONS];

	(void)unused;
	become(USER);
	for (int i = 0; i < CONNECTIONS; i++) {
		ready[i] = (struct pollfd){.fd = dial(), .events = POLLIN};
		ask_for_copy(ready[i].fd);
	}
	counts->all_asked = true;
	while (!counts->stop) {
		OK(poll(ready, CONNECTIONS, 100));
		for (int i = 0; i < CONNECTIONS; i++) {
			if (!ready[i].revents)
				continue;
			struct answer answer = hear_layout(ready[i].fd);

			EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
			drop(&answer);
			counts->answers++;
			OK(close(ready[i].fd));
			ready[i].fd = dial();
			ask_for_copy(ready[i].fd);
		}
	}
}

static void another_user_asks(int fd)
{
	become(OTHER_USER);
	for (int round = 0; round < 5; round++) {
		int connection = dial();
		struct gpumem_token token = token_of(fd);
		unsigned before = counts->answers;

		show(connection, &token);
		struct answer answer = hear_layout(connection);
		unsigned came = counts->answers - before;

		if (came > ANSWERS_MAX)
			FAIL("%u requests of one user came before that of another one", came);
		drop(&answer);
		OK(close(connection));
	}
}

static void one_user_does_not_hold_up_another(void)
{
	int fd = filled_file("small", 0600);
	int large = OK(open("large", O_CREAT | O_RDWR, 0644));

	counts =
	    mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counts != MAP_FAILED);
	pattern_write(large, 4, 0, LARGE);
	pid_t asker = spawn(ask_for_ever, 0);

	while (!counts->all_asked)
		usleep(1000);
	pid_t other = spawn(another_user_asks, fd);
	int status;

	OK(waitpid(other, &status, 0));
	EQUAL(status, 0);
	counts->stop = true;
	OK(waitpid(asker, &status, 0));
	EQUAL(status, 0);
	expect_leases(fd, 0);
}

/* A request that the daemon reads after the check of the leases may take a lease for a moment. */
static void expect_shrinkable(int fd)
{
	for (int tries = 0; tries < 1000 && ftruncate(fd, 0) < 0 && errno == EBUSY; tries++)
		usleep(10000);
	OK(ftruncate(fd, 0));
}

/* Connections that end while their requests wait leave no lease behind. */
static void who_hangs_up_is_forgotten(void)
{
	int large = OK(open("large", O_CREAT | O_RDWR, 0644)), connections[CONNECTIONS];

	pattern_write(large, 4, 0, LARGE);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CONNECTIONS; i++) {
			struct gpumem_token token = token_of(large);

			connections[i] = dial();
			show(connections[i], &token);
		}
		for (int i = 0; i < CONNECTIONS; i++)
			OK(close(connections[i]));
	}
	expect_shrinkable(large);
	expect_leases(large, 0);
}

/* More waiting requests than the daemon has threads for them, each of another user. */
#define WAITERS	   24
#define FIRST_USER 60000
#define MOVED	   (64 * MIB)
#define ROUNDS	   10
/* A busy daemon may read all requests of a round together and postpone them. */
#define SERVED_MIN 3

static _Atomic bool *moves;

static int dial_as(uid_t user, int fd, struct gpumem_token *token)
{
	OK(seteuid(user));
	int connection = dial();

	*token = token_of(fd);
	OK(seteuid(0));
	return connection;
}

/* Leases end some time after their connections. */
static void move_file(const char *from, const char *to)
{
	while (rename(from, to) < 0) {
		EQUAL(errno, EBUSY);
		usleep(1000);
	}
}

static void move_to_gpu(int unused)
{
	(void)unused;
	/* Close the connections of the parent: a lease whose connection is also open in this
	 * process would never end. */
	OK(close_range(3, ~0U, 0));
	*moves = true;
	move_file(getenv("MOVED_FILE"), "moved");
	*moves = false;
}

static void have_layout(int connection)
{
	struct answer answer = hear_layout(connection);

	drop(&answer);
}

/* Whether another file is leased while a file moves and all requests for the moving file wait. */
static bool is_served_meanwhile(int moved, int other)
{
	struct gpumem_token tokens[WAITERS], token = token_of(other);
	struct pollfd waiters[WAITERS];
	int connection = dial();

	for (unsigned i = 0; i < WAITERS; i++)
		waiters[i] = (struct pollfd){.fd = dial_as(FIRST_USER + i, moved, &tokens[i]),
					     .events = POLLIN};
	pid_t mover = spawn(move_to_gpu, 0);

	while (!*moves)
		usleep(100);
	usleep(1000);
	for (int i = 0; i < WAITERS; i++) {
		show(waiters[i].fd, &tokens[i]);
		/* The daemon must not answer the first request at once for lack of other work. */
		if (i == 0)
			usleep(1000);
	}
	/* Wait until all requests wait. */
	usleep(2000);
	show(connection, &token);
	have_layout(connection);
	bool meanwhile = poll(waiters, WAITERS, 0) == 0 && *moves;

	OK(close(connection));
	for (int i = 0; i < WAITERS; i++) {
		have_layout(waiters[i].fd);
		OK(close(waiters[i].fd));
	}
	OK(waitpid(mover, NULL, 0));
	move_file("moved", getenv("MOVED_FILE"));
	return meanwhile;
}

static void who_waits_for_a_file_holds_up_nobody_else(void)
{
	int other = filled_file("small", 0600), connection = dial();
	int moved = OK(open("moved", O_CREAT | O_RDWR, 0600));
	struct gpumem_token token = token_of(other);
	char path[PATH_MAX];
	int served = 0;

	moves =
	    mmap(NULL, sizeof(*moves), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(moves != MAP_FAILED);
	snprintf(path, sizeof(path), "%s/moved", getenv("HOSTDIR"));
	setenv("MOVED_FILE", path, 1);
	pattern_write(moved, 5, 0, MOVED);
	move_file("moved", path);
	/* From here on the file needs no work for a lease. */
	show(connection, &token);
	have_layout(connection);
	for (int round = 0; round < ROUNDS; round++)
		served += is_served_meanwhile(moved, other);
	OK(unlink(path));
	if (served < SERVED_MIN)
		FAIL("a request for another file waits for the file that moves");
}

PROG(TEST(one_user_does_not_hold_up_another), TEST(who_hangs_up_is_forgotten),
     TEST(who_waits_for_a_file_holds_up_nobody_else))
