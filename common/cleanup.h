/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Cleanup attributes: a scope gives back its memory, descriptors and locks on every way out. */
#ifndef COMMON_CLEANUP_H
#define COMMON_CLEANUP_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void defer_free(void *p)
{
	free(*(void **)p);
}

static inline void defer_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void defer_fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

static inline void defer_unlock(pthread_mutex_t **mutex)
{
	if (*mutex)
		pthread_mutex_unlock(*mutex);
}

#define AUTO_FREE   __attribute__((cleanup(defer_free)))
#define AUTO_CLOSE  __attribute__((cleanup(defer_close)))
#define AUTO_FCLOSE __attribute__((cleanup(defer_fclose)))

#define DEFER_NAME_(a, b) a##b
#define DEFER_NAME(a, b)  DEFER_NAME_(a, b)

static inline pthread_mutex_t *defer_lock(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	return mutex;
}

/* Holds the mutex to the end of the enclosing scope. */
#define scoped_lock(mutex)                                                                         \
	pthread_mutex_t *DEFER_NAME(locked_, __LINE__)                                             \
	    __attribute__((cleanup(defer_unlock), unused)) = defer_lock(mutex)

#endif
