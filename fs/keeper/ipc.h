/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The line between a daemon and its keeper: a SEQPACKET socket pair; a message is one packet, with
 * at most one file descriptor. Both ends check what comes. */
#ifndef FS_KEEPER_IPC_H
#define FS_KEEPER_IPC_H

#include <stdbool.h>
#include <stdint.h>

/* A keeper may be older or newer than the daemons that it starts. */
#define LINE_VERSION 1

enum line_type {
	/* keeper: first of all. value: fds it can hold; id: which daemon this is, from 1 on; flags;
	 * text: the UUID of a GPU that has to work here, or empty */
	LINE_WELCOME = 1,
	/* daemon, unanswered */
	LINE_HOLD = 2,	/* id and an fd */
	LINE_DROP = 3,	/* id */
	LINE_READY = 4, /* requests are served */
	LINE_END = 5,	/* on purpose: all that is held is to be closed */
	/* daemon, answered */
	LINE_TAKE = 6,	   /* id: LINE_HELD, or LINE_NONE */
	LINE_NEXT = 7,	   /* id: LINE_HELD of the next after it, or LINE_NONE */
	LINE_PREPARED = 8, /* it could serve: LINE_GO once nothing of the daemon before is left */
	LINE_SYNC = 9,	   /* LINE_NONE, when what came before has been dealt with */
	/* keeper */
	LINE_HELD = 10, /* id and its fd */
	LINE_NONE = 11,
	LINE_GO =
	    12, /* id, value: when the daemon before ended and had gone; us, 0: there was none */
	/* another program, at the keeper's own address */
	LINE_UPGRADE = 13, /* an fd of the program to go on with: LINE_SAID with the outcome */
	LINE_SAID = 14,	   /* value: 0 or an errno; text */
	/* daemon, unanswered, to a keeper that has LINE_RENEWS */
	LINE_RENEW = 15, /* text: the UUID of a GPU that works in no context of this process */
	LINE_TYPES
};

enum line_flags {
	LINE_BACKGROUND = 1, /* the terminal is to be left when ready */
	LINE_SYSLOG = 2,     /* it was left already */
	LINE_RENEWS = 4,     /* the keeper knows LINE_RENEW */
	LINE_STANDBY = 8,    /* another daemon serves, and will for long */
};

#define LINE_TEXT_BYTES 224

struct line_message {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t flags;
	uint32_t reserved; /* 0 */
	uint64_t id, value;
	char text[LINE_TEXT_BYTES]; /* ends with a NUL */
};

/* ends[0] and ends[1], both close-on-exec: 0 or -errno. */
int line_pair(int ends[2]);

/* Fills in what all messages have. */
struct line_message line_message(enum line_type type, uint64_t id);

/* 0 or -errno; -EPIPE where nobody is at the other end. fd: -1 for none; it stays the caller's. */
int line_send(int line, const struct line_message *message, int fd);
/* As line_send, but never waits for the other end: -EAGAIN. */
int line_offer(int line, const struct line_message *message, int fd);

/* Waits for a message: 0 with *fd the caller's or -1, -EPIPE at the end, -EPROTO where it is none.
 */
int line_receive(int line, struct line_message *message, int *fd);
/* As line_receive, but -EAGAIN where there is none. */
int line_poll(int line, struct line_message *message, int *fd);

#endif
