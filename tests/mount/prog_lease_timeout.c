/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* mount: lease_timeout=1
 * kills: no
 * backends: host standin vulkan cuda
 * An operation that needs the file's memory ends leases older than lease_timeout. */
#include "tests/mount/protocol.h"

static struct answer lease_file(int connection, int fd)
{
	return lease_over(connection, fd);
}

/* Repeats a call that fails with EBUSY until the lease is old enough. */
#define SOON(call)                                                                                 \
	do {                                                                                       \
		int rc_ = -1;                                                                      \
		AWAIT((rc_ = (call)) == 0 || errno != EBUSY);                                      \
		OK(rc_);                                                                           \
	} while (0)

static void an_old_lease_makes_way(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct answer answer = lease_file(connection, fd);
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease};

	drop(&answer);
	SOON(ftruncate(fd, BYTES / 2));
	EQUAL(size_of(fd), BYTES / 2);
	EQUAL(leases_of(fd), 0);
	say(connection, &extend, sizeof(extend));
	EQUAL(hear(connection).packet.error.error, ENOENT);

	answer = lease_file(connection, fd);
	drop(&answer);
	SOON(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
	answer = lease_file(connection, fd);
	drop(&answer);
	SOON(fsetxattr(fd, "user.gpumem.page_size", "2M", 2, 0));
	answer = lease_file(connection, fd);
	drop(&answer);
	OK(close(fd));
	SOON(rename("file", other("file")));
	OK(close(connection));
}

/* Calls that do not conflict with a lease keep the lease, however old. */
static void a_lease_in_nobodys_way_stays(void)
{
	int fd = filled_file("file", 0600), second = filled_file("second", 0600);
	int connection = dial();
	struct answer answer = lease_file(connection, fd), old = lease_file(connection, second);
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease};

	drop(&answer);
	drop(&old);
	SOON(ftruncate(second, 0)); /* after this call the other lease is old too */
	pattern_write(fd, 4, 0, 2 * BYTES);
	OK(ftruncate(fd, 3 * BYTES));
	say(connection, &extend, sizeof(extend));
	answer = hear_layout(connection);
	drop(&answer);
	EQUAL(leases_of(fd), 1);
	EQUAL(leases_of(second), 0);
}

PROG(TEST(an_old_lease_makes_way), TEST(a_lease_in_nobodys_way_stays))
