/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* kills: no
 * backends: host standin cuda
 * Notices, spoken by hand: what listening clients are sent and by which users, and clients that are
 * many, never answer, or end. (No kills: a replaced daemon does not know the notices any more.) */
#include "tests/mount/protocol.h"

static struct gpumem_notify notify_of(uint32_t what)
{
	return (struct gpumem_notify){.version = GPUMEM_PROTOCOL_VERSION, .what = what};
}

static struct gpumem_notified answer_to(int fd, uint32_t number, uint64_t cursor)
{
	struct gpumem_notified notified = {.number = number, .cursor = cursor};

	OK(ioctl(fd, GPUMEM_IOC_NOTIFIED, &notified));
	return notified;
}

static uint32_t roots_notice;

static void notify_as_another(int fd)
{
	struct gpumem_notify notify = notify_of(GPUMEM_NOTICE_PARK);

	/* As for a process without files. */
	notify.pid = getppid();
	become_user();
	FAILS(ESRCH, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	notify.pid = 0;
	FAILS(ESRCH, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	EQUAL(answer_to(fd, roots_notice, 0).state, GPUMEM_NOTIFIED_END);
}

static void notices_and_their_answers(void)
{
	int fd = filled_file("file", 0666), one = listening(), two = listening();
	struct gpumem_notify notify = notify_of(GPUMEM_NOTICE_PARK);
	struct stat st;

	OK(fstat(fd, &st));
	notify.flags = GPUMEM_NOTICE_NOW;
	OK(ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	EQUAL(notify.sent, 2);
	struct answer heard = hear(one);

	EQUAL(heard.bytes, sizeof(heard.packet.notice));
	EQUAL(heard.packet.header.type, GPUMEM_MSG_NOTICE);
	EQUAL(heard.packet.header.request, notify.number);
	EQUAL(heard.packet.notice.what, GPUMEM_NOTICE_PARK);
	EQUAL(heard.packet.notice.flags, GPUMEM_NOTICE_NOW);
	EQUAL(heard.packet.notice.inode, st.st_ino);
	EQUAL(hear(two).packet.header.request, notify.number);

	struct gpumem_msg_noticed noticed = {
	    .header = head(GPUMEM_MSG_NOTICED, sizeof(noticed)), .error = ENOSPC, .files = 3};

	noticed.header.request = notify.number;
	say(two, &noticed, sizeof(noticed));
	/* The next request of the connection is answered after the notice's answer is noted. */
	key_of(two);
	struct gpumem_notified first = answer_to(fd, notify.number, 0);
	struct gpumem_notified second = answer_to(fd, notify.number, first.cursor);

	EQUAL(first.state, GPUMEM_NOTIFIED_WAITS);
	EQUAL(second.state, GPUMEM_NOTIFIED_ANSWERED);
	EQUAL(second.error, ENOSPC);
	EQUAL(second.files, 3);
	EQUAL(answer_to(fd, notify.number, second.cursor).state, GPUMEM_NOTIFIED_END);
	EQUAL(answer_to(fd, notify.number + 1, 0).state, GPUMEM_NOTIFIED_END);
	/* An answer to no notice is ignored. */
	noticed.header.request = notify.number + 1;
	say(two, &noticed, sizeof(noticed));
	key_of(two);
	roots_notice = notify.number;
	spawn(notify_as_another, fd);
	join_all(1);
	OK(close(one));
	OK(close(two));
	all_is_well(fd);
}

static void notices_that_are_none(void)
{
	int fd = filled_file("file", 0600), connection = listening();
	struct gpumem_notify notify = notify_of(GPUMEM_NOTICE_MEMORY);

	FAILS(EINVAL, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	notify = notify_of(GPUMEM_NOTICE_PARK);
	notify.flags = 2;
	FAILS(EINVAL, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	notify = notify_of(GPUMEM_NOTICE_PARK);
	notify.version++;
	FAILS(EOPNOTSUPP, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	notify = notify_of(GPUMEM_NOTICE_PARK);
	notify.pid = INT32_MAX;
	FAILS(ESRCH, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	/* A process that does not read its notices costs the daemon nothing. */
	for (int i = 0; i < 5000; i++) {
		notify = notify_of(GPUMEM_NOTICE_UNPARK);
		if (ioctl(fd, GPUMEM_IOC_NOTIFY, &notify) < 0)
			EQUAL(errno, ESRCH);
	}
	OK(close(connection));
	all_is_well(fd);
}

/* How many processes were sent a notice and are still there. */
static int notified_count(int fd, uint32_t number)
{
	struct gpumem_notified notified = answer_to(fd, number, 0);
	int count = 0;

	for (; notified.state != GPUMEM_NOTIFIED_END; count++) {
		EQUAL(notified.state, GPUMEM_NOTIFIED_WAITS);
		EQUAL(notified.pid, getpid());
		notified = answer_to(fd, number, notified.cursor);
	}
	return count;
}

static void expect_notified(int fd, uint32_t number, int wanted)
{
	AWAIT(notified_count(fd, number) == wanted);
	EQUAL(notified_count(fd, number), wanted);
}

/* Connections that listen, never answer, and end while notices are sent. */
#define LISTENERS 200

static void many_that_listen(void)
{
	int fd = filled_file("file", 0600), connections[LISTENERS];
	struct gpumem_notify notify = notify_of(GPUMEM_NOTICE_PARK);

	for (int i = 0; i < LISTENERS; i++)
		connections[i] = listening();
	OK(ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	EQUAL(notify.sent, LISTENERS);
	EQUAL(notified_count(fd, notify.number), LISTENERS);
	for (int i = 0; i < LISTENERS; i += 2)
		OK(close(connections[i]));
	expect_notified(fd, notify.number, LISTENERS / 2);
	notify = notify_of(GPUMEM_NOTICE_UNPARK);
	OK(ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	EQUAL(notify.sent, LISTENERS / 2);
	for (int i = 1; i < LISTENERS; i += 2)
		OK(close(connections[i]));
	expect_notified(fd, notify.number, 0);
	FAILS(ESRCH, ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	all_is_well(fd);
}

/* The same connection listens once, however often the client says so. */
static void one_that_listens_often(void)
{
	int fd = filled_file("file", 0600), connection = listening();
	struct gpumem_notify notify = notify_of(GPUMEM_NOTICE_PARK);
	struct gpumem_msg_listen listen = {.header = head(GPUMEM_MSG_LISTEN, sizeof(listen))};

	for (uint32_t i = 0; i <= 5000; i++) {
		listen.flags = 1 + i % 3;
		say(connection, &listen, sizeof(listen));
		EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_DONE);
	}
	OK(ioctl(fd, GPUMEM_IOC_NOTIFY, &notify));
	EQUAL(notify.sent, 1);
	EQUAL(notified_count(fd, notify.number), 1);
	/* The daemon ends a connection that leaves the answers unread. */
	for (int i = 0; i < 100000; i++)
		if (send(connection, &listen, sizeof(listen), MSG_NOSIGNAL) < 0)
			break;
	CHECK(errno == EPIPE || errno == ECONNRESET);
	OK(close(connection));
	all_is_well(fd);
}

PROG(TEST(notices_and_their_answers), TEST(notices_that_are_none), TEST(many_that_listen),
     TEST(one_that_listens_often))
