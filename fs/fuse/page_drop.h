/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The thread of session_drop_pages. Frees the pages that the kernel has of a file, after the last
 * handle and mapping of the file are closed. A mapping fills pages, which no later program can use:
 * without a cache the kernel drops all pages of a file when a program opens or maps the file. On
 * the reference machine that program waits 0.5 to 0.8 s for the pages of 8 GiB. */
#ifndef FS_FUSE_PAGE_DROP_H
#define FS_FUSE_PAGE_DROP_H

#include <pthread.h>

#include "common/background.h"

struct inode;
struct session;

/* Of more files the pages stay until the kernel needs memory. */
#define PAGE_DROP_FILES 64

/* Without a thread all pages stay. */
struct page_drop {
	struct background background;
	pthread_mutex_t lock;
	struct inode *inodes[PAGE_DROP_FILES]; /* with a reference each; lock */
	unsigned n_inodes;		       /* lock */
	bool stopping;			       /* lock */
};

/* Starts the thread if the mount has cache=none. Before any request is served. */
void page_drop_start(struct session *session);
/* To be called while requests are served, or after the end of the mount. */
void page_drop_stop(struct session *session);

#endif
