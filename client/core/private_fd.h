/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Threads with a private table of descriptors. */
#ifndef CLIENT_CORE_PRIVATE_FD_H
#define CLIENT_CORE_PRIVATE_FD_H

#include <pthread.h>

/* Opens the file of fd again with flags, calls work with the new descriptor, and gives the result
 * of work: 0 or -errno. -EPERM: the process may not have a second table (a sandbox). The new
 * descriptor is in the table of a private thread: closing a file drops all fcntl(2) locks that the
 * process has on the file through the same table, and the program's locks must stay. work must not
 * leave a descriptor behind; the table ends with the thread. */
int client_private_fd(int fd, int flags, int (*work)(int reopened_fd, void *argument),
		      void *argument);

/* Gives the calling thread a table of its own, without the descriptors from a number on.
 * CLIENT_PRIVATE_FD_ALL: with all descriptors. 0 or -errno. */
#define CLIENT_PRIVATE_FD_ALL 0x7fffffffU
int client_private_fd_table(unsigned from);

/* Creates a thread with all signals blocked: 0 or -errno. */
int client_private_fd_thread(pthread_t *thread, void *(*begin)(void *argument), void *argument);

#endif
