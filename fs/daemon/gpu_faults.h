/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Handles failures of GPUs: after backend/reset.h has recovered a GPU, logs the files whose memory
 * was lost; if the GPU cannot be recovered, asks the keeper for another daemon. */
#ifndef FS_DAEMON_GPU_FAULTS_H
#define FS_DAEMON_GPU_FAULTS_H

struct fs;

/* Watches for failed GPUs while requests are served. Without the watch a failed GPU stays
 * failed. Gives 0. */
int gpu_faults_start(struct fs *fs);
/* Tests the GPU for which this daemon replaces another (fdstore_wanted), before gpu_faults_start:
 * 0, or -errno after a line in the log. */
int gpu_faults_test(struct fs *fs);
void gpu_faults_end(struct fs *fs);

#endif
