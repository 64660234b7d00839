/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a mount's first daemon and the kernel agreed on (FUSE's INIT, once per mount) in memory that
 * the keeper holds: later daemons take part in it without a word to the kernel, or not at all. */
#ifndef FS_KEEPER_FUSE_INIT_H
#define FS_KEEPER_FUSE_INIT_H

#include <stdint.h>
#include <sys/types.h>

struct fuse_init;
struct fuse_session;
struct fdstore;

/* The mount's, or a new one, which is held from then on: 0, or -errno after a line in the log. */
int fuse_init_open(struct fdstore *fdstore, struct fuse_init **fuse_init);
/* NULL is fine. */
void fuse_init_close(struct fuse_init *fuse_init);

/* Waits on /dev/fuse for what the kernel says first, and notes it: 0, or -errno after a line in the
 * log. */
int fuse_init_ask(struct fuse_init *fuse_init, int fuse);
/* Has libfuse agree. Its answer is noted if it is the first, and else must be the same: the kernel
 * goes by the first. The session, which is on no mount, is left on a socket; fuse_init_answer puts
 * it on /dev/fuse. 0, or -errno after a line in the log. */
int fuse_init_replay(struct fuse_init *fuse_init, struct fuse_session *fuse);
/* Tells the kernel, to which it is news only once, and has it ask again what it asked of a daemon
 * that is gone. */
int fuse_init_answer(struct fuse_init *fuse_init, struct fuse_session *session, int fuse);

/* Has the kernel ask again what it asked of a daemon of which nothing is left that could answer: 0
 * or -errno. */
int fuse_init_ask_again(int fuse);

/* Which daemon of the mount is the latest: what fdstore_generation says. 0: not known. */
void fuse_init_set_generation(struct fuse_init *fuse_init, uint64_t turn);
uint64_t fuse_init_generation_of(int fd);

/* The mount's device number; 0: not known. fd: what is held of an agreement, or -1. */
void fuse_init_set_device(struct fuse_init *fuse_init, dev_t device);
dev_t fuse_init_device(const struct fuse_init *fuse_init);
dev_t fuse_init_device_of(int fd);

#endif
