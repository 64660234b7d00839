/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of host/ files with a shared-memory object that programs may still write without the
 * daemon's knowledge: by a mapping or descriptor that outlived the last handle and lease, or by a
 * lease for writing. Such files are charged by their size, which the programs may change.
 *
 * The kernel sends no notice when a program gives up an object, so a thread checks all listed files
 * twice a second. A removed file need not wait for that thread: with the last mapping the kernel
 * forgets the inode, so the list has the inode's number and no reference. Only a descriptor that a
 * lease gave away keeps nothing in the kernel: an inode that was leased is listed with a reference.
 */
#ifndef FS_HOLDERS_HOST_OUT_H
#define FS_HOLDERS_HOST_OUT_H

#include <pthread.h>
#include <stdbool.h>

#include "common/background.h"

struct fs;
struct inode;

/* How the list knows an inode; ascending. */
enum host_listing { HOST_NOT_LISTED, HOST_LISTED_NUMBER, HOST_LISTED_REFERENCE };

struct host_outs {
	pthread_mutex_t lock;
	struct host_out *first;
	bool checking; /* the thread is at work, and needs no wake-up for a new entry */
	struct background background;
};

/* Makes an empty list: 0 or -ENOMEM. */
int host_outs_open(struct fs *fs);
void host_outs_close(struct fs *fs); /* after host_outs_end */
/* Starts the thread: 0 or -errno. */
int host_outs_start(struct fs *fs);
/* Ends the thread and empties the list. */
void host_outs_end(struct fs *fs);
/* Call after a handle or lease has ended or a lease for writing has begun: corrects the charge, and
 * adds the file to the list if programs may still have the object. Under no lock. */
void host_out_update_accounting(struct fs *fs, struct inode *inode);

#endif
