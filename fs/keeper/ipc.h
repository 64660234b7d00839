/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The messages between a daemon and its keeper: packets on a SEQPACKET socket pair, each with at
 * most one file descriptor. Both ends check all messages. */
#ifndef FS_KEEPER_IPC_H
#define FS_KEEPER_IPC_H

#include <stdbool.h>
#include <stdint.h>

/* Keeper and daemon may be of different releases. */
#define IPC_VERSION 1

enum ipc_type {
	/* The keeper's first message. value: how many descriptors the keeper can hold; id: the
	   daemon's generation, from 1 on; flags; text: the UUID of a GPU that must work in this
	   daemon, or empty. */
	IPC_WELCOME = 1,
	/* From the daemon, without an answer. */
	IPC_HOLD = 2,  /* id and a descriptor */
	IPC_DROP = 3,  /* id */
	IPC_READY = 4, /* the daemon serves requests */
	IPC_END = 5,   /* the daemon ends on purpose: close all descriptors */
	/* From the daemon, answered. */
	IPC_TAKE = 6, /* id: answered by IPC_HELD or IPC_NONE */
	IPC_NEXT = 7, /* id: answered by IPC_HELD of the first id above, or IPC_NONE */
	IPC_PREPARED =
	    8, /* the daemon could serve: answered by IPC_GO after the previous daemon's end */
	IPC_SYNC = 9, /* answered by IPC_NONE when all earlier messages have been handled */
	/* From the keeper. */
	IPC_HELD = 10, /* id and its descriptor */
	IPC_NONE = 11,
	IPC_GO = 12, /* id, value: when the IPC socket of the previous daemon closed, and when that
			daemon was reaped; us; 0: there was no previous daemon */
	/* On the keeper's address, from another program. */
	IPC_UPGRADE = 13, /* a descriptor of the program for new daemons: answered by IPC_LOGGED */
	IPC_LOGGED = 14,  /* value: 0 or an errno; text: for people */
	/* From the daemon, without an answer, if the keeper set IPC_REPLACES. */
	IPC_REPLACE = 15, /* text: the UUID of a GPU that works in no new context of the daemon */
	IPC_TYPES
};

enum ipc_flags {
	IPC_BACKGROUND = 1, /* leave the terminal when ready */
	IPC_SYSLOG = 2,	    /* the terminal was left already */
	IPC_REPLACES = 4,   /* the keeper knows IPC_REPLACE */
	IPC_STANDBY = 8,    /* standby: another daemon serves, possibly for a long time */
};

#define IPC_TEXT_BYTES 224

struct ipc_message {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t flags;
	uint32_t reserved; /* 0 */
	uint64_t id, value;
	char text[IPC_TEXT_BYTES]; /* ends with a NUL */
};

/* ends[0] and ends[1], both close-on-exec: 0 or -errno. */
int ipc_pair(int ends[2]);

/* A message with magic, version, type and id. */
struct ipc_message ipc_message(enum ipc_type type, uint64_t id);

/* Sends a message, and a duplicate of fd unless fd is -1: 0 or -errno; -EPIPE: the other end is
 * closed. Waits while the socket is full. */
int ipc_send(int ipc, const struct ipc_message *message, int fd);
/* Sends as ipc_send does if that need not wait, else -EAGAIN. */
int ipc_offer(int ipc, const struct ipc_message *message, int fd);

/* Waits for a message: 0, and *fd is the caller's descriptor, or -1; -EPIPE: the other end is
 * closed; -EPROTO: not a message of this protocol. */
int ipc_receive(int ipc, struct ipc_message *message, int *fd);
/* Receives as ipc_receive does if a message is there, else -EAGAIN. */
int ipc_poll(int ipc, struct ipc_message *message, int *fd);

#endif
