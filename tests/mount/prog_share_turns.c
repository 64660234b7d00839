/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host standin cuda
 * timeout: 300
 * One user asks for more than the daemon can give at once; another one is served meanwhile. */
#include "tests/mount/protocol.h"

#define OTHER_USER  65533
#define CONNECTIONS 128
#define LARGE	    (16 * MIB)
/* Of a user's requests not even half may come before a request of another user. */
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

/* A copy is dropped as it comes, and the next one asked for: there are always as many requests. */
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

/* A request that the daemon reads after a look at the leases may take one for a moment. */
static void expect_shrinkable(int fd)
{
	for (int tries = 0; tries < 1000 && ftruncate(fd, 0) < 0 && errno == EBUSY; tries++)
		usleep(10000);
	OK(ftruncate(fd, 0));
}

/* Connections that end while their requests wait leave nothing behind. */
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

PROG(TEST(one_user_does_not_hold_up_another), TEST(who_hangs_up_is_forgotten))
