/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A thread with its own table of descriptors, in which vendor drivers run. A driver keeps about
 * twenty descriptors open, and the kernel removes a client's mappings when they are closed. In the
 * program's table they would take numbers that the program relies on; a program that closes all
 * descriptors, as daemons do, would go on with pointers to memory of other files. Mappings made by
 * the thread are those of the whole process. */
#ifndef CLIENT_CORE_DRIVER_THREAD_H
#define CLIENT_CORE_DRIVER_THREAD_H

#include <stdbool.h>

/* Starts the thread, once for each process, and tests that descriptors reach the thread. Gives 0,
 * or the -errno of a failed test (a sandbox), for the rest of the process's life. */
int client_driver_thread_start(void);

/* Runs work in the thread and gives its result. fd is a descriptor of the caller's table, or -1 for
 * none; work gets the number in the thread's table, and the thread closes that descriptor
 * afterwards. Calls are serialised. -ESRCH: the thread was not started in this process. Other
 * errors than those of work occur only with an fd. */
int client_driver_thread_call(int (*work)(int fd, void *argument), void *argument, int fd);

/* Whether the calling thread is the driver thread. The program does not know the numbers of its
 * descriptors. */
bool client_driver_thread_here(void);

/* Has drivers used in the thread, for a library in programs that do not know of the library. The
 * price: such a program cannot use the same driver itself later. The new thread calls began once;
 * NULL: nothing. Before any call that maps memory. */
void client_driver_thread_enable(void (*began)(void));

/* Whether client_driver_thread_enable was called. */
bool client_driver_thread_enabled(void);

#endif
