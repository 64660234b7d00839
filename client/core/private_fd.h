/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Threads with a table of descriptors of their own. */
#ifndef CLIENT_CORE_PRIVATE_FD_H
#define CLIENT_CORE_PRIVATE_FD_H

#include <pthread.h>

/* Opening a file again without harm to the program's locks. Closing a file drops all fcntl locks
 * that the process has on it; they go by the table of descriptors, and so the file is opened and
 * closed by a thread with a table of its own.
 *
 * Opens the file of a descriptor again with flags, and gives what work makes of it: 0 or -errno.
 * -EPERM where the process may not have a second table (a sandbox). work may not leave a descriptor
 * behind: it is closed with the thread. */
int client_private_fd(int fd, int flags, int (*work)(int again, void *argument), void *argument);

/* Gives the calling thread a table of its own, without the descriptors from a number on: 0 or
 * -errno. CLIENT_PRIVATE_FD_ALL: with all of them. */
#define CLIENT_PRIVATE_FD_ALL 0x7fffffffU
int client_private_fd_table(unsigned from);

/* A thread that gets none of the program's signals: 0 or -errno. */
int client_private_fd_thread(pthread_t *thread, void *(*begin)(void *argument), void *argument);

#endif
