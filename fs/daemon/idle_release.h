/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What nobody uses goes back. GPUs without files rest: what the daemon holds on them beside files
 * (a CUDA context of 517 MiB, a Vulkan device, 2 MiB for the next small file) goes back when no
 * file was there for a while. And memory of the host that names took goes back after many of them
 * were removed. */
#ifndef FS_DAEMON_IDLE_RELEASE_H
#define FS_DAEMON_IDLE_RELEASE_H

struct fs;

/* Starts the thread that looks after them; without it they never rest. The environment's
 * GPUMEMFS_REST_MS, for tests, says after how many milliseconds. */
/* 0 or -ENOMEM. Without a thread, which is logged, GPUs keep their contexts. */
int idle_release_open(struct fs *fs);
void idle_release_close(struct fs *fs);

#endif
