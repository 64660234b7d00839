/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The directory with the images of a process. The images have all memory of the process, and are a
 * program that will run with the rights of this user: no other user may read or change the images,
 * nor replace the directory. The functions give an exit status; an
 * error was reported. */
#ifndef CLIENT_CLI_CHECKPOINT_IMAGES_H
#define CLIENT_CLI_CHECKPOINT_IMAGES_H

#include <sys/types.h>

#define IMAGES_PID "gpumem.pid"

struct images {
	int parent, fd;	  /* the directory above, and the directory */
	char *path;	  /* absolute, without links; no other user can make it another directory */
	const char *name; /* in path */
};

/* Makes the directory, for this user alone. */
int images_make(const char *path, struct images *images);
/* Removes the directory, if it is empty. */
void images_remove(const struct images *images);
/* Opens a directory that this user has made, and checks its files. */
int images_open(const char *path, struct images *images);
/* The number of the process that was started, in the file IMAGES_PID. */
int images_read_pid(const struct images *images, pid_t *pid);
void images_close(struct images *images);
#define AUTO_IMAGES __attribute__((cleanup(images_close)))
#define IMAGES_NONE                                                                                \
	{                                                                                          \
		.parent = -1, .fd = -1                                                             \
	}

#endif
