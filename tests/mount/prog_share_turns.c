/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* kills: no
 * backends: host standin vulkan cuda
 * timeout: 300
 * A user requests more leases than the daemon can give at once; the daemon still serves another
 * user, and all other requests. */
#include "tests/mount/protocol.h"

#include <pthread.h>
#include <signal.h>

#define OTHER_USER 65533
#define ASKERS	   128
#define LARGE	   (16 * MIB)
/* Less than half of a user's requests may be answered before a request of another user. */
#define ANSWERS_MAX (ASKERS / 2)

static struct counts {
	_Atomic unsigned answers, askers;
	_Atomic bool go, stop;
} * counts;

static void counts_new(void)
{
	counts =
	    mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counts != MAP_FAILED);
}

static void await_askers(unsigned wanted)
{
	while (counts->askers < wanted)
		usleep(1000);
}

static void become(uid_t user)
{
	OK(setgroups(0, NULL));
	OK(setresgid(user, user, user));
	OK(setresuid(user, user, user));
}

/* Takes and drops private copies. */
static void ask_for_ever(int unused)
{
	(void)unused;
	become(USER);
	int fd = OK(open("large", O_RDONLY));

	counts->askers++;
	while (!counts->stop) {
		int connection = dial();
		struct answer answer;
		int error = lease_try(fd, connection, &answer);

		/* The end of a copy waits for its turn, too. */
		if (error) {
			EQUAL(error, ENOSPC);
		} else {
			EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
			drop(&answer);
			counts->answers++;
		}
		OK(close(connection));
	}
}

static void another_user_asks(int fd)
{
	become(OTHER_USER);
	for (int round = 0; round < 5; round++) {
		int connection = dial();
		unsigned before = counts->answers;
		struct answer answer;
		int error = lease_try(fd, connection, &answer);
		unsigned came = counts->answers - before;

		/* The copies of the first user may fill the GPU for a moment. */
		if (error) {
			EQUAL(error, ENOSPC);
			OK(close(connection));
			round--;
			continue;
		}
		if (came > ANSWERS_MAX)
			FAIL("%u requests of one user came before that of another one", came);
		drop(&answer);
		OK(close(connection));
	}
}

static int large_file(void)
{
	int large = OK(open("large", O_CREAT | O_RDWR, 0644));

	pattern_write(large, 4, 0, LARGE);
	return large;
}

static void one_user_does_not_hold_up_another(void)
{
	int fd = filled_file("small", 0600), status;

	OK(close(large_file()));
	counts_new();
	for (int i = 0; i < ASKERS; i++)
		spawn(ask_for_ever, 0);
	await_askers(ASKERS);
	pid_t other = spawn(another_user_asks, fd);

	OK(waitpid(other, &status, 0));
	EQUAL(status, 0);
	counts->stop = true;
	join_all(ASKERS);
	expect_leases(fd, 0);
}

/* A request that the daemon has begun when the client ends may take a lease for a moment. */
static void expect_shrinkable(int fd)
{
	AWAIT(ftruncate(fd, 0) == 0 || errno != EBUSY);
	OK(ftruncate(fd, 0));
	expect_leases(fd, 0);
}

struct caller {
	pthread_t thread;
	int fd, connection;
	struct gpumem_lease_ask ask;
};

static void *ask_once(void *pointer)
{
	struct caller *caller = pointer;

	counts->askers++;
	if (ioctl(caller->fd, GPUMEM_IOC_LEASE, &caller->ask) < 0)
		EQUAL(errno, ESTALE);
	return NULL;
}

static void ask_and_hang_up(int unused)
{
	struct caller callers[ASKERS];

	(void)unused;
	become(USER);
	int fd = OK(open("large", O_RDONLY));

	for (int i = 0; i < ASKERS; i++) {
		int connection = dial();

		callers[i] =
		    (struct caller){.fd = fd, .connection = connection, .ask = key_of(connection)};
		EQUAL(pthread_create(&callers[i].thread, NULL, ask_once, &callers[i]), 0);
	}
	await_askers(ASKERS);
	for (int i = 0; i < ASKERS; i++)
		OK(close(callers[i].connection));
	for (int i = 0; i < ASKERS; i++)
		EQUAL(pthread_join(callers[i].thread, NULL), 0);
}

/* Connections that end while their requests wait leave no lease behind. */
static void who_hangs_up_is_forgotten(void)
{
	int large = large_file();

	counts_new();
	spawn(ask_and_hang_up, 0);
	join_all(1);
	expect_shrinkable(large);
}

/* The same for processes that are killed. */
static void the_killed_are_forgotten(void)
{
	int large = large_file(), status;
	pid_t pids[ASKERS];

	counts_new();
	for (int i = 0; i < ASKERS; i++)
		pids[i] = spawn(ask_for_ever, 0);
	await_askers(ASKERS);
	for (int i = 0; i < ASKERS; i++)
		OK(kill(pids[i], SIGKILL));
	for (int i = 0; i < ASKERS; i++) {
		OK(waitpid(pids[i], &status, 0));
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	expect_shrinkable(large);
}

/* More waiting requests than the daemon has threads, each of another user. */
#define WAITERS	   24
#define FIRST_USER 60000
#define MOVED	   (64 * MIB)
/* On a busy machine the file has often moved before all requests came: so many rounds are tried
 * until a few of them show the other request served meanwhile. */
#define ROUNDS	   100
#define SERVED_MIN 3

static _Atomic bool *moves;
static int moved_fd;

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

static void ask_for_moved(int number)
{
	struct answer answer;

	become(FIRST_USER + (uid_t)number);
	int connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);

	counts->askers++;
	while (!counts->go)
		usleep(100);
	EQUAL(lease_with(&ask, moved_fd, connection, &answer), 0);
	counts->answers++;
}

/* Whether another file is leased while a file moves and all requests for the moving file wait. */
static bool is_served_meanwhile(int other)
{
	int connection = dial();

	counts_new();
	for (int i = 0; i < WAITERS; i++)
		spawn(ask_for_moved, i);
	await_askers(WAITERS);
	spawn(move_to_gpu, 0);
	while (!*moves)
		usleep(100);
	usleep(1000);
	counts->go = true;
	/* Wait until all requests wait. */
	usleep(3000);
	struct answer answer = lease_over(connection, other);
	bool meanwhile = counts->answers == 0 && *moves;

	drop(&answer);
	OK(close(connection));
	join_all(WAITERS + 1);
	move_file("moved", getenv("MOVED_FILE"));
	return meanwhile;
}

static void who_waits_for_a_file_holds_up_nobody_else(void)
{
	int other = filled_file("small", 0600), connection = dial();
	char path[PATH_MAX];
	int served = 0;

	moves =
	    mmap(NULL, sizeof(*moves), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(moves != MAP_FAILED);
	moved_fd = OK(open("moved", O_CREAT | O_RDWR, 0600));
	snprintf(path, sizeof(path), "%s/moved", getenv("HOSTDIR"));
	setenv("MOVED_FILE", path, 1);
	pattern_write(moved_fd, 5, 0, MOVED);
	move_file("moved", path);
	/* From here on the file needs no work for a lease. */
	struct answer answer = lease_over(connection, other);

	drop(&answer);
	for (int round = 0; round < ROUNDS && served < SERVED_MIN; round++)
		served += is_served_meanwhile(other);
	OK(unlink(path));
	if (served < SERVED_MIN)
		FAIL("a request for another file waits for the file that moves");
}

PROG(TEST(one_user_does_not_hold_up_another), TEST(who_hangs_up_is_forgotten),
     TEST(the_killed_are_forgotten), TEST(who_waits_for_a_file_holds_up_nobody_else))
