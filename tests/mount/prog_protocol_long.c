/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host
 * mount: max_chunk=2M,host_size=1G
 * needs: daemon
 * A file with more chunks than a packet of the sharing protocol holds: the client requests the
 * others. */
#include "tests/mount/protocol.h"

#define MANY (GPUMEM_CHUNKS_PER_MESSAGE + 3)

static int sparse_file(long chunks)
{
	int fd = OK(open("many", O_CREAT | O_RDWR | O_CLOEXEC, 0644));

	OK(fchmod(fd, 0644));
	OK(ftruncate(fd, chunks * 2 * MIB));
	pattern_write(fd, 3, 0, MIB);
	return fd;
}

static void expect_chunks(int connection, struct answer answer, long chunks)
{
	struct gpumem_msg_extend extend = {.lease = answer.packet.layout.lease};
	uint64_t at = 0;

	for (uint32_t first = 0;; first = extend.first_chunk) {
		EQUAL(answer.packet.layout.first_chunk, first);
		for (uint32_t i = 0; i < answer.packet.layout.n_chunks; i++) {
			EQUAL(answer.packet.layout.chunks[i].offset, at);
			at += answer.packet.layout.chunks[i].bytes;
		}
		drop(&answer);
		extend.first_chunk = first + answer.packet.layout.n_chunks;
		if (!(answer.packet.layout.flags & GPUMEM_LAYOUT_MORE))
			break;
		EQUAL(answer.packet.layout.n_chunks, GPUMEM_CHUNKS_PER_MESSAGE);
		extend.header = head(GPUMEM_MSG_EXTEND, sizeof(extend));
		say(connection, &extend, sizeof(extend));
		answer = hear_layout(connection);
		EQUAL(answer.packet.layout.lease, extend.lease);
	}
	EQUAL(at, chunks * 2 * MIB);
}

static void read_many(int unused)
{
	(void)unused;
	become_user();
	int fd = OK(open("many", O_RDONLY)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_PRIVATE | GPUMEM_LAYOUT_MORE);
	expect_chunks(connection, answer, MANY);
}

static void a_long_layout(void)
{
	int fd = sparse_file(MANY), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.flags, GPUMEM_LAYOUT_MORE);
	expect_chunks(connection, answer, MANY);
	EQUAL(leases_of(fd), 1);
	OK(close(connection));
	expect_leases(fd, 0);
}

static void a_full_packet(void)
{
	int fd = sparse_file(GPUMEM_CHUNKS_PER_MESSAGE), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.packet.layout.flags, 0);
	expect_chunks(connection, answer, GPUMEM_CHUNKS_PER_MESSAGE);
}

static void a_long_copy(void)
{
	OK(close(sparse_file(MANY)));
	spawn(read_many, 0);
	join_all(1);
}

PROG(TEST(a_long_layout), TEST(a_full_packet), TEST(a_long_copy))
