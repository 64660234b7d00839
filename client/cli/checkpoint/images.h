/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The directory with the images of a process. The images have all memory of the process, and are a
 * program that will run with the rights of this user. The functions give an exit status; an error
 * was reported. */
#ifndef CLIENT_CLI_CHECKPOINT_IMAGES_H
#define CLIENT_CLI_CHECKPOINT_IMAGES_H

#include <sys/types.h>

#include "client/cli/core/private_dir.h"

#define IMAGES_PID "gpumem.pid"

/* Makes the directory, for this user alone. */
int images_make(const char *path, struct private_dir *images);
/* Opens a directory that this user has made, and checks its files. */
int images_open(const char *path, struct private_dir *images);
/* The number of the process that was started, in the file IMAGES_PID. */
int images_read_pid(const struct private_dir *images, pid_t *pid);

#endif
