/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The line between a daemon and its keeper: a SEQPACKET socket pair; a message is one packet, with
 * at most one file descriptor. Both ends check what comes. */
#ifndef FS_KEEPER_IPC_H
#define FS_KEEPER_IPC_H

#include <stdbool.h>
#include <stdint.h>

/* A keeper may be older or newer than the daemons that it starts. */
#define IPC_VERSION 1

enum ipc_type {
	/* keeper: first of all. value: fds it can hold; id: which daemon this is, from 1 on; flags;
	 * text: the UUID of a GPU that has to work here, or empty */
	IPC_WELCOME = 1,
	/* daemon, unanswered */
	IPC_HOLD = 2,  /* id and an fd */
	IPC_DROP = 3,  /* id */
	IPC_READY = 4, /* requests are served */
	IPC_END = 5,   /* on purpose: all that is held is to be closed */
	/* daemon, answered */
	IPC_TAKE = 6,	  /* id: IPC_HELD, or IPC_NONE */
	IPC_NEXT = 7,	  /* id: IPC_HELD of the next after it, or IPC_NONE */
	IPC_PREPARED = 8, /* it could serve: IPC_GO once nothing of the daemon before is left */
	IPC_SYNC = 9,	  /* IPC_NONE, when what came before has been dealt with */
	/* keeper */
	IPC_HELD = 10, /* id and its fd */
	IPC_NONE = 11,
	IPC_GO =
	    12, /* id, value: when the daemon before ended and had gone; us, 0: there was none */
	/* another program, at the keeper's own address */
	IPC_UPGRADE = 13, /* an fd of the program to go on with: IPC_LOGGED with the outcome */
	IPC_LOGGED = 14,  /* value: 0 or an errno; text */
	/* daemon, unanswered, to a keeper that has IPC_REPLACES */
	IPC_REPLACE = 15, /* text: the UUID of a GPU that works in no context of this process */
	IPC_TYPES
};

enum ipc_flags {
	IPC_BACKGROUND = 1, /* the terminal is to be left when ready */
	IPC_SYSLOG = 2,	    /* it was left already */
	IPC_REPLACES = 4,   /* the keeper knows IPC_REPLACE */
	IPC_STANDBY = 8,    /* another daemon serves, and will for long */
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

/* Fills in what all messages have. */
struct ipc_message ipc_message(enum ipc_type type, uint64_t id);

/* 0 or -errno; -EPIPE where nobody is at the other end. fd: -1 for none; it stays the caller's. */
int ipc_send(int ipc, const struct ipc_message *message, int fd);
/* As ipc_send, but never waits for the other end: -EAGAIN. */
int ipc_offer(int ipc, const struct ipc_message *message, int fd);

/* Waits for a message: 0 with *fd the caller's or -1, -EPIPE at the end, -EPROTO where it is none.
 */
int ipc_receive(int ipc, struct ipc_message *message, int *fd);
/* As ipc_receive, but -EAGAIN where there is none. */
int ipc_poll(int ipc, struct ipc_message *message, int *fd);

#endif
