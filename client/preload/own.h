/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The descriptors that this library keeps in the program's table. They are moved up, out of the way
 * of programs that count on the lowest number, and the program's close does not reach them: to it
 * they are not open. */
#ifndef CLIENT_PRELOAD_OWN_H
#define CLIENT_PRELOAD_OWN_H

#include <pthread.h>
#include <stdbool.h>

/* One more than the highest descriptor that is looked at; others are the kernel's alone. */
#define DESCRIPTORS_MAX 65536

/* More than 0: this thread is in the library, and its calls are not the program's. */
extern _Thread_local int own_inside __attribute__((tls_model("initial-exec")));

/* A thread is not cancelled while it holds locks of ours. */
static inline int own_enter(void)
{
	int cancelling;

	own_inside++;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
	return cancelling;
}

static inline void own_leave(const int *cancelling)
{
	int unused;

	pthread_setcancelstate(*cancelling, &unused);
	own_inside--;
}

/* To the end of the scope. */
#define INSIDE() int inside_ __attribute__((cleanup(own_leave), unused)) = own_enter()

/* fd becomes ours, possibly under another number, which is returned; -1 stays -1. */
int own_adopt(int fd);
/* A duplicate of the program's fd that is ours, or -1. */
int own_copy(int fd);
bool own_is(int fd);
void own_forget(int fd);
/* The first of ours in [first, last], or last + 1. */
unsigned own_next(unsigned first, unsigned last);

/* The calling thread works for the library for as long as it lives. */
void own_thread_began(void);

/* The process that the state in memory belongs to: a child of vfork sees its parent's. */
bool own_process(void);
void own_process_is_this(void);

#endif
