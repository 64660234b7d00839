/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon's FUSE operations without a mount: requests are given to libfuse as the kernel's
 * bytes, and the reply is kept. */
#ifndef TESTS_UNIT_KERNEL_FIXTURE_H
#define TESTS_UNIT_KERNEL_FIXTURE_H

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/ops/ops.h"
#include "tests/unit/fs_fixture.h"

#define BODY_BYTES (64 << 10)

#define UNANSWERED (-1)

static struct fuse_session *session;
static int null_fd;
static struct {
	int error; /* positive errno; UNANSWERED: no reply */
	unsigned replies;
	char data[BODY_BYTES + 4096];
	size_t bytes;
} answer;

static ssize_t answer_note(int fd, struct iovec *iov, int count, void *userdata)
{
	size_t bytes = 0;

	(void)fd, (void)userdata;
	for (int i = 0; i < count; i++) {
		ck_assert_uint_le(bytes + iov[i].iov_len, sizeof(answer.data));
		memcpy(answer.data + bytes, iov[i].iov_base, iov[i].iov_len);
		bytes += iov[i].iov_len;
	}
	ck_assert_uint_ge(bytes, sizeof(struct fuse_out_header));
	answer.error = -((struct fuse_out_header *)answer.data)->error;
	answer.bytes = bytes - sizeof(struct fuse_out_header);
	answer.replies++;
	return (ssize_t)bytes;
}

static ssize_t nothing_read(int fd, void *to, size_t bytes, void *userdata)
{
	(void)fd, (void)to, (void)bytes, (void)userdata;
	return 0;
}

/* Returns the error of the reply. Zeros follow the body: empty names, if the request has names. */
static inline int request(uint32_t opcode, uint64_t node, const void *body, size_t bytes)
{
	static struct {
		struct fuse_in_header header;
		char body[BODY_BYTES];
	} in;
	size_t whole = sizeof(in.header) + (bytes > 4096 ? bytes : 4096);
	struct fuse_buf buf = {.mem = &in, .size = whole};

	ck_assert_uint_le(bytes, sizeof(in.body));
	memset(&in, 0, whole);
	in.header = (struct fuse_in_header){.len = (uint32_t)whole,
					    .opcode = opcode,
					    .unique = 2,
					    .nodeid = node,
					    .uid = getuid(),
					    .gid = getgid(),
					    .pid = (uint32_t)getpid()};
	if (bytes)
		memcpy(in.body, body, bytes);
	answer.replies = 0;
	answer.error = UNANSWERED;
	fuse_session_process_buf(session, &buf);
	ck_assert_uint_le(answer.replies, 1);
	return answer.error;
}

/* What follows the header of the last reply. */
static inline const void *answer_body(void)
{
	return answer.data + sizeof(struct fuse_out_header);
}

static inline uint64_t handle_of(uint64_t node, uint32_t flags)
{
	struct fuse_open_in in = {.flags = flags};

	ck_assert_int_eq(request(FUSE_OPEN, node, &in, sizeof(in)), 0);
	return ((const struct fuse_open_out *)answer_body())->fh;
}

static inline uint64_t node_of(uint64_t parent, const char *name)
{
	ck_assert_int_eq(request(FUSE_LOOKUP, parent, name, strlen(name) + 1), 0);
	return ((const struct fuse_entry_out *)answer_body())->nodeid;
}

/* The session of the open fixture. */
static inline void kernel_up(void)
{
	static const struct fuse_custom_io io = {.writev = answer_note, .read = nothing_read};
	struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION,
				    .minor = FUSE_KERNEL_MINOR_VERSION,
				    .max_readahead = 65536};
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	ck_assert_int_eq(fuse_opt_add_arg(&args, "test"), 0);
	session = fuse_session_new(&args, ops_table(), sizeof(struct fuse_lowlevel_ops), &fixture);
	ck_assert_ptr_nonnull(session);
	fuse_opt_free_args(&args);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(fuse_session_custom_io(session, &io, sizeof(io), null_fd), 0);
	ck_assert_int_eq(request(FUSE_INIT, 0, &init, sizeof(init)), 0);
}

static inline void kernel_down(void)
{
	fuse_session_destroy(session);
}

#endif
