/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Notices of a fake daemon: at safe points and at once, incorrect notices, and daemons that send
 * none. */
#include <sys/wait.h>

#include "client/lib/file.h"
#include "tests/unit/client_fixture.h"

static gpumem *file;
static unsigned char *at;

static void file_open(void)
{
	void *address;

	fake_add(2 * MIB_);
	file = fake_open();
	ck_assert_int_eq(gpumem_map_host(file, &address, NULL), 0);
	at = address;
	at[5] = 77;
}

static bool listens(uint32_t flags)
{
	bool does;

	FAKE(does = fake.listener && fake.listen_flags == flags);
	return does;
}

static void listen_until(uint32_t flags)
{
	ck_assert_int_eq(gpumem_safe_point(), 0);
	UNIT_AWAIT(listens(flags));
}

static struct gpumem_msg_notice notice_of(uint32_t number, uint32_t what)
{
	return (struct gpumem_msg_notice){
	    .header = fake_header(GPUMEM_MSG_NOTICE, sizeof(struct gpumem_msg_notice), number),
	    .what = what};
}

static void notice_send(const struct gpumem_msg_notice *notice)
{
	FAKE(fake_send(fake.listener, notice, sizeof(*notice), NULL, 0));
}

static void notify(uint32_t number, uint32_t what, uint32_t flags)
{
	struct gpumem_msg_notice notice = notice_of(number, what);

	notice.flags = flags;
	notice_send(&notice);
}

static void want_memory(uint64_t bytes, uint32_t device)
{
	struct gpumem_msg_notice notice = notice_of(0, GPUMEM_NOTICE_MEMORY);

	notice.bytes = bytes;
	notice.device = device;
	notice_send(&notice);
}

/* Until a safe point gives this result. */
static void points_until(int result)
{
	UNIT_AWAIT(gpumem_safe_point() == result);
}

static void expect_answer(uint32_t number, int error, uint32_t files)
{
	FAKE(ck_assert_uint_eq(fake.noticed.header.request, number);
	     ck_assert_int_eq(fake.noticed.error, error);
	     ck_assert_uint_eq(fake.noticed.files, files));
}

START_TEST(at_safe_points)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	notify(5, GPUMEM_NOTICE_PARK, 0);
	points_until(1);
	eventually(&fake.answers, 1);
	expect_answer(5, 0, 1);
	eventually(&fake.leases, 0);
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, EBUSY);
	notify(6, GPUMEM_NOTICE_UNPARK, 0);
	points_until(0);
	eventually(&fake.answers, 2);
	expect_answer(6, 0, 1);
	eventually(&fake.leases, 1);
	ck_assert_uint_eq(at[5], 77);
	/* The program itself may end it. */
	notify(7, GPUMEM_NOTICE_PARK, 0);
	points_until(1);
	ck_assert_int_eq(gpumem_unpark(file), GPUMEM_UNPARKED_SAME);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(at[5], 77);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

START_TEST(at_once)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	notify(1, GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 1);
	expect_answer(1, 0, 1);
	ck_assert_uint_eq(atomic_load(&fake.leases), 0);
	ck_assert_int_eq(gpumem_safe_point(), 1);
	FAKE(fake.refuse = ENOSPC);
	notify(2, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 2);
	expect_answer(2, ENOSPC, 0);
	ck_assert_int_eq(gpumem_safe_point(), 1);
	FAKE(fake.refuse = 0);
	notify(3, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 3);
	expect_answer(3, 0, 1);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(at[5], 77);
}
END_TEST

/* What the program has parked itself, a request does not map again. */
START_TEST(parked_by_the_program)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	ck_assert_int_eq(gpumem_park(file), 0);
	notify(1, GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 1);
	expect_answer(1, 0, 1);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	notify(2, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 2);
	expect_answer(2, 0, 0);
	ck_assert_uint_eq(atomic_load(&fake.leases), 0);
}
END_TEST

START_TEST(another_file)
{
	struct gpumem_msg_notice notice = notice_of(1, GPUMEM_NOTICE_PARK);

	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	notice.inode = 1;
	notice.flags = GPUMEM_NOTICE_NOW;
	notice_send(&notice);
	eventually(&fake.answers, 1);
	expect_answer(1, 0, 0);
	ck_assert_uint_eq(atomic_load(&fake.leases), 1);
}
END_TEST

START_TEST(too_many)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	for (uint32_t i = 1; i <= 17; i++)
		notify(i, GPUMEM_NOTICE_PARK, 0);
	eventually(&fake.answers, 1);
	expect_answer(17, EBUSY, 0);
	ck_assert_int_eq(gpumem_safe_point(), 1);
	eventually(&fake.answers, 17);
	expect_answer(16, 0, 1);
}
END_TEST

static unsigned calls;
static uint64_t wanted_bytes;

static void pressed(uint64_t bytes, unsigned device, void *context)
{
	ck_assert_ptr_eq(context, &calls);
	ck_assert_uint_eq(device, 0);
	wanted_bytes = bytes;
	calls++;
	/* Any function may be called. */
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_int_eq(gpumem_park(file), 0);
}

START_TEST(pressure)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	ck_assert_int_eq(gpumem_on_pressure(pressed, &calls), 0);
	listen_until(GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_MEMORY);
	want_memory(4096, 3); /* the process has no memory of this GPU */
	want_memory(4096, 0);
	want_memory(8192, 0);
	notify(1, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 1);
	ck_assert_uint_eq(calls, 0);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(calls, 1);
	ck_assert_uint_eq(wanted_bytes, 8192);
	/* A parked file holds no memory. */
	want_memory(4096, 0);
	notify(2, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 2);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(calls, 1);
	ck_assert_int_eq(gpumem_on_pressure(NULL, NULL), 0);
	listen_until(GPUMEM_LISTEN_PARK);
	ck_assert_int_eq(gpumem_unpark(file), 0);
	want_memory(4096, 0);
	notify(3, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 3);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(calls, 1);
}
END_TEST

/* The connection of a daemon that sends another form ends, and a new one begins. */
START_TEST(malformed)
{
	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	for (unsigned way = 0; way < 6; way++) {
		struct gpumem_msg_notice notice = notice_of(1, GPUMEM_NOTICE_PARK), good;

		if (way == 0)
			notice.what = 0;
		else if (way == 1)
			notice.flags = 2;
		else if (way == 2)
			notice.bytes = 1;
		else if (way == 3)
			notice.header.type = GPUMEM_MSG_LAYOUT;
		else if (way == 4)
			notice.header.bytes--;
		else
			notice.reserved = 1;
		good = notice_of(1, GPUMEM_NOTICE_PARK);
		ck_assert_int_eq(client_answer_notice(&good, sizeof(good), &good), 0);
		ck_assert_int_eq(client_answer_notice(&notice, sizeof(notice), &good), -EPROTO);
		if (way == 0)
			notice_send(&notice);
	}
	eventually(&fake.connections, 1);
	listen_until(GPUMEM_LISTEN_PARK);
	ck_assert_uint_eq(atomic_load(&fake.leases), 1);
}
END_TEST

/* A daemon before notices ends the connection: the files are as before. */
START_TEST(deaf_daemon)
{
	FAKE(fake.deaf = true);
	file_open();
	ck_assert_int_eq(gpumem_safe_point(), 0);
	eventually(&fake.connections, 1);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_int_eq(gpumem_extend(file), 0);
	FAKE(fake.deaf = false);
	/* The next file tries again, once the thread of the ended connection is gone. */
	UNIT_AWAIT(gpumem_close(fake_open()) < 0 || listens(GPUMEM_LISTEN_PARK));
}
END_TEST

/* A process that never says so does not listen, and has no thread. */
START_TEST(no_safe_point)
{
	file_open();
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	ck_assert_int_eq(gpumem_close(file), 0);
	ck_assert(!listens(GPUMEM_LISTEN_PARK));
}
END_TEST

static atomic_uint n_ended;

static void count_end(gpumem *ended, void *context)
{
	ck_assert_ptr_eq(ended, context);
	atomic_fetch_add(&n_ended, 1);
}

/* The notice is of a single file of the mount, and may come again. */
START_TEST(the_end_of_a_process)
{
	struct gpumem_msg_notice notice = notice_of(0, GPUMEM_NOTICE_END);

	file_open();
	ck_assert_int_eq(gpumem_on_end(file, count_end, file), 0);
	UNIT_AWAIT(listens(GPUMEM_LISTEN_END));
	listen_until(GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_END);
	notice.inode = file->identity.inode + 1;
	notice_send(&notice);
	notice.inode = file->identity.inode;
	notice_send(&notice);
	notice_send(&notice);
	eventually(&n_ended, 1);
	notify(5, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 1);
	ck_assert_uint_eq(atomic_load(&n_ended), 1);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

/* After the connection is back, the process asks about its leases. */
START_TEST(an_end_that_was_missed)
{
	file_open();
	int fd = gpumem_end_fd(file);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gpumem_on_end(file, count_end, file), 0);
	UNIT_AWAIT(listens(GPUMEM_LISTEN_END));
	FAKE(fake.refuse = ESTALE; shutdown(fake.listener, SHUT_RDWR));
	eventually(&n_ended, 1);
	ck_assert_int_eq(read(fd, &(uint64_t){0}, sizeof(uint64_t)), sizeof(uint64_t));
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

static atomic_bool in_callback, may_end;

static void call_slowly(gpumem *ended, void *context)
{
	(void)ended;
	atomic_store(&in_callback, true);
	while (!atomic_load(&may_end))
		usleep(1000);
	atomic_store((atomic_bool *)context, true);
}

static void *end_soon(void *unused)
{
	usleep(20000);
	atomic_store(&may_end, true);
	return unused;
}

START_TEST(a_close_waits_for_the_callback)
{
	atomic_bool ended = false;
	pthread_t thread;

	file_open();
	ck_assert_int_eq(gpumem_on_end(file, call_slowly, &ended), 0);
	UNIT_AWAIT(listens(GPUMEM_LISTEN_END));
	struct gpumem_msg_notice notice = notice_of(0, GPUMEM_NOTICE_END);

	notice.inode = file->identity.inode;
	notice_send(&notice);
	UNIT_AWAIT(atomic_load(&in_callback));
	pthread_create(&thread, NULL, end_soon, NULL);
	ck_assert_int_eq(gpumem_close(file), 0);
	ck_assert(atomic_load(&ended));
	pthread_join(thread, NULL);
}
END_TEST

static atomic_bool stop;

static void *points_main(void *unused)
{
	while (!atomic_load(&stop))
		gpumem_safe_point();
	return unused;
}

static void *files_main(void *unused)
{
	while (!atomic_load(&stop)) {
		gpumem *other = gpumem_open(fake_path(), O_RDWR);

		if (other)
			gpumem_close(other);
	}
	return unused;
}

START_TEST(threads)
{
	pthread_t ids[4];

	file_open();
	ck_assert_int_eq(gpumem_on_pressure(NULL, NULL), 0);
	listen_until(GPUMEM_LISTEN_PARK);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&ids[i], NULL, i < 2 ? points_main : files_main, NULL);
	for (uint32_t i = 0; i < 50; i++) {
		notify(4 * i + 1, GPUMEM_NOTICE_PARK, 0);
		notify(4 * i + 2, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
		notify(4 * i + 3, GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_NOW);
		notify(4 * i + 4, GPUMEM_NOTICE_UNPARK, 0);
		eventually(&fake.answers, 4 * i + 4);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
	notify(1000, GPUMEM_NOTICE_UNPARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 201);
	ck_assert_int_eq(gpumem_safe_point(), 0);
	ck_assert_uint_eq(at[5], 77);
	ck_assert_int_eq(gpumem_close(file), 0);
	eventually(&fake.leases, 0);
}
END_TEST

/* Other threads fork between any two steps of a safe point. */
START_TEST(forks_at_safe_points)
{
	pthread_t ids[4];

	file_open();
	listen_until(GPUMEM_LISTEN_PARK);
	ck_assert_int_eq(gpumem_on_pressure(pressed, &calls), 0);
	notify(1, GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_NOW);
	eventually(&fake.answers, 1);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&ids[i], NULL, points_main, NULL);
	for (unsigned i = 0; i < 300; i++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(gpumem_safe_point());
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
}
END_TEST

static struct gpumem *held;
static atomic_bool holds, closed;

static void file_hold(struct gpumem *visited, void *unused)
{
	(void)unused;
	if (visited != held)
		return;
	atomic_store(&holds, true);
	while (!atomic_load(&stop))
		usleep(1000);
	ck_assert(!atomic_load(&closed));
}

static void *hold_main(void *unused)
{
	client_files_each(file_hold, NULL);
	return unused;
}

static void *close_main(void *unused)
{
	ck_assert_int_eq(gpumem_close(held), 0);
	atomic_store(&closed, true);
	return unused;
}

/* What a request does to one file holds up neither calls for others nor the end of the process's
 * other files, and a file stays until that has ended. */
START_TEST(a_file_at_a_time)
{
	pthread_t holder, closer;
	gpumem *before, *after;

	fake_add(2 * MIB_);
	before = fake_open();
	held = fake_open();
	after = fake_open();
	pthread_create(&holder, NULL, hold_main, NULL);
	while (!atomic_load(&holds))
		usleep(1000);
	pthread_create(&closer, NULL, close_main, NULL);
	ck_assert_int_eq(gpumem_close(before), 0);
	ck_assert_int_eq(gpumem_close(after), 0);
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	atomic_store(&stop, true);
	pthread_join(holder, NULL);
	pthread_join(closer, NULL);
	eventually(&fake.leases, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("notices", &tests, 60);

	fake_path();
	tcase_add_test(tests, at_safe_points);
	tcase_add_test(tests, at_once);
	tcase_add_test(tests, parked_by_the_program);
	tcase_add_test(tests, another_file);
	tcase_add_test(tests, too_many);
	tcase_add_test(tests, pressure);
	tcase_add_test(tests, malformed);
	tcase_add_test(tests, deaf_daemon);
	tcase_add_test(tests, no_safe_point);
	tcase_add_test(tests, the_end_of_a_process);
	tcase_add_test(tests, an_end_that_was_missed);
	tcase_add_test(tests, a_close_waits_for_the_callback);
	tcase_add_test(tests, threads);
	tcase_add_test(tests, forks_at_safe_points);
	tcase_add_test(tests, a_file_at_a_time);
	int failed = unit_main(suite);

	fake_forget();
	return failed;
}
