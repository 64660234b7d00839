/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases of files, private copies and connections, while an allocation or system call fails. */
#include "fs/share/copy.h"
#include "fs/share/internal.h"
#include "tests/unit/failures/daemon.h"
#include "tests/unit/failures/requests.h"

#define OPTIONS "backend=host,host_gpus=2,host_size=64M,spill=host:48M,bar=off"

static struct share share;
static struct share_connection *connection;
static int client = -1;
static uint64_t lease; /* the number in the last layout */

static void attributes_changed(struct session *mount, uint64_t ino)
{
	(void)mount, (void)ino;
}

static int share_begin(void)
{
	share = (struct share){.fs = &fixture, .epoll_fd = -1, .changed = attributes_changed};
	share.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	pthread_mutex_init(&share.lock, NULL);
	return share.epoll_fd < 0 ? -EMFILE : 0;
}

static int connection_open(void)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	int error = share_connection_new(&share, ends[0]);

	if (error) {
		close(ends[0]);
		close(ends[1]);
		return error;
	}
	connection = share.connections;
	client = ends[1];
	return 0;
}

static void connection_end(void)
{
	share_connection_free(&share, connection);
	close(client);
	connection = NULL;
}

/* As a client that closes the descriptors that it receives. */
static void packets_take(void)
{
	char packet[16384];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = {packet, sizeof(packet)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	do {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		if (recvmsg(client, &message, MSG_DONTWAIT) < 0)
			return;
		const struct gpumem_msg_layout *layout = (const void *)packet;

		if (layout->header.type == GPUMEM_MSG_LAYOUT)
			lease = layout->lease;
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);

		for (size_t i = 0; head && CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; i++)
			close(((int *)CMSG_DATA(head))[i]);
	} while (true);
}

/* As the daemon, which ends a connection that does not take a packet; the client connects again. */
static int answered(int error)
{
	bool counts = inject_counts;

	inject_counts = false;
	if (error == -EPIPE) {
		connection_end();
		ck_assert_int_eq(connection_open(), 0);
		lease = 0;
		error = -ENOBUFS;
	}
	packets_take();
	inject_counts = counts;
	return error;
}

static int do_lease(const struct node *file, enum gpumem_access access)
{
	struct share_ask ask = {.inode = inode_find(&fixture, file->ino),
				.access = access,
				.times = SHARE_TIMES_UNSEEN,
				.ask = {.request = 1}};

	return answered(share_lease(&share, connection, &ask, FILE_MAY_WAIT));
}

static int do_extend(uint64_t first)
{
	struct share_request extend = {.number = 2, .lease = lease, .first_chunk = first};

	if (!lease)
		return 0; /* ended with its connection */
	return answered(share_extend(&share, connection, &extend, FILE_MAY_WAIT));
}

static int do_end(uint64_t number)
{
	struct share_request release = {.number = 3, .lease = number};

	if (!number)
		return 0;
	return answered(share_release(&share, connection, &release, FILE_MAY_WAIT));
}

static int do_private_copy(const struct node *file)
{
	struct inode *copy;
	int error = share_copy(&fixture, inode_find(&fixture, file->ino), 4, &copy);

	if (!error)
		inode_put(&fixture, copy, 1);
	return error;
}

static void filled(unsigned volume, const char *name, struct node *file)
{
	TRY(do_create(gpu(volume)->ino, name, file));
	TRY(do_resize(file, 5 * MIB));
	TRY(do_write(file, 0, 60000));
	TRY(do_write(file, 4 * MIB, 60000));
}

static void lease_file(const struct node *file)
{
	TRY(do_lease(file, GPUMEM_ACCESS_WRITE));
	TRY(do_resize(file, 9 * MIB));
	TRY(do_extend(0));
	TRY(do_write(file, 0, 4096));
	TRY(do_lease(file, GPUMEM_ACCESS_READ));
	TRY(do_end(lease));
	worker_end(); /* the next lease is the first request of its thread */
	TRY(do_lease(file, GPUMEM_ACCESS_READ));
}

/* This process keeps what the files give up. */
static void give_up(const struct node *file)
{
	for (unsigned i = 0; i < 2; i++) {
		TRY(do_lease(file, GPUMEM_ACCESS_WRITE));
		TRY(do_end(lease));
		TRY(do_chown(file, 4 + i));
		TRY(do_lease(file, GPUMEM_ACCESS_WRITE));
		TRY(do_end(lease));
		TRY(do_set(file, "user.gpumem.page_size", i ? "4K" : "2M"));
		TRY(do_set(file, "user.gpumem.resident", i ? "gpu" : "host"));
		TRY(do_lease(file, GPUMEM_ACCESS_WRITE));
		TRY(do_end(lease));
		TRY(do_allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3 * MIB));
		TRY(do_resize(file, 5 * MIB));
		TRY(do_write(file, 4 * MIB, 4096));
	}
}

static void leases(void)
{
	struct node one = {0}, two = {0}, system = {0}, given = {0};

	scenario_up(OPTIONS);
	TRY(share_begin());
	filled(0, "one", &one);
	filled(1, "two", &two);
	filled(2, "system", &system);
	TRY(connection_open());
	lease_file(&one);
	lease_file(&system);
	filled(1, "given", &given);
	give_up(&given);
	TRY(do_unlink(gpu(1)->ino, "given"));
	TRY(do_release(&given));
	TRY(do_private_copy(&two));
	TRY(share_listen(&share, connection, GPUMEM_LISTEN_PARK));
	TRY(do_set(&two, "user.gpumem.share", "trusted"));
	TRY(do_lease(&two, GPUMEM_ACCESS_READ));
	TRY(do_unlink(gpu(1)->ino, "two"));
	TRY(do_release(&two));
	connection_end();
	ck_assert_uint_eq(ledger_count(&fixture, getuid(), LEDGER_LEASES), 0);
	ck_assert_ptr_null(lease_list_of(&fixture)->first);
	TRY(do_resize(&one, 0));
	close(share.epoll_fd);
	scenario_down();
}

int main(void)
{
	return failures_main("failures of sharing", leases, true);
}
