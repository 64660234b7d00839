/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of host/ files with a shared-memory object that programs may still write without the
 * daemon's knowledge: by a mapping or descriptor that outlived the last handle and lease, or by a
 * lease for writing. Such files are charged by their size, which the programs may change. The
 * kernel sends no notice when a program gives up an object, so a periodic check asks whether a
 * program still has the object. */
#ifndef FS_TREE_HOST_OUT_H
#define FS_TREE_HOST_OUT_H

#include <pthread.h>

struct fs;
struct inode;

struct host_outs {
	pthread_mutex_t lock;
	struct host_out *first;
};

/* Makes an empty list: 0 or -ENOMEM. */
int host_outs_open(struct fs *fs);
void host_outs_close(struct fs *fs); /* after host_outs_end */
/* Call after a handle or lease has ended or a lease for writing has begun: corrects the charge, and
 * adds the file to the list if programs may still have the object. Under no lock. */
void host_out_update_accounting(struct fs *fs, struct inode *inode);
/* Checks a limited number of files in the list; called once a second. */
void host_outs_check(struct fs *fs);
/* Empties the list. */
void host_outs_end(struct fs *fs);

#endif
