/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A directory whose files will run with the rights of this user: no other user may change the
 * files, nor replace the directory. The functions give an exit status; an error was reported. */
#ifndef CLIENT_CLI_CORE_PRIVATE_DIR_H
#define CLIENT_CLI_CORE_PRIVATE_DIR_H

#include <sys/stat.h>

/* The bits of a mode that let other users write. */
#define PRIVATE_DIR_WRITERS (S_IWGRP | S_IWOTH)

struct private_dir {
	int parent, fd;	  /* the directory above, and the directory */
	char *path;	  /* absolute, without links; no other user can make it another directory */
	const char *name; /* in path */
};

/* danger: the harm that other users could do otherwise, for the error. */
/* Makes the directory, for this user alone. */
int private_dir_make(const char *path, const char *danger, struct private_dir *dir);
/* Opens a directory that this user has made. */
int private_dir_open(const char *path, const char *danger, struct private_dir *dir);
/* Opens such a directory, and makes the directory before if there is none. */
int private_dir_need(const char *path, const char *danger, struct private_dir *dir);
/* Removes the directory, if it is empty. */
void private_dir_remove(const struct private_dir *dir);
void private_dir_close(struct private_dir *dir);
#define AUTO_PRIVATE_DIR __attribute__((cleanup(private_dir_close)))
#define PRIVATE_DIR_NONE                                                                           \
	{                                                                                          \
		.parent = -1, .fd = -1                                                             \
	}

#endif
