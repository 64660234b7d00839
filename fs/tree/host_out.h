/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files of host/ whose object programs have, mapped or by a descriptor, after the last handle and
 * lease, and those that are leased for writing: they are charged by their size, which the programs
 * may change, until a look finds no program that has the object. Nothing tells when. */
#ifndef FS_TREE_HOST_OUT_H
#define FS_TREE_HOST_OUT_H

#include <pthread.h>

struct fs;
struct inode;

struct host_outs {
	pthread_mutex_t lock;
	struct host_out *first;
};

/* An empty list: 0 or -ENOMEM. */
int host_outs_open(struct fs *fs);
void host_outs_close(struct fs *fs); /* host_outs_end was called */
/* After a handle or a lease has ended, or a lease for writing begun, under no lock: sets the charge
 * right, now or later. */
void host_out_update_accounting(struct fs *fs, struct inode *inode);
/* Looks at some of them, once a second. */
void host_outs_check(struct fs *fs);
/* Looks at none any more. */
void host_outs_end(struct fs *fs);

#endif
