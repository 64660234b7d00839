/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a mount's first daemon and the kernel agreed on (FUSE's INIT, once per mount) in memory that
 * the keeper holds: later daemons take part in it without a word to the kernel, or not at all. */
#ifndef FS_KEEPER_FUSE_INIT_H
#define FS_KEEPER_FUSE_INIT_H

#include <stdint.h>
#include <sys/types.h>

struct agreement;
struct fuse_session;
struct keep;

/* The mount's, or a new one, which is held from then on: 0, or -errno after a line in the log. */
int agreement_open(struct keep *keep, struct agreement **agreement);
/* NULL is fine. */
void agreement_close(struct agreement *agreement);

/* Waits on /dev/fuse for what the kernel says first, and notes it: 0, or -errno after a line in the
 * log. */
int agreement_ask(struct agreement *agreement, int fuse);
/* Has libfuse agree. Its answer is noted if it is the first, and else must be the same: the kernel
 * goes by the first. The session, which is on no mount, is left on a socket; agreement_answer puts
 * it on /dev/fuse. 0, or -errno after a line in the log. */
int agreement_greet(struct agreement *agreement, struct fuse_session *fuse);
/* Tells the kernel, to which it is news only once, and has it ask again what it asked of a daemon
 * that is gone. */
int agreement_answer(struct agreement *agreement, struct fuse_session *session, int fuse);

/* Has the kernel ask again what it asked of a daemon of which nothing is left that could answer: 0
 * or -errno. */
int agreement_ask_again(int fuse);

/* Which daemon of the mount is the latest: what keep_turn says. 0: not known. */
void agreement_set_turn(struct agreement *agreement, uint64_t turn);
uint64_t agreement_turn_of(int fd);

/* The mount's device number; 0: not known. fd: what is held of an agreement, or -1. */
void agreement_set_device(struct agreement *agreement, dev_t device);
dev_t agreement_device(const struct agreement *agreement);
dev_t agreement_device_of(int fd);

#endif
