/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* State of the process across fork(2). Every call of the library passes a gate, which fork(2)
 * closes: a child never finds a lock held or a list half written. A fork waits at most a second for
 * the calls of other threads. If such a call lasts longer, the child may only call exec. */
#ifndef CLIENT_CORE_PROCESS_H
#define CLIENT_CORE_PROCESS_H

#include <stdbool.h>

/* Around every call of the API. Between the two, a fork by the same thread passes the gate (libcuda
 * and libvulkan may start programs); the child of such a fork may only call exec. */
void client_enter(void);
void client_leave(void);
/* Marks the calling thread as a helper of a thread inside the gate: forks by the helper pass. */
void client_inside(void);

static inline void client_leave_scope(const int *entered)
{
	(void)entered;
	client_leave();
}

#define CLIENT_CALL()                                                                              \
	int entered_ __attribute__((cleanup(client_leave_scope), unused)) = (client_enter(), 0)

/* A module's work in a child of fork(2), on the state that the child has inherited, before any
 * other call of the child. */
struct client_fork_handler {
	void (*forked)(void);
	struct client_fork_handler *next;
	bool registered;
};

/* Makes the handlers of this library the first that a later fork(2) calls: to be called after a
 * driver's library was loaded. glibc calls the handlers in reverse order of their registration, and
 * the NVIDIA driver's handlers take locks of the driver. A fork that waited for the gate under
 * these locks would wait for ever for a thread inside the gate that calls the driver. Each call
 * stays registered for good, so call this a bounded number of times. */
void client_fork_go_first(void);

/* Calls around those of the gate: before it is closed, and after it is open again. For the preload
 * library, before other threads exist. */
struct client_fork_calls {
	void (*before)(void);
	void (*in_parent)(void);
	void (*in_child)(void);
};
void client_fork_surround(const struct client_fork_calls *calls);

/* Has the handler called in each child from now on. A module calls this before it makes the first
 * state that a child must not use; each further call has no effect. */
void client_fork_handler_register(struct client_fork_handler *handler);

#endif
