/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host standin cuda
 * timeout: 120
 * Which handle of a file yields its memory: never more than read(2) and write(2) on it would. */
#include "tests/mount/protocol.h"

static const char *host_path(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", getenv("HOSTDIR"), name);
	return path;
}

static void expect_nothing(int handle, int connection, const struct gpumem_lease_ask *ask)
{
	struct gpumem_token token;

	FAILS(EBADF, read(handle, &token, 1));
	FAILS(EACCES, ioctl(handle, GPUMEM_IOC_TOKEN, &token));
	FAILS(EACCES, ioctl(handle, GPUMEM_IOC_LEASE, ask));
	/* Nothing is on its way over the connection. */
	struct gpumem_lease_ask again = key_of(connection);

	CHECK(memcmp(again.key, ask->key, sizeof(again.key)) == 0);
	OK(close(handle));
}

static void ask_with_write_permission(const char *path)
{
	int connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);

	expect_nothing(OK(open(path, O_WRONLY)), connection, &ask);
	expect_nothing(OK(open(path, O_WRONLY | O_APPEND)), connection, &ask);
	OK(close(connection));
}

static void ask_as_user(int unused)
{
	char created[PATH_MAX];

	(void)unused;
	become_user();
	FAILS(EACCES, open("write-only", O_RDONLY));
	ask_with_write_permission("write-only");
	ask_with_write_permission(host_path("write-only"));
	/* The owner may read the file, but not through this handle. */
	int connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);

	snprintf(created, sizeof(created), "of-%d", USER);
	expect_nothing(OK(open(created, O_WRONLY | O_CREAT, 0600)), connection, &ask);
}

static void writing_alone_yields_no_memory(void)
{
	OK(chmod(".", 0777));
	int fd = filled_file("write-only", 0222), host = filled_file(host_path("write-only"), 0222);

	OK(fchmod(fd, 0222));
	OK(fchmod(host, 0222));
	spawn(ask_as_user, 0);
	join_all(1);
	/* The same for root, who may read the file: the handle may not. */
	ask_with_write_permission("write-only");
	ask_with_write_permission(host_path("write-only"));
	EQUAL(leases_of(fd), 0);
	EQUAL(leases_of(host), 0);
	OK(unlink(host_path("write-only")));
}

/* Writing is what the target of a copy is opened for. */
static void a_copy_needs_no_reading_of_its_target(void)
{
	int from = filled_file("from", 0600), connection = dial();
	struct gpumem_lease_ask key = key_of(connection);
	struct gpumem_token token = token_of(from);
	int to = OK(open("to", O_WRONLY | O_CREAT, 0600));

	EQUAL(token.access, GPUMEM_ACCESS_WRITE);
	OK(ftruncate(to, BYTES));
	show(connection, &token);
	struct answer answer = hear_layout(connection);
	struct gpumem_copy_ask ask = {.version = GPUMEM_PROTOCOL_VERSION,
				      .lease = answer.packet.layout.lease,
				      .bytes = BYTES};

	memcpy(ask.key, key.key, sizeof(ask.key));
	drop(&answer);
	EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), BYTES);
	pattern_check((int)OK(open("to", O_RDONLY)), 3, 0, BYTES);
	OK(close(connection));
}

PROG(TEST(writing_alone_yields_no_memory), TEST(a_copy_needs_no_reading_of_its_target))
