/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A fake daemon for the tests of libgpumem: a thread that speaks the protocol over a socket pair,
 * correctly or, on request of the test, incorrectly. The fixture replaces client/core/mount.c, so
 * every file counts as a file of the mount. */
#ifndef TESTS_UNIT_CLIENT_FIXTURE_H
#define TESTS_UNIT_CLIENT_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/mount.h"
#include "client/lib/gpumem.h"
#include "common/protocol.h"
#include "tests/unit/unit.h"

#define MIB_ (1ULL << 20)

enum fake_chunks_max { FAKE_CHUNKS_MAX = 300 };

/* The only file of the fake daemon. The test sets the fields before the client sends a request. */
static struct {
	uint32_t kind, flags, device;
	uint8_t uuid[16];
	uint64_t size;
	uint32_t n_chunks;
	uint32_t per_message; /* 0: the protocol's maximum */
	uint64_t bytes[FAKE_CHUNKS_MAX];
	int fds[FAKE_CHUNKS_MAX];
	/* Called before each layout message: may change the packet, and the number of bytes and
	 * descriptors to send. */
	void (*spoil)(struct gpumem_msg_layout *message, size_t *bytes, unsigned *n_fds);
	int refuse;	  /* errno to send instead of a layout */
	bool hang_up;	  /* close the connection instead of an answer */
	bool deaf;	  /* end connections that listen, as daemons before notices do */
	unsigned forgets; /* so many times the pieces of a client are not known any more */
	bool repeat; /* answer a request for a lease twice, as a daemon does after a takeover */
	atomic_uint leases, connections, requests;
	/* Of the connection that listens, under fake_lock: the daemon's descriptor, or 0; its
	 * flags; and the last answer to a notice, and how many there were. */
	int listener;
	uint32_t listen_flags;
	struct gpumem_msg_noticed noticed;
	atomic_uint answers;
} fake = {.kind = GPUMEM_KIND_MEMFD};

/* Held by the daemon thread during an answer, and by the test thread while the test changes fake.
 */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

#define FAKE(...)                                                                                  \
	do {                                                                                       \
		pthread_mutex_lock(&fake_lock);                                                    \
		__VA_ARGS__;                                                                       \
		pthread_mutex_unlock(&fake_lock);                                                  \
	} while (0)

static inline void fake_send(int fd, const void *packet, size_t bytes, const int *fds, unsigned n)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * 2 * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)packet, bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (n) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
		control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), fds, n * sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL);
}

static inline struct gpumem_msg_header fake_header(uint16_t type, size_t bytes, uint32_t request)
{
	return (struct gpumem_msg_header){GPUMEM_MAGIC, GPUMEM_PROTOCOL_VERSION, type,
					  (uint32_t)bytes, request};
}

static inline void fake_error(int fd, uint32_t request, int error)
{
	struct gpumem_msg_error message = {
	    .header = fake_header(GPUMEM_MSG_ERROR, sizeof(message), request), .error = error};

	fake_send(fd, &message, sizeof(message), NULL, 0);
}

/* Sends the chunks from first on, as many as a packet has. */
static inline void fake_layout(int fd, uint32_t request, uint32_t first)
{
	union {
		struct gpumem_msg_layout message;
		char room[8192];
	} packet = {0};
	struct gpumem_msg_layout *message = &packet.message;
	uint32_t most = fake.per_message ? fake.per_message : GPUMEM_CHUNKS_PER_MESSAGE;
	uint32_t left = first < fake.n_chunks ? fake.n_chunks - first : 0;
	uint32_t n = left < most ? left : most;
	size_t bytes = sizeof(*message) + n * sizeof(message->chunks[0]);
	unsigned n_fds = n;
	uint64_t at = 0;

	*message = (struct gpumem_msg_layout){
	    .header = fake_header(GPUMEM_MSG_LAYOUT, bytes, request),
	    .lease = 7,
	    .size = fake.size,
	    .kind = fake.kind,
	    .flags = fake.flags | (n < left ? GPUMEM_LAYOUT_MORE : 0),
	    .device = fake.device,
	    .first_chunk = first,
	    .n_chunks = n,
	};
	memcpy(message->uuid, fake.uuid, sizeof(fake.uuid));
	for (uint32_t i = 0; i < first + n; i++) {
		if (i >= first)
			message->chunks[i - first] = (struct gpumem_chunk){at, fake.bytes[i]};
		at += fake.bytes[i];
	}
	if (fake.spoil)
		fake.spoil(message, &bytes, &n_fds);
	fake_send(fd, message, bytes, fake.fds + first, n_fds);
}

/* The key is the daemon's descriptor of the connection. */
static inline void fake_key(int fd, uint32_t request)
{
	struct gpumem_msg_key message = {.header =
					     fake_header(GPUMEM_MSG_KEY, sizeof(message), request)};

	memcpy(message.key, &fd, sizeof(fd));
	fake_send(fd, &message, sizeof(message), NULL, 0);
}

/* Under fake_lock. False: the connection ends. */
static inline bool fake_listen(int fd, const struct gpumem_msg_header *header)
{
	struct gpumem_msg_header done = fake_header(GPUMEM_MSG_DONE, sizeof(done), header->request);

	if (header->type == GPUMEM_MSG_NOTICED) {
		fake.noticed = *(const struct gpumem_msg_noticed *)header;
		atomic_fetch_add(&fake.answers, 1);
		return true;
	}
	fake.listener = fake.deaf ? 0 : fd;
	fake.listen_flags = ((const struct gpumem_msg_listen *)header)->flags;
	if (!fake.deaf)
		fake_send(fd, &done, sizeof(done), NULL, 0);
	return !fake.deaf;
}

static inline bool fake_answer(int fd, const struct gpumem_msg_header *header)
{
	struct gpumem_msg_header done = fake_header(GPUMEM_MSG_DONE, sizeof(done), header->request);

	if (header->type == GPUMEM_MSG_HELLO) {
		fake_key(fd, header->request);
		return true;
	}
	if (header->type == GPUMEM_MSG_LISTEN || header->type == GPUMEM_MSG_NOTICED)
		return fake_listen(fd, header);
	atomic_fetch_add(&fake.requests, 1);
	if (fake.hang_up)
		return false;
	if (fake.refuse && header->type != GPUMEM_MSG_RELEASE) {
		fake_error(fd, header->request, fake.refuse);
		return true;
	}
	switch (header->type) {
	case GPUMEM_MSG_EXTEND:
		fake_layout(fd, header->request,
			    (uint32_t)((const struct gpumem_msg_extend *)header)->first_chunk);
		return true;
	case GPUMEM_MSG_PIECES:
		fake_send(fd, &done, sizeof(done), NULL, 0);
		return true;
	case GPUMEM_MSG_RELEASE:
		atomic_fetch_sub(&fake.leases, 1);
		fake_send(fd, &done, sizeof(done), NULL, 0);
		return true;
	default:
		return false;
	}
}

static inline void *fake_serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	union {
		struct gpumem_msg_header header;
		char bytes[256];
	} packet;

	while (recv(fd, &packet, sizeof(packet), 0) >= (ssize_t)sizeof(packet.header)) {
		bool go_on;

		FAKE(go_on = fake_answer(fd, &packet.header));
		if (!go_on)
			break;
	}
	FAKE(fake.listener = fake.listener == fd ? 0 : fake.listener);
	close(fd);
	atomic_fetch_sub(&fake.connections, 1);
	return NULL;
}

int client_mount_check(int fd)
{
	(void)fd;
	return 0;
}

int client_mount_lease(int fd, int flags, struct gpumem_lease_ask *ask)
{
	int rc = 0, end;

	(void)fd;
	(void)flags;
	memcpy(&end, ask->key, sizeof(end));
	pthread_mutex_lock(&fake_lock);
	atomic_fetch_add(&fake.requests, 1);
	if (fake.hang_up) {
		shutdown(end, SHUT_RDWR);
		rc = -ESTALE;
	} else if (fake.refuse) {
		rc = client_refused(fake.refuse);
	} else {
		atomic_fetch_add(&fake.leases, 1);
		if (fake.repeat)
			fake_layout(end, ask->request, 0);
		fake_layout(end, ask->request, 0);
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int client_mount_adopt(int fd, struct gpumem_adopt_ask *ask)
{
	bool forgets;

	FAKE(forgets = fake.forgets > 0; fake.forgets -= forgets);
	return forgets ? -ESTALE : client_mount_lease(fd, O_RDWR, &ask->lease);
}

int client_mount_connect(int fd)
{
	pthread_t thread;
	int ends[2];

	(void)fd;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	atomic_fetch_add(&fake.connections, 1);
	pthread_create(&thread, NULL, fake_serve, (void *)(intptr_t)ends[1]);
	pthread_detach(thread);
	return ends[0];
}

/* The path of the file that tests open; the file's bytes do not matter. */
static inline const char *fake_path(void)
{
	static char path[64];

	if (!path[0]) {
		strcpy(path, "/tmp/gpumem-client-XXXXXX");
		int fd = mkstemp(path);
		if (fd < 0) /* may run outside of any test, so no ck_assert */
			abort();
		close(fd);
	}
	return path;
}

static inline void fake_forget(void)
{
	unlink(fake_path());
}

static inline int fake_object(uint64_t bytes)
{
	int fd = memfd_create("chunk", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static inline void fake_add(uint64_t bytes)
{
	int fd = fake_object(bytes);

	FAKE(fake.bytes[fake.n_chunks] = bytes; fake.fds[fake.n_chunks++] = fd; fake.size += bytes);
}

static inline gpumem *fake_open(void)
{
	gpumem *file = gpumem_open(fake_path(), O_RDWR);

	ck_assert_msg(file != NULL, "gpumem_open: %s", gpumem_error());
	return file;
}

static inline void expect_refused(int error, const char *text)
{
	gpumem *file = gpumem_open(fake_path(), O_RDWR);
	int got = errno;

	ck_assert_ptr_null(file);
	ck_assert_msg(got == error, "errno %d (%s), wanted %d", got, gpumem_error(), error);
	ck_assert_msg(strstr(gpumem_error(), text) != NULL, "'%s' says nothing of '%s'",
		      gpumem_error(), text);
}

static inline unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Waits for the value, because the thread at the other end may still be running. */
static inline void eventually(atomic_uint *value, unsigned wanted)
{
	UNIT_AWAIT(atomic_load(value) == wanted);
}

#endif
