/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: standin vulkan asan-host */
/* kills: no
 * backends: host standin vulkan cuda
 * timeout: 120
 * A handle of a file gives access to the file's memory only as far as read(2) and write(2) on the
 * handle would. */
#include "tests/mount/protocol.h"

#include <stdatomic.h>

static const char *host_path(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", getenv("HOSTDIR"), name);
	return path;
}

static void expect_nothing(int handle, int connection, const struct gpumem_lease_ask *ask)
{
	char byte;

	FAILS(EBADF, read(handle, &byte, 1));
	FAILS(EACCES, ioctl(handle, GPUMEM_IOC_LEASE, ask));
	/* The connection has no pending message. */
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
	/* The owner may read the file, but the handle is write-only. */
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
	/* root may read the file, but the handle is write-only. */
	ask_with_write_permission("write-only");
	ask_with_write_permission(host_path("write-only"));
	EQUAL(leases_of(fd), 0);
	EQUAL(leases_of(host), 0);
	OK(unlink(host_path("write-only")));
}

/* The target of a copy is opened for writing. */
static void a_copy_needs_no_reading_of_its_target(void)
{
	int from = filled_file("from", 0600), connection = dial();
	struct gpumem_lease_ask key = key_of(connection);
	int to = OK(open("to", O_WRONLY | O_CREAT, 0600));

	OK(ftruncate(to, BYTES));
	struct answer answer = lease_over(connection, from);
	struct gpumem_copy_ask ask = {.version = GPUMEM_PROTOCOL_VERSION,
				      .lease = answer.packet.layout.lease,
				      .bytes = BYTES};

	memcpy(ask.key, key.key, sizeof(ask.key));
	drop(&answer);
	EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), BYTES);
	pattern_check((int)OK(open("to", O_RDONLY)), 3, 0, BYTES);
	OK(close(connection));
}

/* Not a multiple of a chunk: the test tells by the size whether a layout is an object of host/ or
 * memory of a GPU. */
#define MOVED_BYTES (16 * MIB + 12345)
#define MOVES	    10

static struct moved {
	_Atomic int answers, private, read_only, done;
} * moved;

static void check_object(const struct answer *answer)
{
	EQUAL(answer->packet.layout.kind, GPUMEM_KIND_HOST);
	EQUAL(answer->n_fds, 1);
	EQUAL(answer->packet.layout.chunks[0].bytes, MOVED_BYTES);
	EQUAL(fcntl(answer->fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void check_copy(const struct answer *answer)
{
	CHECK(answer->packet.layout.kind != GPUMEM_KIND_HOST);
	for (unsigned i = 0; i < answer->n_fds; i++)
		EQUAL(answer->packet.layout.chunks[i].bytes % (2 * MIB), 0);
}

static void check_for_reader(const struct answer *answer)
{
	uint32_t flags = answer->packet.layout.flags & ~(uint32_t)GPUMEM_LAYOUT_MORE;

	EQUAL(answer->packet.layout.size, MOVED_BYTES);
	if (flags == GPUMEM_LAYOUT_READ_ONLY) {
		check_object(answer);
		atomic_fetch_add(&moved->read_only, 1);
	} else {
		EQUAL(flags, GPUMEM_LAYOUT_PRIVATE);
		check_copy(answer);
		atomic_fetch_add(&moved->private, 1);
	}
	drop(answer);
}

/* Leases the file again and again, until the parent has moved the file MOVES times. */
static void lease_what_moves(int fd)
{
	become_user();
	while (!atomic_load(&moved->done)) {
		int connection = dial();
		struct answer answer = lease_over(connection, fd);
		struct gpumem_msg_extend extend = {.header =
						       head(GPUMEM_MSG_EXTEND, sizeof(extend)),
						   .lease = answer.packet.layout.lease};
		bool copy = answer.packet.layout.flags & GPUMEM_LAYOUT_PRIVATE;

		/* Only a copy has no chunks to send again. */
		extend.first_chunk = copy ? answer.packet.layout.n_chunks : 0;
		check_for_reader(&answer);
		say(connection, &extend, sizeof(extend));
		if (copy) {
			EQUAL(hear(connection).packet.error.error, ENOTSUP);
		} else {
			answer = hear(connection);
			/* The file has moved to a GPU: a reader gets no GPU memory. */
			if (answer.packet.header.type == GPUMEM_MSG_ERROR)
				EQUAL(answer.packet.error.error, EPERM);
			else
				check_for_reader(&answer);
		}
		OK(close(connection));
		atomic_fetch_add(&moved->answers, 1);
	}
}

static void wait_for_answers(pid_t reader, int more)
{
	int wanted = atomic_load(&moved->answers) + more;

	while (atomic_load(&moved->answers) < wanted) {
		if (waitpid(reader, NULL, WNOHANG) != 0)
			FAIL("the reader has ended");
		usleep(1000);
	}
}

/* Another user leases a file readable by all users, while the owner moves the file between host/
 * and the GPU. A read-only lease must never give out memory of the GPU, because GPU memory can be
 * written. */
static void a_file_that_moves_is_no_way_to_write(void)
{
	char path[PATH_MAX];
	int fd = OK(open("moving", O_CREAT | O_RDWR, 0644));

	snprintf(path, sizeof(path), "%s", host_path("moving"));
	moved =
	    mmap(NULL, sizeof(*moved), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(moved != MAP_FAILED);
	pattern_write(fd, 3, 0, MOVED_BYTES);
	OK(fchmod(fd, 0644));
	int reading = OK(open("moving", O_RDONLY));
	pid_t reader = spawn(lease_what_moves, reading);

	for (int i = 0; i < MOVES; i++) {
		rename_when_closed("moving", path);
		wait_for_answers(reader, 1);
		rename_when_closed(path, "moving");
		wait_for_answers(reader, 1);
	}
	atomic_store(&moved->done, 1);
	join_all(1);
	CHECK(atomic_load(&moved->private) > 0);
	CHECK(atomic_load(&moved->read_only) > 0);
	pattern_check(fd, 3, 0, MOVED_BYTES);
	OK(unlink("moving"));
}

#define PEER 65533

static void become_peer(void)
{
	OK(setgroups(0, NULL));
	OK(setresgid(PEER, PEER, PEER));
	OK(setresuid(PEER, PEER, PEER));
}

static int trust(const char *path)
{
	return setxattr(path, "user.gpumem.share", "trusted", 7, 0);
}

static bool is_trusted(const char *path)
{
	char value[16] = "";

	OK(getxattr(path, "user.gpumem.share", value, sizeof(value) - 1));
	return strcmp(value, "trusted") == 0;
}

static void trust_directory(int unused)
{
	(void)unused;
	become_user();
	umask(0);
	OK(mkdir("common", 0777));
	OK(trust("common"));
	OK(close(filled_file("common/own", 0644)));
	OK(mkdir("common/below", 0777));
	CHECK(is_trusted("common/own"));
	CHECK(is_trusted("common/below"));
}

static void create_in_directory(int unused)
{
	(void)unused;
	become_peer();
	umask(0);
	OK(close(filled_file("common/file", 0644)));
	OK(mkdir("common/dir", 0777));
	OK(close(filled_file("common/dir/file", 0644)));
	OK(close(filled_file("common/below/file", 0644)));
	int nameless = OK(open("common", O_TMPFILE | O_RDWR, 0644));
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", nameless);
	OK(linkat(AT_FDCWD, path, AT_FDCWD, "common/linked", AT_SYMLINK_FOLLOW));
	CHECK(!is_trusted("common/file"));
	CHECK(!is_trusted("common/dir"));
	CHECK(!is_trusted("common/dir/file"));
	CHECK(!is_trusted("common/below/file"));
	CHECK(!is_trusted("common/linked"));
	CHECK(is_trusted("common/own"));
}

/* The directory's owner can read the other user's file, and has no other right. */
static void read_in_directory(int unused)
{
	(void)unused;
	become_user();
	FAILS(EACCES, open("common/file", O_RDWR));
	int fd = OK(open("common/file", O_RDONLY)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
	drop(&answer);
	FAILS(EACCES, trust("common/file"));
}

static void a_directory_entrusts_its_owners_files_alone(void)
{
	OK(chmod(".", 0777));
	spawn(trust_directory, 0);
	join_all(1);
	spawn(create_in_directory, 0);
	join_all(1);
	spawn(read_in_directory, 0);
	join_all(1);
	/* Files of root in the directory do not belong to the directory's owner either. */
	OK(close(filled_file("common/roots", 0644)));
	CHECK(!is_trusted("common/roots"));
}

/* A user with write permission may change the file's bytes, not the owner's trust. */
static void trust_as_writer(int unused)
{
	(void)unused;
	become_peer();
	for (const char *const *path = (const char *const[]){"file", "dir", NULL}; *path; path++) {
		FAILS(EPERM, trust(*path));
		FAILS(EPERM, setxattr(*path, "user.gpumem.share", "private", 7, 0));
		OK(setxattr(*path, "user.gpumem.copy", "dma", 3, 0));
	}
	FAILS(EPERM, removexattr("trusted", "user.gpumem.share"));
	CHECK(is_trusted("trusted"));
}

static void trust_as_owner(int unused)
{
	(void)unused;
	become_user();
	OK(trust("file"));
	OK(trust("dir"));
	OK(removexattr("dir", "user.gpumem.share"));
	CHECK(is_trusted("file"));
	CHECK(!is_trusted("dir"));
}

static void the_owner_alone_says_whom_to_trust(void)
{
	OK(chmod(".", 0777));
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "trusted" : "file";
		int fd = filled_file(path, 0666);

		OK(fchmod(fd, 0666));
		OK(fchown(fd, USER, USER));
	}
	OK(mkdir("dir", 0777));
	OK(chmod("dir", 0777));
	OK(chown("dir", USER, USER));
	OK(trust("trusted")); /* root may set the attribute */
	spawn(trust_as_writer, 0);
	join_all(1);
	CHECK(!is_trusted("file"));
	CHECK(!is_trusted("dir"));
	spawn(trust_as_owner, 0);
	join_all(1);
}

static void a_new_owner_trusts_no_reader(void)
{
	OK(close(filled_file("file", 0644)));
	OK(mkdir("dir", 0755));
	OK(trust("file"));
	OK(trust("dir"));
	OK(chown("file", 0, USER));
	OK(chmod("file", 0640));
	CHECK(is_trusted("file")); /* the owner is the same */
	OK(chown("file", USER, USER));
	OK(chown("dir", USER, USER));
	CHECK(!is_trusted("file"));
	CHECK(!is_trusted("dir"));
	OK(chown("file", 0, 0));
	CHECK(!is_trusted("file"));
}

static struct answer ask_to_read(int connection)
{
	int fd = OK(open("file", O_RDONLY));
	struct answer answer = lease_over(connection, fd);

	OK(close(fd));
	return answer;
}

static void extend_after_trust(int unused)
{
	(void)unused;
	become_user();
	int connection = dial();
	struct answer answer = ask_to_read(connection);
	struct gpumem_msg_extend extend = {.header = head(GPUMEM_MSG_EXTEND, sizeof(extend)),
					   .lease = answer.packet.layout.lease};

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_READ_ONLY);
	drop(&answer);
	say(connection, &extend, sizeof(extend));
	answer = hear_layout(connection);
	drop(&answer);
	OK(removexattr("file", "user.gpumem.share"));
	say(connection, &extend, sizeof(extend));
	answer = hear(connection);
	EQUAL(answer.packet.header.type, GPUMEM_MSG_ERROR);
	EQUAL(answer.packet.error.error, EPERM);
	/* The connection goes on: a copy can be requested. */
	answer = ask_to_read(connection);
	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
	drop(&answer);
}

/* Memory given to a reader cannot be taken back, but after the end of the trust the reader gets no
 * more memory. */
static void trust_that_ends_gives_no_more(void)
{
	int fd = filled_file("file", 0644);

	OK(fchown(fd, USER, USER));
	OK(trust("file"));
	spawn(extend_after_trust, 0);
	join_all(1);
}

PROG(TEST(trust_that_ends_gives_no_more), TEST(a_directory_entrusts_its_owners_files_alone),
     TEST(the_owner_alone_says_whom_to_trust), TEST(a_new_owner_trusts_no_reader),
     TEST(a_file_that_moves_is_no_way_to_write), TEST(writing_alone_yields_no_memory),
     TEST(a_copy_needs_no_reading_of_its_target))
