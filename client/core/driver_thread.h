/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A thread with a table of descriptors of its own, for drivers. A driver keeps some twenty
 * descriptors open, and the kernel takes the mappings of a client back when they are closed: in the
 * program's table they would take numbers that it counts on, and a program that closes everything,
 * as daemons do, would go on with pointers to memory that is somebody else's. What the thread maps
 * is mapped for the whole process. */
#ifndef CLIENT_CORE_DRIVER_THREAD_H
#define CLIENT_CORE_DRIVER_THREAD_H

#include <stdbool.h>

/* Starts the thread, once per process, and tries that descriptors reach it: 0, or -errno where they
 * do not (a sandbox), then and ever after. */
int client_driver_thread_start(void);

/* Has the thread do work and gives what it returns. fd, a descriptor of the caller's table, is
 * another number there, and closed after the work; -1: none. The calls are one after the other.
 * -ESRCH: the thread was not started in this process; other errors of its own only with an fd. */
int client_driver_thread_call(int (*work)(int fd, void *argument), void *argument, int fd);

/* Whether the calling thread is that thread: the numbers of its descriptors mean nothing to the
 * program. */
bool client_driver_thread_here(void);

/* Has drivers used in the thread, for a library in programs that do not know of the library. The
 * price: such a program cannot use the same driver itself later. The new thread calls began once;
 * NULL: nothing. Before any call that maps memory. */
void client_driver_thread_enable(void (*began)(void));

/* Whether client_driver_thread_enable was called. */
bool client_driver_thread_enabled(void);

#endif
