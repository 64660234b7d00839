/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The descriptors that this library keeps in the program's table. The library moves its descriptors
 * to high numbers, because programs count on getting the lowest one, and hides them: the program's
 * close(2) gives EBADF for them. */
#ifndef CLIENT_PRELOAD_CORE_OWN_H
#define CLIENT_PRELOAD_CORE_OWN_H

#include <pthread.h>
#include <stdbool.h>

/* Descriptors from this number on are not tracked: the kernel alone serves them. */
#define DESCRIPTORS_MAX 65536

/* More than 0: this thread is in the library, and its calls are not the program's. */
extern _Thread_local int own_inside __attribute__((tls_model("initial-exec")));

/* A thread is not cancelled while it holds the library's locks. */
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

/* From here to the end of the scope. */
#define INSIDE() int inside_ __attribute__((cleanup(own_leave), unused)) = own_enter()

/* Makes fd the library's, usually under a higher number, which is returned; -1 stays -1. */
int own_adopt(int fd);
/* A duplicate of the program's fd that is the library's, or -1. */
int own_copy(int fd);
bool own_is(int fd);
void own_forget(int fd);
/* The first descriptor of the library in [first, last], or last + 1. */
unsigned own_next(unsigned first, unsigned last);

/* Marks the calling thread as the library's for its whole life. */
void own_thread_began(void);

/* Whether the state in memory belongs to this process: a child of vfork sees its parent's. */
bool own_process(void);
void own_process_is_this(void);

#endif
