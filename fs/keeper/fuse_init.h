/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stores FUSE's INIT message, by which kernel and daemon agree on features once per mount, in
 * memory that outlives a daemon. A later daemon gives libfuse the same question and must get the
 * same answer, without another message to the kernel. */
#ifndef FS_KEEPER_FUSE_INIT_H
#define FS_KEEPER_FUSE_INIT_H

#include <stdint.h>
#include <sys/types.h>

struct fuse_init;
struct fuse_session;
struct fdstore;

/* Opens the mount's record, or makes the first and has the keeper hold its memory: 0, or -errno
 * after a line in the log. */
int fuse_init_open(struct fdstore *fdstore, struct fuse_init **fuse_init);
/* fuse_init may be NULL. */
void fuse_init_close(struct fuse_init *fuse_init);

/* Waits on /dev/fuse for the kernel's INIT message and stores the message: 0, or -errno after a
 * line in the log. */
int fuse_init_ask(struct fuse_init *fuse_init, int fuse);
/* Has libfuse answer the stored INIT message. The first answer is stored; the answer in a later
 * daemon must be the same, because the kernel goes by the first. The session is on a socket instead
 * of a mount until fuse_init_answer puts it on /dev/fuse. 0, or -errno after a line in the log. */
int fuse_init_replay(struct fuse_init *fuse_init, struct fuse_session *fuse);
/* Puts the session on /dev/fuse, sends the kernel the stored answer (the kernel ignores a second
 * answer), and has the kernel resend the requests that an earlier daemon had read: 0, or -errno
 * after a line in the log. */
int fuse_init_answer(struct fuse_init *fuse_init, struct fuse_session *session, int fuse);

/* Has the kernel resend all requests read by earlier daemons, whose threads must all have ended. 0
 * or -errno. */
int fuse_init_ask_again(int fuse);

/* The generation of the mount's latest daemon (fdstore_generation), in the record; 0: unknown. fd:
 * the record's memory, or -1. */
void fuse_init_set_generation(struct fuse_init *fuse_init, uint64_t generation);
uint64_t fuse_init_generation_of(int fd);

/* The mount's device number, in the record; 0: unknown. fd: the record's memory, or -1. */
void fuse_init_set_device(struct fuse_init *fuse_init, dev_t device);
dev_t fuse_init_device(const struct fuse_init *fuse_init);
dev_t fuse_init_device_of(int fd);

#endif
