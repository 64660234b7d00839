/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What belongs to the process: every call passes a gate that fork(2) closes, so that a child never
 * finds a lock held or a list half written. */
#ifndef CLIENT_CORE_PROCESS_H
#define CLIENT_CORE_PROCESS_H

/* Around every call of the API. A fork by the same thread in between (libcuda and libvulkan may
 * start programs) passes; what it leaves to the child is good for exec alone. */
void client_enter(void);
void client_leave(void);
/* The calling thread works for one that has passed the gate: its forks pass. */
void client_inside(void);

static inline void client_leave_scope(const int *entered)
{
	(void)entered;
	client_leave();
}

#define CLIENT_CALL()                                                                              \
	int entered_ __attribute__((cleanup(client_leave_scope), unused)) = (client_enter(), 0)

/* What a child of fork does with what its parent had, before anything else of it runs: file.c,
 * connection.c, bar.c and service.c. */
void client_files_forked(void);
void client_connections_forked(void);
void client_bar_forked(void);
void client_driver_thread_forked(void);

#endif
