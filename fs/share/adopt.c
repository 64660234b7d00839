/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of clients: the descriptors that come over a connection, and the file that gets the
 * memory. Pieces belong to a connection until then; the next daemon does not know them, and the
 * client sends them again. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/core/caller.h"
#include "fs/core/worker.h"
#include "fs/ledger/ledger.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"

/* Of /dev/nvidiactl and /dev/nvidia0: Documentation/admin-guide/devices.txt of Linux. */
#define NVIDIA_MAJOR 195

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* since Linux 6.16 */
#endif

bool share_trusts(uid_t uid)
{
	return uid == geteuid() || user_is_privileged(uid);
}

void share_refuse_fds(int fd, bool refuse)
{
	int pass = !refuse;

	setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof(pass));
}

/* A packet with its descriptors. */
struct pieces_packet {
	uint32_t request, first, n_pieces;
	uint64_t bytes[GPUMEM_FDS_MAX];
	int fds[GPUMEM_FDS_MAX];
	uint32_t n_fds;
};

union pieces_control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(GPUMEM_FDS_MAX * sizeof(int))];
};

static void fds_take(struct msghdr *message, struct pieces_packet *packet)
{
	for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head;
	     head = CMSG_NXTHDR(message, head)) {
		size_t bytes = head->cmsg_len - CMSG_LEN(0);

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(packet->fds, CMSG_DATA(head), bytes);
		packet->n_fds = (uint32_t)(bytes / sizeof(int));
	}
}

/* Whether fd is a memfd, or of NVIDIA's driver. A file of this mount among them would keep the
 * daemon from ending: at its end the kernel would write the file's pages out, by the daemon. A
 * descriptor of O_PATH, as the stand-in driver exports, has no such end. Asks no file system. */
static bool fd_is_memory(int fd)
{
	struct statx st;

	if (fcntl(fd, F_GET_SEALS) >= 0 || fcntl(fd, F_GETFL) & O_PATH)
		return true;
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
	       S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR;
}

static bool fds_are_memory(const struct pieces_packet *packet)
{
	for (uint32_t i = 0; i < packet->n_fds; i++)
		if (!fd_is_memory(packet->fds[i]))
			return false;
	return true;
}

/* The packet stays in the socket. Without room in the daemon's table of descriptors, fewer come
 * than were sent. */
static int packet_read(struct share_connection *connection, struct pieces_packet *packet)
{
	char data[SHARE_PIECES_MAX + 1];
	union pieces_control control;
	struct gpumem_msg_pieces head;
	struct iovec part = {data, sizeof(data)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC);

	packet->n_fds = 0;
	if (n < 0)
		return -EPIPE;
	fds_take(&message, packet);
	if (share_pieces_parse(data, (size_t)n, &head))
		return -EPIPE;
	packet->request = head.header.request;
	packet->first = head.first;
	packet->n_pieces = head.n_pieces;
	memcpy(packet->bytes, data + sizeof(head), head.n_pieces * sizeof(packet->bytes[0]));
	if (message.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	return packet->n_fds == packet->n_pieces && fds_are_memory(packet) ? 0 : -EINVAL;
}

/* The client may send all of its pieces again, or the last ones. */
static int pieces_place(struct share *share, struct share_connection *connection, uint32_t first)
{
	if (!first)
		share_pieces_forget(share, connection);
	return first == connection->n_pieces ? 0 : -ESTALE;
}

/* On success the descriptors are the connection's. */
static int pieces_add(struct share *share, struct share_connection *connection,
		      const struct pieces_packet *packet)
{
	uint32_t n = packet->n_pieces, have = connection->n_pieces;
	struct file_piece *pieces;

	if (n > GPUMEM_PIECES_MAX - have)
		return -EMFILE;
	int error = ledger_take(share->fs, connection->uid, LEDGER_DESCRIPTORS,
				(uint64_t)n * LEDGER_DESCRIPTOR);

	if (error)
		return error;
	pieces = reallocarray(connection->pieces, have + n, sizeof(*pieces));
	if (!pieces) {
		ledger_give(share->fs, connection->uid, LEDGER_DESCRIPTORS,
			    (uint64_t)n * LEDGER_DESCRIPTOR);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		pieces[have + i] = (struct file_piece){packet->bytes[i], packet->fds[i]};
	connection->pieces = pieces;
	connection->n_pieces = have + n;
	return 0;
}

int share_pieces_receive(struct share *share, struct share_connection *connection)
{
	struct pieces_packet packet;

	if (!connection->trusted)
		return -EPERM;
	int error = packet_read(connection, &packet);

	if (!error)
		error = pieces_place(share, connection, packet.first);
	if (!error && packet.n_pieces)
		error = pieces_add(share, connection, &packet);
	if (!error)
		return share_send_done(connection, packet.request);
	for (uint32_t i = 0; i < packet.n_fds; i++)
		close(packet.fds[i]);
	return error;
}

void share_pieces_forget(struct share *share, struct share_connection *connection)
{
	for (uint32_t i = 0; i < connection->n_pieces; i++)
		if (connection->pieces[i].fd >= 0)
			close(connection->pieces[i].fd);
	ledger_give(share->fs, connection->uid, LEDGER_DESCRIPTORS,
		    (uint64_t)connection->n_pieces * LEDGER_DESCRIPTOR);
	free(connection->pieces);
	connection->pieces = NULL;
	connection->n_pieces = 0;
}

bool share_adopts_at_once(const struct share_ask *ask)
{
	return ask->adopt->later && ask->adopt->n_pieces <= FILE_QUICK_CHUNKS;
}

int share_adopt(struct share *share, struct share_connection *connection,
		const struct share_ask *ask)
{
	struct file_adoption adoption = {.pieces = connection->pieces,
					 .n_pieces = connection->n_pieces,
					 .skip = ask->adopt->skip,
					 .size = ask->adopt->size,
					 .ends = !ask->adopt->stays,
					 .later = ask->adopt->later};
	struct inode_call call;
	int error = -ESTALE;

	/* An earlier daemon has done this, and was killed before the lease. */
	if (ask->resent && file_has_foreign_memory(ask->inode->file))
		return 0;
	inode_call_init(&call, share->fs, ask->inode, worker_copier(share->fs));
	if (connection->n_pieces == ask->adopt->n_pieces)
		error = call.call.copier ? file_adopt(ask->inode->file, &call.call, &adoption)
					 : -ENOMEM;
	share_pieces_forget(share, connection);
	/* A link(2) beside the request, whose name the kernel may remember: the name stays. */
	if (!error && adoption.ends && atomic_load(&ask->inode->nlink)) {
		file_adopted_end(ask->inode->file);
		file_adopted_free(ask->inode->file, &call.call);
		return -EBUSY;
	}
	return error;
}
