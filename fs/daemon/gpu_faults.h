/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* GPUs that fail: that somebody brings them back (backend/reset.h), and who loses what by it. */
#ifndef FS_DAEMON_GPU_FAULTS_H
#define FS_DAEMON_GPU_FAULTS_H

struct fs;

/* While requests are served. Without it GPUs that fail stay so. */
void gpu_faults_start(struct fs *fs);
/* Before that: whether the GPU that this daemon was started for (fdstore_wanted) works: 0, or
 * -errno after a line in the log. */
int gpu_faults_test(struct fs *fs);
void gpu_faults_end(struct fs *fs);

#endif
