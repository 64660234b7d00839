/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sets how far the kernel reads ahead into the page cache: for mappings of files, and with
 * cache=auto and cache=always for read(2) too.
 *
 * With cache=none the kernel reads nothing ahead for read(2): a read that begins after a program on
 * the GPU, or a store through a mapping, has changed the bytes must return the change, and the
 * kernel would return its pages. The daemon itself reads ahead (fs/ahead), in files that no program
 * has mapped. A mapping has pages in the page cache anyway, and promises nothing about later
 * changes by a GPU. */
#ifndef FS_FUSE_READAHEAD_H
#define FS_FUSE_READAHEAD_H

#include <stdint.h>
#include <sys/types.h>

struct fs;

/* The wanted window, which the reply to INIT must allow. */
uint32_t readahead_bytes(const struct fs *fs);
/* After the mount, whose device number is device: raises the window if necessary and permitted, and
 * records the window in fs->can.readahead. */
void readahead_setup(struct fs *fs, dev_t device);

#endif
