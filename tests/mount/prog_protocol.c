/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* long: waits for deadlines
 * kills: no
 * backends: host standin cuda
 * timeout: 120
 * The sharing protocol, spoken by hand: correct and incorrect packets. An incorrect packet costs
 * its sender the connection and does not affect other clients. (No kills: a replaced daemon may
 * answer a second time, which a client notices by the answer's number and this test does not; and a
 * mount with a keeper gives no leases over an ioctl.) */
#include "tests/mount/protocol.h"

/* True if the mount gives leases over an ioctl. False if the mount has a keeper: the lease has to
 * be requested by token. */
static bool leases_at_once(int fd, struct gpumem_lease_ask *ask)
{
	static char text[4096];
	char path[4096];

	snprintf(path, sizeof(path), "%s/.gpumem/params", getenv("MNT"));
	int params = OK(open(path, O_RDONLY));
	ssize_t n = OK(read(params, text, sizeof(text) - 1));

	text[n] = 0;
	OK(close(params));
	if (!strstr(text, "\nrecovery on"))
		return true;
	FAILS(EOPNOTSUPP, ioctl(fd, GPUMEM_IOC_LEASE, ask));
	EQUAL(leases_of(fd), 0);
	return false;
}

static void expect_end(int fd, const char *after)
{
	if (hear(fd).bytes != 0)
		FAIL("%s: the connection goes on", after);
	OK(close(fd));
}

/* A client without errors is served after the errors of other clients. */
static void all_is_well(int fd)
{
	struct gpumem_token token = token_of(fd);
	int connection = dial();

	show(connection, &token);
	struct answer answer = hear_layout(connection);

	EQUAL(answer.packet.layout.size, BYTES);
	drop(&answer);
	OK(close(connection));
	expect_leases(fd, 0);
	pattern_check(fd, 3, 0, BYTES);
}

static void a_lease_and_its_end(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_token token = token_of(fd);

	show(connection, &token);
	struct answer answer = hear_layout(connection);
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

static void a_lease_on_the_file_itself(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection), again = key_of(connection);

	CHECK(memcmp(ask.key, again.key, sizeof(ask.key)) == 0);
	if (!leases_at_once(fd, &ask))
		return;
	for (int leases = 1; leases <= 3; leases++) {
		OK(ioctl(fd, GPUMEM_IOC_LEASE, &ask));
		struct answer answer = hear_layout(connection);

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

	if (!leases_at_once(fd, &ask))
		return;
	wrong.key[31] ^= 1;
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	memset(wrong.key, 0, sizeof(wrong.key));
	FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	wrong = ask;
	wrong.version++;
	FAILS(EAGAIN, ioctl(fd, GPUMEM_IOC_LEASE, &wrong));
	FAILS(EISDIR, ioctl((int)OK(open(".", O_RDONLY)), GPUMEM_IOC_LEASE, &ask));
	FAILS(ENOTTY, ioctl(fd, _IO('g', 0x48), &ask));
	EQUAL(leases_of(fd), 0);
	OK(ioctl(fd, GPUMEM_IOC_LEASE, &ask));
	struct answer answer = hear_layout(connection);
	drop(&answer);
}

static struct gpumem_token root_token;
static struct gpumem_lease_ask root_ask;

static void use_what_is_roots(int fd)
{
	become_user();
	if (leases_at_once(fd, &root_ask))
		FAILS(ESTALE, ioctl(fd, GPUMEM_IOC_LEASE, &root_ask));
	int connection = dial();

	show(connection, &root_token);
	EQUAL(hear(connection).packet.error.error, EACCES);
	expect_end(connection, "a token of another user");
}

static void of_another_user(void)
{
	int fd = filled_file("file", 0666), connection = dial();

	root_token = token_of(fd);
	root_ask = key_of(connection);
	spawn(use_what_is_roots, fd);
	join_all(1);
	EQUAL(leases_of(fd), 0);
	show(connection, &root_token); /* the token is still valid for its user */
	struct answer answer = hear_layout(connection);
	drop(&answer);
	EQUAL(leases_of(fd), 1);
}

/* Makes every call and sends every message that a reader can, with the descriptors of the reader's
 * lease. */
static void write_as_a_reader(int unused)
{
	(void)unused;
	become_user();
	int fd = OK(open("file", O_RDONLY)), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);
	struct gpumem_token token = token_of(fd);

	EQUAL(token.access, GPUMEM_ACCESS_READ);
	if (leases_at_once(fd, &ask))
		FAILS(EAGAIN, ioctl(fd, GPUMEM_IOC_LEASE, &ask));
	show(connection, &token);
	struct answer answer = hear_layout(connection);

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
					   .lease = answer.packet.layout.lease};

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

static void forged_and_replayed(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_token token = token_of(fd), forged = token;

	forged.token[0] ^= 1;
	show(connection, &forged);
	EQUAL(hear(connection).packet.error.error, EACCES);
	expect_end(connection, "a forged token");

	connection = dial();
	show(connection, &token);
	struct answer answer = hear_layout(connection);
	drop(&answer);
	show(connection, &token);
	EQUAL(hear(connection).packet.error.error, EACCES);
	expect_end(connection, "a token used twice");
	expect_leases(fd, 0);
	all_is_well(fd);
}

static void others_leases(void)
{
	int fd = filled_file("file", 0600), mine = dial(), theirs = dial();
	struct gpumem_token token = token_of(fd);

	show(theirs, &token);
	struct answer answer = hear_layout(theirs);
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
	struct gpumem_token token = token_of(fd);

	for (int way = 0; way < 9; way++) {
		int connection = dial();
		union packet packet = {
		    .lease = {.header = head(GPUMEM_MSG_LEASE, sizeof(packet.lease))}};
		size_t bytes = sizeof(packet.lease);

		memcpy(packet.lease.token, token.token, sizeof(token.token));
		switch (way) {
		case 0: /* truncated, with the true length in the header */
			bytes = packet.header.bytes = sizeof(packet.lease) - 1;
			break;
		case 1: /* truncated, with the old length in the header */
			bytes -= 8;
			break;
		case 2: /* shorter than a header */
			bytes = 3;
			break;
		case 3: /* a byte too many */
			bytes = packet.header.bytes = sizeof(packet.lease) + 1;
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
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_msg_header hello = head(GPUMEM_MSG_HELLO, sizeof(hello));

	hello.version++;
	say(connection, &hello, sizeof(hello));
	EQUAL(hear(connection).packet.error.error, EPROTONOSUPPORT);
	expect_end(connection, "another version");
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

	if (!leases_at_once(fd, &ask))
		return;
	while (leases < 100000 && ioctl(fd, GPUMEM_IOC_LEASE, &ask) == 0)
		leases++;
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
	struct gpumem_token token = token_of(fd);

	key_of(greets);
	show(leased, &token);
	struct answer answer = hear_layout(leased);
	drop(&answer);
	for (int tries = 0; tries < 3; tries++) {
		struct pollfd ready = {.fd = silent, .events = POLLIN};
		if (poll(&ready, 1, GPUMEM_TOKEN_SECONDS * 1000) == 1)
			break;
	}
	expect_end(silent, "silence");
	expect_end(greets, "a greeting and no more");
	EQUAL(leases_of(fd), 1); /* a client with a lease may be silent */
	OK(close(leased));
	expect_leases(fd, 0);
	all_is_well(fd);
}

PROG(TEST(a_lease_and_its_end), TEST(a_lease_on_the_file_itself), TEST(keys_that_are_none),
     TEST(of_another_user), TEST(a_reader_cannot_write), TEST(forged_and_replayed),
     TEST(others_leases), TEST(malformed), TEST(another_version), TEST(descriptors_are_dropped),
     TEST(one_that_does_not_listen), TEST(the_slow))
