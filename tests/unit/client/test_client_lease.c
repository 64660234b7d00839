/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem with a correct fake daemon and with an incorrect fake daemon. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/client_fixture.h"

static unsigned char *host_pointer(gpumem *file, uint64_t wanted)
{
	void *address;
	size_t bytes;

	ck_assert_msg(gpumem_map_host(file, &address, &bytes) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(bytes, wanted);
	return address;
}

START_TEST(chunks_are_one_range)
{
	gpumem *file;

	FAKE(fake.per_message = 3);
	for (unsigned i = 0; i < 10; i++)
		fake_add((1 + i % 3) * 2 * MIB_);
	FAKE(fake.size -= 12345);
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(pwrite(fake.fds[i], &i, sizeof(i), 4096), sizeof(i));
	file = fake_open();
	unsigned char *at = host_pointer(file, fake.size);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_int_eq(memcmp(at + 4096, &i, sizeof(i)), 0);
		at += fake.bytes[i];
	}
	ck_assert_int_eq(gpumem_close(file), 0);
	eventually(&fake.leases, 0);
}
END_TEST

START_TEST(one_connection_for_all)
{
	gpumem *files[50];

	fake_add(2 * MIB_);
	for (unsigned i = 0; i < 50; i++)
		files[i] = fake_open();
	eventually(&fake.leases, 50);
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_int_eq(gpumem_close(files[i]), 0);
	eventually(&fake.leases, 0);
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
}
END_TEST

/* A daemon that was replaced between the pieces and the request knows the connection alone. */
START_TEST(pieces_are_sent_again)
{
	const size_t size = 2 * MIB_;
	char path[128];

	fake_add(2 * MIB_);
	gpumem *other = fake_open();

	snprintf(path, sizeof(path), "%s.adopted", fake_path());
	FAKE(fake.forgets = 2);
	gpumem *file = gpumem_share_fds(path, &fake.fds[0], &size, 1, 0, size, 0600, 0);

	ck_assert_msg(file != NULL, "%s", gpumem_error());
	eventually(&fake.leases, 2);
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	ck_assert_int_eq(gpumem_extend(other), 0);
	ck_assert_int_eq(gpumem_close(file), 0);
	ck_assert_int_eq(gpumem_close(other), 0);
	unlink(path);
	eventually(&fake.leases, 0);
}
END_TEST

START_TEST(grows_in_place)
{
	gpumem *file;

	fake_add(2 * MIB_);
	file = fake_open();
	unsigned char *at = host_pointer(file, 2 * MIB_);
	fake_add(2 * MIB_);
	ck_assert_int_eq(gpumem_extend(file), 0);
	ck_assert_ptr_eq(host_pointer(file, 4 * MIB_), at);
	at[3 * MIB_] = 1;
	fake_add(64 * MIB_);
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_ptr_eq(host_pointer(file, 4 * MIB_), at);
	ck_assert_int_eq(gpumem_unmap_host(file), 0);
	at = host_pointer(file, 68 * MIB_);
	ck_assert_uint_eq(at[3 * MIB_], 1);
	at[68 * MIB_ - 1] = 1;
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

/* The file has more chunks than the process may have open files: the client loses the file, but no
 * other file. */
START_TEST(too_many_chunks)
{
	const struct rlimit few = {120, 120};
	gpumem *small, *other;

	fake_add(2 * MIB_);
	small = fake_open();
	for (unsigned i = 1; i < 60; i++)
		fake_add(2 * MIB_);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	FAKE(fake.per_message = 40);
	expect_refused(EMFILE, "ulimit -n");
	ck_assert_int_eq(gpumem_extend(small), -1);
	ck_assert_int_eq(errno, EMFILE);
	FAKE(fake.n_chunks = 1);
	FAKE(fake.size = 2 * MIB_);
	other = fake_open();
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	eventually(&fake.leases, 2);
	host_pointer(small, 2 * MIB_);
	ck_assert_int_eq(gpumem_close(small), 0);
	ck_assert_int_eq(gpumem_close(other), 0);
	eventually(&fake.leases, 0);
}
END_TEST

/* The daemon that took over from a killed daemon repeats answers. */
START_TEST(answers_come_twice)
{
	unsigned before;

	for (unsigned i = 0; i < 5; i++)
		fake_add(2 * MIB_);
	FAKE(fake.per_message = 2; fake.repeat = true);
	gpumem *file = fake_open();
	before = open_descriptors();
	for (unsigned i = 0; i < 3; i++) {
		gpumem *other = fake_open();

		host_pointer(other, 10 * MIB_);
		ck_assert_int_eq(gpumem_close(other), 0);
	}
	ck_assert_int_eq(gpumem_extend(file), 0);
	ck_assert_uint_eq(open_descriptors(), before);
	host_pointer(file, 10 * MIB_);
	ck_assert_int_eq(gpumem_close(file), 0);
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	eventually(&fake.leases, 0);
}
END_TEST

START_TEST(refusals_have_texts)
{
	static const struct {
		int error;
		const char *text;
	} table[] = {{ENOSPC, "no room"},
		     {EDQUOT, "quota"},
		     {EMFILE, "leases"},
		     {EIO, "Input/output"},
		     {ENOTSUP, "not supported"}};

	fake_add(2 * MIB_);
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		FAKE(fake.refuse = table[i].error);
		expect_refused(table[i].error, table[i].text);
	}
	/* A refusal is an answer: the connection stays open. */
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
	FAKE(fake.refuse = 0);
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	ck_assert_uint_eq(atomic_load(&fake.connections), 1);
}
END_TEST

START_TEST(a_daemon_that_ends)
{
	gpumem *file;

	fake_add(2 * MIB_);
	file = fake_open();
	unsigned char *at = host_pointer(file, 2 * MIB_);
	FAKE(fake.hang_up = true);
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, ENOTCONN);
	ck_assert_ptr_nonnull(strstr(gpumem_error(), "has ended"));
	expect_refused(ENOTCONN, "has ended");
	at[5] = 1; /* mapped memory stays */
	FAKE(fake.hang_up = false);
	/* A new daemon in the same place serves new leases but does not know the old leases. */
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, ENOTCONN);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

/* If the program closes the library's socket and reuses the number, the library must not send to
 * the new socket. */
START_TEST(a_socket_closed_by_others)
{
	gpumem *file;
	int stranger[2];
	char byte;

	fake_add(2 * MIB_);
	file = fake_open();
	for (int fd = 3; fd < 64; fd++) {
		int type;
		socklen_t bytes = sizeof(type);
		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
		    type == SOCK_SEQPACKET) {
			ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, stranger), 0);
			ck_assert_int_eq(dup2(stranger[0], fd), fd);
			break;
		}
	}
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, ENOTCONN);
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	ck_assert_int_eq(gpumem_close(file), 0);
	ck_assert_int_eq(recv(stranger[1], &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

/* --- messages that no daemon sends ---------------------------------------------------------- */

#define SPOIL(name, ...)                                                                           \
	static void name(struct gpumem_msg_layout *m, size_t *bytes, unsigned *n_fds)              \
	{                                                                                          \
		(void)m, (void)bytes, (void)n_fds;                                                 \
		__VA_ARGS__;                                                                       \
	}

SPOIL(truncated_header, *bytes = 10)
SPOIL(truncated_layout, *bytes = sizeof(*m) - 4)
SPOIL(truncated_chunks, *bytes -= 4)
SPOIL(longer_than_it_says, *bytes += 16)
SPOIL(says_longer, m->header.bytes += 16)
SPOIL(oversized, *bytes = 8000; m->header.bytes = 8000)
SPOIL(wrong_magic, m->header.magic ^= 1)
SPOIL(wrong_version, m->header.version++)
SPOIL(wrong_type, m->header.type = GPUMEM_MSG_EXTEND)
SPOIL(done_instead, m->header.type = GPUMEM_MSG_DONE)
SPOIL(error_that_is_none, m->header.type = GPUMEM_MSG_ERROR)
SPOIL(another_request, m->header.request++)
SPOIL(too_many_chunks_said, m->n_chunks = 0x10000000)
SPOIL(one_chunk_too_many, m->n_chunks++)
SPOIL(fewer_chunks, m->n_chunks--)
SPOIL(no_fds, *n_fds = 0)
SPOIL(fds_missing, *n_fds -= 1)
SPOIL(fds_too_many, *n_fds += 1)
SPOIL(fds_far_too_many, *n_fds = 200)
SPOIL(gap, m->chunks[1].offset += 2 * MIB_)
SPOIL(overlap, m->chunks[1].offset -= 2 * MIB_)
SPOIL(does_not_begin_at_zero, m->chunks[0].offset = 4096)
SPOIL(empty_chunk, m->chunks[1].bytes = 0)
SPOIL(odd_chunk, m->chunks[1].bytes = 4096)
SPOIL(endless_chunk, m->chunks[1].bytes = UINT64_MAX - 2 * MIB_ + 1)
SPOIL(longer_than_its_object, m->chunks[2].bytes += 2 * MIB_)
SPOIL(kind_zero, m->kind = 0)
SPOIL(kind_unknown, m->kind = 9)
SPOIL(flags_unknown, m->flags |= 0x100)
SPOIL(reserved_used, m->reserved = 1)
SPOIL(first_chunk_wrong, m->first_chunk = 1)
SPOIL(no_lease, m->lease = 0)
SPOIL(negative_size, m->size = UINT64_MAX)
SPOIL(more_without_chunks, m->flags |= GPUMEM_LAYOUT_MORE; m->n_chunks = 0; *n_fds = 0;
      *bytes = m->header.bytes = sizeof(*m))
SPOIL(host_of_several, m->kind = GPUMEM_KIND_HOST)
SPOIL(silence, *bytes = 0)

#define ROW(name)                                                                                  \
	{                                                                                          \
#name, name                                                                        \
	}
static const struct {
	const char *name;
	void (*spoil)(struct gpumem_msg_layout *, size_t *, unsigned *);
} lies[] = {
    ROW(truncated_header),
    ROW(truncated_layout),
    ROW(truncated_chunks),
    ROW(longer_than_it_says),
    ROW(says_longer),
    ROW(oversized),
    ROW(wrong_magic),
    ROW(wrong_version),
    ROW(wrong_type),
    ROW(done_instead),
    ROW(error_that_is_none),
    ROW(another_request),
    ROW(too_many_chunks_said),
    ROW(one_chunk_too_many),
    ROW(fewer_chunks),
    ROW(no_fds),
    ROW(fds_missing),
    ROW(fds_too_many),
    ROW(fds_far_too_many),
    ROW(gap),
    ROW(overlap),
    ROW(does_not_begin_at_zero),
    ROW(empty_chunk),
    ROW(odd_chunk),
    ROW(endless_chunk),
    ROW(longer_than_its_object),
    ROW(kind_zero),
    ROW(kind_unknown),
    ROW(flags_unknown),
    ROW(reserved_used),
    ROW(first_chunk_wrong),
    ROW(no_lease),
    ROW(negative_size),
    ROW(more_without_chunks),
    ROW(host_of_several),
    ROW(silence),
};

/* Each wrong message costs the daemon its connection; the library neither crashes nor leaves a
 * descriptor open. */
START_TEST(lies_are_refused)
{
	unsigned before;

	for (unsigned i = 0; i < 4; i++)
		fake_add(2 * MIB_);
	for (unsigned i = 4; i < FAKE_CHUNKS_MAX; i++)
		fake.fds[i] = fake.fds[0];
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	FAKE(fake.spoil = wrong_magic);
	expect_refused(EPROTO, "not a message of gpumemfs");
	eventually(&fake.connections, 0);
	before = open_descriptors();
	FAKE(fake.spoil = lies[_i].spoil);
	gpumem *file = gpumem_open(fake_path(), O_RDWR);
	int error = errno;
	ck_assert_msg(!file, "%s was believed", lies[_i].name);
	ck_assert_msg(error == (fake.spoil == silence ? ENOTCONN : EPROTO), "%s: errno %d, %s",
		      lies[_i].name, error, gpumem_error());
	eventually(&fake.connections, 0);
	ck_assert_msg(open_descriptors() == before, "%s left descriptors open", lies[_i].name);
	FAKE(fake.spoil = NULL);
	file = fake_open();
	host_pointer(file, 8 * MIB_);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

/* The wrong message is a later packet, or the answer to an extension: the earlier chunks stay. */
static void second_of_another_lease(struct gpumem_msg_layout *m, size_t *bytes, unsigned *n_fds)
{
	(void)bytes, (void)n_fds;
	if (m->first_chunk)
		m->lease++;
}

START_TEST(lies_in_later_packets)
{
	unsigned before;

	for (unsigned i = 0; i < 4; i++)
		fake_add(2 * MIB_);
	FAKE(fake.per_message = 2);
	gpumem *file = fake_open();
	unsigned char *at = host_pointer(file, 8 * MIB_);
	before = open_descriptors();
	FAKE(fake.spoil = second_of_another_lease);
	fake_add(2 * MIB_);
	before++; /* the fake daemon's descriptor */
	ck_assert_int_eq(gpumem_extend(file), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_ptr_eq(host_pointer(file, 8 * MIB_), at);
	expect_refused(EPROTO, "another file");
	eventually(&fake.connections, 0);
	ck_assert_uint_le(open_descriptors(), before);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

START_TEST(a_size_beyond_the_chunks)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	fake_add(2 * MIB_);
	FAKE(fake.size = 100 * MIB_);
	gpumem *file = fake_open();
	ck_assert_int_eq(gpumem_get_info(file, &info), 0);
	ck_assert_uint_eq(info.size, 2 * MIB_);
	host_pointer(file, 2 * MIB_);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

/* --- fork ----------------------------------------------------------------------------------- */

START_TEST(a_child_closes_what_was_the_parents)
{
	int status;

	for (unsigned i = 0; i < 20; i++)
		fake_add(2 * MIB_);
	gpumem *file = fake_open();
	unsigned with = open_descriptors();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		/* The child closed 20 chunks and the connection. The daemon is a thread, and fork
		 * does not copy the thread. */
		_exit(open_descriptors() + 21 == with ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(open_descriptors(), with);
	host_pointer(file, 40 * MIB_);
	ck_assert_int_eq(gpumem_extend(file), 0);
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST

#ifndef __SANITIZE_THREAD__
START_TEST(a_child_leases_anew)
{
	int status;

	fake_add(2 * MIB_);
	gpumem *file = fake_open();
	unsigned char *at = host_pointer(file, 2 * MIB_);
	at[0] = 1;
	fflush(stdout);
	pid_t pid;
	FAKE(pid = fork()); /* the child's fake daemon starts with a free lock */
	if (pid == 0) {
		struct gpumem_info info = {.bytes = sizeof(info)};
		unsigned before = atomic_load(&fake.leases);
		void *mapped;
		bool good = gpumem_get_info(file, &info) == 0 && info.size == 2 * MIB_ &&
			    atomic_load(&fake.leases) == before + 1 &&
			    gpumem_map_host(file, &mapped, NULL) == 0 && mapped == at &&
			    at[0] == 1 && gpumem_close(file) == 0 &&
			    atomic_load(&fake.leases) == before;
		_exit(good ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	at[1] = 1;
	ck_assert_int_eq(gpumem_close(file), 0);
}
END_TEST
#endif

static void *open_and_close(void *arg)
{
	for (unsigned i = 0; i < 200; i++) {
		gpumem *file = fake_open();
		host_pointer(file, 4 * MIB_);
		ck_assert_int_eq(gpumem_extend(file), 0);
		ck_assert_int_eq(gpumem_close(file), 0);
	}
	return arg;
}

START_TEST(threads_and_forks)
{
	pthread_t threads[4];
	int status;

	fake_add(2 * MIB_);
	fake_add(2 * MIB_);
	ck_assert_int_eq(gpumem_close(fake_open()), 0);
	fflush(stdout);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, open_and_close, NULL);
	for (unsigned i = 0; i < 50; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(gpumem_error()[0] != '\0');
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	eventually(&fake.leases, 0);
}
END_TEST

START_TEST(texts_are_each_threads_own)
{
	ck_assert_str_eq(gpumem_error(), "");
	ck_assert_ptr_null(gpumem_open("/does/not/exist", O_RDWR));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_nonnull(strstr(gpumem_error(), "/does/not/exist"));
	ck_assert_uint_ge(strlen(gpumem_version()), 5);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_lease", &tcase, 60);

	fake_path();
	tcase_add_test(tcase, chunks_are_one_range);
	tcase_add_test(tcase, one_connection_for_all);
	tcase_add_test(tcase, pieces_are_sent_again);
	tcase_add_test(tcase, grows_in_place);
	tcase_add_test(tcase, too_many_chunks);
	tcase_add_test(tcase, answers_come_twice);
	tcase_add_test(tcase, refusals_have_texts);
	tcase_add_test(tcase, a_daemon_that_ends);
	tcase_add_test(tcase, a_socket_closed_by_others);
	tcase_add_loop_test(tcase, lies_are_refused, 0, sizeof(lies) / sizeof(lies[0]));
	tcase_add_test(tcase, lies_in_later_packets);
	tcase_add_test(tcase, a_size_beyond_the_chunks);
	tcase_add_test(tcase, a_child_closes_what_was_the_parents);
#ifndef __SANITIZE_THREAD__ /* TSan ends a forked child that starts threads */
	tcase_add_test(tcase, a_child_leases_anew);
#endif
	tcase_add_test(tcase, threads_and_forks);
	tcase_add_test(tcase, texts_are_each_threads_own);
	int status = unit_main(suite);
	fake_forget();
	return status;
}
