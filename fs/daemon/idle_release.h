/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Returns memory when the daemon is idle. If a GPU has had no files for some time, the daemon gives
 * back its other memory on the GPU: a CUDA context of 517 MiB, a Vulkan device, and 2 MiB for the
 * next small file. After many names were removed, the heap returns memory to the system. */
#ifndef FS_DAEMON_IDLE_RELEASE_H
#define FS_DAEMON_IDLE_RELEASE_H

struct fs;

/* Starts the thread that checks the GPUs: 0 or -ENOMEM. If the thread cannot be started, a line in
 * the log says so, and GPUs keep their contexts. For tests the environment variable
 * GPUMEMFS_IDLE_MS sets the time in milliseconds. */
int idle_release_open(struct fs *fs);
void idle_release_close(struct fs *fs);

#endif
