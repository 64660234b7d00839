/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host tsan */
/* long: waits for deadlines
 * kills: no
 * backends: host standin vulkan cuda
 * timeout: 120
 * The sharing protocol, spoken by hand: correct and incorrect packets. An incorrect packet costs
 * its sender the connection and does not affect other clients. (No kills: a replaced daemon may
 * answer a second time, which a client notices by the answer's number and this test does not.) */
#include "tests/mount/protocol.h"

#include <pthread.h>

static void expect_end(int fd, const char *after)
{
	if (hear(fd).bytes != 0)
		FAIL("%s: the connection goes on", after);
	OK(close(fd));
}

static void a_lease_and_its_end(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct answer answer = lease_over(connection, fd);
	struct gpumem_msg_release release = {.header = head(GPUMEM_MSG_RELEASE, sizeof(release)),
					     .lease = answer.packet.layout.lease};

	drop(&answer);
	EQUAL(leases_of(fd), 1);
	FAILS(EBUSY, ftruncate(fd, 0));
	say(connection, &release, sizeof(release));
	EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_DONE);
	EQUAL(leases_of(fd), 0);
	/* A second release of a lease gets ENOENT, and the connection goes on. */
	say(connection, &release, sizeof(release));
	answer = hear(connection);
	EQUAL(answer.packet.header.type, GPUMEM_MSG_ERROR);
	EQUAL(answer.packet.error.error, ENOENT);
	all_is_well(fd);
}

/* A connection has a single key, and serves any number of leases. */
static void a_key_and_its_end(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection), again = key_of(connection);
	struct answer answer;

	CHECK(memcmp(ask.key, again.key, sizeof(ask.key)) == 0);
	for (int leases = 1; leases <= 3; leases++) {
		EQUAL(lease_with(&ask, fd, connection, &answer), 0);
		EQUAL(answer.packet.layout.size, BYTES);
		EQUAL(answer.packet.layout.flags, 0);
		drop(&answer);
		EQUAL(leases_of(fd), leases);
	}
	OK(close(connection));
	expect_leases(fd, 0);
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &ask));
	all_is_well(fd);
}

static void keys_that_are_none(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection), wrong = ask;
	struct answer answer;

	wrong.key[31] ^= 1;
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	memset(wrong.key, 0, sizeof(wrong.key));
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	wrong = ask;
	wrong.version++;
	FAILS(EOPNOTSUPP, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	FAILS(EISDIR, ioctl((int)OK(open(".", O_RDONLY)), GPUMEM_IOC_LEASE, &ask));
	FAILS(ENOTTY, ioctl(fd, _IO('g', 0x48), &ask));
	EQUAL(leases_of(fd), 0);
	/* No refusal has left a message behind. */
	EQUAL(lease_with(&ask, fd, connection, &answer), 0);
	drop(&answer);
}

static struct gpumem_lease_ask root_ask;

static void use_what_is_roots(int fd)
{
	become_user();
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &root_ask));
}

static void of_another_user(void)
{
	int fd = filled_file("file", 0666), connection = dial();
	struct answer answer;

	root_ask = key_of(connection);
	spawn(use_what_is_roots, fd);
	join_all(1);
	EQUAL(leases_of(fd), 0);
	EQUAL(lease_with(&root_ask, fd, connection, &answer), 0);
	drop(&answer);
	EQUAL(leases_of(fd), 1);
}

#define THREADS 4
#define ROUNDS	200

static struct gpumem_lease_ask common_ask;
static _Atomic uint32_t common_requests;
static _Atomic int common_leases, common_taken;

static void *ask_at_once(void *fd)
{
	struct gpumem_lease_ask ask = common_ask;

	for (int i = 0; i < ROUNDS; i++) {
		/* The daemon ends the connection of a client that leaves its answers unread. */
		while (common_leases - common_taken > 2 * THREADS)
			usleep(100);
		ask.request = ++common_requests;
		if (ioctl(*(int *)fd, GPUMEM_IOC_LEASE, &ask) == 0)
			common_leases++;
		else
			EQUAL(errno, EBUSY);
	}
	return NULL;
}

/* Of requests that come at once over the same connection, each is answered or refused. */
static void several_at_once(void)
{
	int fd = filled_file("file", 0600), connection = dial(), running = THREADS;
	pthread_t threads[THREADS];

	common_ask = key_of(connection);
	for (int i = 0; i < THREADS; i++)
		EQUAL(pthread_create(&threads[i], NULL, ask_at_once, &fd), 0);
	while (running || common_taken < common_leases) {
		struct pollfd ready = {.fd = connection, .events = POLLIN};

		if (poll(&ready, 1, 10) == 1) {
			struct answer answer = hear_layout(connection);

			drop(&answer);
			common_taken++;
		} else if (running && pthread_tryjoin_np(threads[running - 1], NULL) == 0) {
			running--;
		}
	}
	CHECK(common_taken > 0);
	EQUAL(leases_of(fd), common_taken);
	OK(close(connection));
	expect_leases(fd, 0);
}

/* Makes every call and sends every message that a reader can, with the descriptors of the reader's
 * lease. */
static void write_as_a_reader(int unused)
{
	(void)unused;
	become_user();
	int fd = OK(open("file", O_RDONLY)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
	for (unsigned i = 0; i < answer.n_fds; i++) {
		if (answer.packet.layout.kind != GPUMEM_KIND_MEMFD)
			continue;
		char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[i], 0);
		CHECK(at != MAP_FAILED);
		EQUAL((unsigned char)at[5], pattern_at(3, 5));
		memset(at, 0xee, MIB);
	}
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease,
					   .first_chunk = answer.packet.layout.n_chunks};

	say(connection, &extend, sizeof(extend));
	EQUAL(hear(connection).packet.error.error, ENOTSUP);
}

static void a_reader_cannot_write(void)
{
	int fd = filled_file("file", 0644);

	spawn(write_as_a_reader, 0);
	join_all(1);
	pattern_check(fd, 3, 0, BYTES);
	all_is_well(fd);
}

static void others_leases(void)
{
	int fd = filled_file("file", 0600), mine = dial(), theirs = dial();
	struct answer answer = lease_over(theirs, fd);
	drop(&answer);
	struct gpumem_msg_release release = {.header = head(GPUMEM_MSG_RELEASE, sizeof(release)),
					     .lease = answer.packet.layout.lease};
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease};

	say(mine, &release, sizeof(release));
	EQUAL(hear(mine).packet.error.error, ENOENT);
	say(mine, &extend, sizeof(extend));
	EQUAL(hear(mine).packet.error.error, ENOENT);
	EQUAL(leases_of(fd), 1);
}

static void malformed(void)
{
	int fd = filled_file("file", 0600);

	for (int way = 0; way < 10; way++) {
		int connection = dial();
		union packet packet = {
		    .extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(packet.extend))}};
		size_t bytes = sizeof(packet.extend);

		switch (way) {
		case 0: /* truncated, with the true length in the header */
			bytes = packet.header.bytes = sizeof(packet.extend) - 1;
			break;
		case 1: /* truncated, with the old length in the header */
			bytes -= 8;
			break;
		case 2: /* shorter than a header */
			bytes = 3;
			break;
		case 3: /* a byte too many */
			bytes = packet.header.bytes = sizeof(packet.extend) + 1;
			break;
		case 4: /* oversized */
			bytes = packet.header.bytes = PACKET_MAX;
			break;
		case 5:
			packet.header.bytes = UINT32_MAX;
			break;
		case 6:
			packet.header.magic ^= 0x100;
			break;
		case 7:
			packet.header.type = 99;
			break;
		case 8: /* the message for a lease in version 1 */
			packet.header.type = 1;
			break;
		default: /* messages that only the daemon sends */
			packet.header.type = GPUMEM_MSG_LAYOUT;
		}
		say(connection, &packet, bytes);
		expect_end(connection, "a packet of its own kind");
	}
	EQUAL(leases_of(fd), 0);
	all_is_well(fd);
}

static void another_version(void)
{
	int fd = filled_file("file", 0600);

	for (int version = GPUMEM_PROTOCOL_VERSION - 1; version <= GPUMEM_PROTOCOL_VERSION + 1;
	     version += 2) {
		int connection = dial();
		struct gpumem_msg_header hello = head(GPUMEM_MSG_HELLO, sizeof(hello));

		hello.version = (uint16_t)version;
		say(connection, &hello, sizeof(hello));
		struct answer answer = hear(connection);

		EQUAL(answer.packet.error.error, EPROTONOSUPPORT);
		EQUAL(answer.packet.header.version, GPUMEM_PROTOCOL_VERSION);
		expect_end(connection, "another version");
	}
	/* A client of version 1 asks for a token first, and compares the version in the result. */
	struct gpumem_version token = {0};

	OK(ioctl(fd, _IOR('g', 0x47, char[40]), &token));
	EQUAL(token.version, GPUMEM_PROTOCOL_VERSION);
	all_is_well(fd);
}

/* Unrequested descriptors cannot fill the daemon's table. */
static void descriptors_are_dropped(void)
{
	int fd = filled_file("file", 0600), connection = dial(), ends[2];
	struct gpumem_msg_header hello = head(GPUMEM_MSG_HELLO, sizeof(hello));
	struct iovec part = {&hello, sizeof(hello)};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	char byte;

	/* Linux 6.16 refuses descriptors until the daemon knows the user. */
	key_of(connection);
	OK(pipe(ends));
	memcpy(CMSG_DATA(&control.header), &ends[1], sizeof(int));
	OK(sendmsg(connection, &message, 0));
	OK(close(ends[1]));
	EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_KEY);
	EQUAL(OK(read(ends[0], &byte, 1)), 0); /* no process has the other end */
	all_is_well(fd);
}

/* A client that never reads: the daemon ends the connection and its leases. */
static void one_that_does_not_listen(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);
	int leases = 0;

	while (leases < 100000 && ioctl(fd, GPUMEM_IOC_LEASE, &ask) == 0) {
		leases++;
		ask.request++;
	}
	EQUAL(errno, ESTALE);
	CHECK(leases > 1);
	expect_leases(fd, 0);
	OK(close(connection));
	all_is_well(fd);
}

/* Sends no message, or half of a message, for longer than the deadline. */
static void the_slow(void)
{
	int fd = filled_file("file", 0600), silent = dial(), greets = dial(), leased = dial();
	int listens = listening();

	key_of(greets);
	struct answer answer = lease_over(leased, fd);
	drop(&answer);
	struct pollfd ready = {.fd = silent, .events = POLLIN};
	AWAIT(poll(&ready, 1, 0) == 1);
	expect_end(silent, "silence");
	expect_end(greets, "a greeting and no more");
	EQUAL(leases_of(fd), 1); /* a client with a lease may be silent */
	key_of(listens);	 /* and so may a client that listens */
	OK(close(leased));
	expect_leases(fd, 0);
	all_is_well(fd);
}

PROG(TEST(a_lease_and_its_end), TEST(a_key_and_its_end), TEST(keys_that_are_none),
     TEST(several_at_once), TEST(of_another_user), TEST(a_reader_cannot_write), TEST(others_leases),
     TEST(malformed), TEST(another_version), TEST(descriptors_are_dropped),
     TEST(one_that_does_not_listen), TEST(the_slow))
