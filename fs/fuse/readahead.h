/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How far the kernel reads ahead into the page cache, where the mount uses it (cache=auto, always).
 *
 * Files of cache=none are not read ahead at all, neither by the kernel nor by the daemon, though
 * one reader of such a file has one DMA in flight at a time: bytes fetched before they are asked
 * for can be overtaken by a kernel that runs on the GPU or a store through a mapping, which nobody
 * tells the daemon of, and a read that begins after such a write must see it. Who wants one fast
 * stream asks with larger reads, with several threads or with io_uring, or mounts with a cache. */
#ifndef FS_FUSE_READAHEAD_H
#define FS_FUSE_READAHEAD_H

#include <stdint.h>
#include <sys/types.h>

struct fs;

/* How far the kernel is to read ahead, which INIT's answer must allow. */
uint32_t readahead_bytes(const struct fs *fs);
/* Once the mount, device, is there: raises the window if need be and if the daemon may, and notes
 * in fs->can.readahead what it is. */
void readahead_setup(struct fs *fs, dev_t device);

#endif
