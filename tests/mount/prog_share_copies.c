/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host standin vulkan cuda
 * mount: size=64M
 * timeout: 120
 * Private copies for readers count in the GPU's size and quota, like files, until the readers end.
 */
#include "tests/mount/protocol.h"

#include <signal.h>
#include <sys/statvfs.h>

/* Two copies fit, three do not. */
#define COPIED (24 * MIB)

static long long used(void)
{
	struct statvfs st;

	OK(statvfs(getenv("GPU0"), &st));
	return (long long)(st.f_blocks - st.f_bfree) * (long long)st.f_frsize;
}

static long long number_of(const char *name)
{
	char text[32] = "", full[64];

	snprintf(full, sizeof(full), "user.gpumem.%s", name);
	OK(getxattr(getenv("GPU0"), full, text, sizeof(text) - 1));
	return atoll(text);
}

/* The daemon notices the end of a connection with a delay. */
static void expect_used(long long wanted)
{
	AWAIT(used() == wanted);
	EQUAL(used(), wanted);
}

static void expect_number(const char *name, long long wanted)
{
	AWAIT(number_of(name) == wanted);
	EQUAL(number_of(name), wanted);
}

static void copied_file(void)
{
	int fd = OK(open("copied", O_CREAT | O_RDWR, 0644));

	/* Set the size first, so that the daemon preallocates no memory beyond the end. */
	OK(ftruncate(fd, COPIED));
	pattern_write(fd, 3, 0, COPIED);
	OK(fchmod(fd, 0644));
	OK(close(fd));
}

/* 0 with the answer to a request for a copy, or the errno. */
static int ask_copy(int connection, struct answer *answer)
{
	int fd = OK(open("copied", O_RDONLY));
	int error = lease_try(fd, connection, answer);

	OK(close(fd));
	return error;
}

static uint64_t have_copy(int connection)
{
	struct answer answer;

	EQUAL(ask_copy(connection, &answer), 0);
	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
	EQUAL(answer.packet.layout.size, COPIED);
	drop(&answer);
	return answer.packet.layout.lease;
}

static void expect_refusal(int connection, int error)
{
	struct answer answer;

	EQUAL(ask_copy(connection, &answer), error);
}

static void release(int connection, uint64_t lease)
{
	struct gpumem_msg_release request = {.header = head(GPUMEM_MSG_RELEASE, sizeof(request)),
					     .lease = lease};

	say(connection, &request, sizeof(request));
	EQUAL(hear(connection).packet.header.type, GPUMEM_MSG_DONE);
}

static void fill_the_gpu(int unused)
{
	(void)unused;
	become_user();
	int connection = dial(), other = dial();
	long long before = used();
	uint64_t lease = have_copy(connection);

	EQUAL(used(), before + COPIED);
	for (int i = 0; i < 3; i++) {
		expect_refusal(connection, ENOSPC);
		expect_refusal(other, ENOSPC);
	}
	EQUAL(used(), before + COPIED);
	/* The next copy gets the memory that was released. */
	release(connection, lease);
	have_copy(other);
	EQUAL(used(), before + COPIED);
	/* Without a release no other copy gets the memory, which counts until the process ends. */
	OK(close(other));
	expect_refusal(connection, ENOSPC);
	EQUAL(used(), before + COPIED);
	raise(SIGKILL);
}

static void copies_come_out_of_the_size(void)
{
	int status;

	copied_file();
	long long before = used(), bytes = number_of("rbytes"), files = number_of("rfiles");

	spawn(fill_the_gpu, 0);
	OK(wait(&status));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	expect_used(before);
	expect_number("rbytes", bytes);
	expect_number("rfiles", files);
	OK(unlink("copied"));
}

static void ask_within_quota(int unused)
{
	(void)unused;
	become_user();
	int connection = dial();

	have_copy(connection);
	expect_refusal(connection, EDQUOT);
}

static void copies_come_out_of_the_quota(void)
{
	char limit[32];

	copied_file();
	snprintf(limit, sizeof(limit), "%lld", number_of("rbytes") + COPIED + MIB);
	/* The GPU has more free memory than the quota leaves. */
	OK(setxattr(getenv("GPU0"), "user.gpumem.quota.max_bytes", limit, strlen(limit), 0));
	int status;
	pid_t pid = spawn(ask_within_quota, 0);

	OK(waitpid(pid, &status, 0));
	OK(removexattr(getenv("GPU0"), "user.gpumem.quota.max_bytes"));
	OK(unlink("copied"));
	EQUAL(status, 0);
}

static int ready[2], over[2];

static void hold_copy(int unused)
{
	char byte;

	(void)unused;
	become_user();
	int connection = dial();
	struct answer answer;

	EQUAL(ask_copy(connection, &answer), 0);
	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE);
	OK(write(ready[1], "x", 1));
	OK(close(over[1]));
	OK(read(over[0], &byte, 1));
	if (answer.packet.layout.kind != GPUMEM_KIND_MEMFD)
		return;
	const unsigned char *at = mmap(NULL, MIB, PROT_READ, MAP_SHARED, answer.fds[0], 0);

	CHECK(at != MAP_FAILED);
	for (size_t i = 0; i < MIB; i++)
		EQUAL(at[i], pattern_at(3, i));
}

/* The owner can change, truncate and move a file while a reader has a private copy. */
static void the_file_goes_its_way(void)
{
	char byte, path[PATH_MAX];

	copied_file();
	int fd = OK(open("copied", O_RDWR));

	OK(pipe(ready));
	OK(pipe(over));
	spawn(hold_copy, 0);
	OK(close(ready[1]));
	EQUAL(OK(read(ready[0], &byte, 1)), 1);
	EQUAL(leases_of(fd), 0);
	pattern_write(fd, 4, 0, MIB);
	OK(ftruncate(fd, MIB));
	snprintf(path, sizeof(path), "%s/copied", getenv("HOSTDIR"));
	OK(rename("copied", path));
	OK(unlink(path));
	OK(close(over[1]));
	join_all(1);
}

PROG(TEST(copies_come_out_of_the_size), TEST(copies_come_out_of_the_quota),
     TEST(the_file_goes_its_way))
