/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A thread for each mount that listens to the daemon's recalls of read delegations. */
#ifndef CLIENT_PRELOAD_RECALL_H
#define CLIENT_PRELOAD_RECALL_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the delegations of an inode (0: of all inodes) of a device (struct slot_identity). Called by
 * a thread of recall.c, without locks. */
void recall_start(void (*recalled)(uint64_t device, uint64_t inode));

/* Listens to the daemon of the mount of fd, which has that device number, from now on: false if
 * that is not possible. Leases that are taken after true may have delegations. The calling thread
 * is in the library. */
bool recall_listen(int fd, uint64_t device);

/* In a child of fork(2), which has no delegations. */
void recall_forked(void);

#endif
