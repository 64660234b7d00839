/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A call of the daemon's code fails: an allocation of memory, or a system call for memory,
 * descriptors, threads or events. The linker sends these calls to the functions here (--wrap; the
 * list is in the Makefile). Only calls by a thread between inject_begin and inject_end count.
 * Blocks that were allocated are remembered with the place of the call, to find leaks. */
#ifndef TESTS_UNIT_FAILURES_INJECT_H
#define TESTS_UNIT_FAILURES_INJECT_H

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The calls that fail: allocations, system calls, or calls of the driver; INJECT_KILL: the daemon
 * ends after a store to its journal. */
enum inject_kind { INJECT_NONE, INJECT_MEMORY, INJECT_SYSTEM, INJECT_DRIVER, INJECT_KILL };

#define INJECT_FRAMES 32

struct inject_trace {
	const char *function;
	void *frames[INJECT_FRAMES];
	int n;
};

static struct {
	enum inject_kind kind;
	uint64_t target; /* the number of the call that fails, from 1; 0: none */
	bool lasting;	 /* and all later calls until inject_end */
	uint64_t calls;	 /* so far */
	bool fired;	 /* since inject_begin */
	struct inject_trace trace;
} inject;

static _Thread_local bool inject_counts;

static inline void inject_begin(void)
{
	inject.fired = false;
	inject_counts = true;
}

/* Whether a call has failed. */
static inline bool inject_end(void)
{
	inject_counts = false;
	if (inject.fired)
		inject.target = 0;
	return inject.fired;
}

static inline bool inject_fails(enum inject_kind kind, const char *function)
{
	if (!inject_counts || kind != inject.kind)
		return false;
	inject.calls++;
	if (!inject.target || inject.calls < inject.target ||
	    (inject.calls > inject.target && !inject.lasting))
		return false;
	if (!inject.fired) {
		inject_counts = false; /* backtrace allocates at its first call */
		inject.trace.function = function;
		inject.trace.n = backtrace(inject.trace.frames, INJECT_FRAMES);
		inject_counts = true;
	}
	inject.fired = true;
	return true;
}

/* The stand-in for the driver asks for each of its calls. Calls that give something back do not
 * fail. */
bool standin_refuses(const char *function);
bool standin_refuses(const char *function)
{
	static const char *const takes[] = {
	    "cuMemCreate", "cuMemAddressReserve", "cuMemMap",	   "cuMemSetAccess",
	    "cuMemExport", "cuMemImport",	  "cuMemHost",	   "cuMemcpy",
	    "cuMemsetD",   "cuStreamCreate",	  "cuEventCreate", "cuDevicePrimaryCtxRetain"};

	for (unsigned i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
		if (!strncmp(function, takes[i], strlen(takes[i])) && !strstr(function, "Unreg"))
			return inject_fails(INJECT_DRIVER, function);
	return false;
}

#define BLOCKS_MAX (1U << 17) /* a power of two, far above the blocks of a scenario */

struct block {
	void *memory; /* NULL: never used; BLOCK_FREED: used before */
	void *place;
};

#define BLOCK_FREED ((void *)1)

static struct block blocks[BLOCKS_MAX];
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

/* The entry of memory or, for memory NULL, an entry that is free. NULL: no such entry. */
static inline struct block *block_find(const void *memory, const void *near)
{
	unsigned at = (unsigned)((uintptr_t)near >> 4) * 2654435761U;

	for (unsigned tries = 0; tries < BLOCKS_MAX; tries++) {
		struct block *block = &blocks[at++ % BLOCKS_MAX];

		if (memory ? block->memory == memory : block->memory <= BLOCK_FREED)
			return block;
		if (!block->memory)
			return NULL;
	}
	return NULL;
}

static inline void *block_add(void *memory, void *place)
{
	if (!memory)
		return NULL;
	pthread_mutex_lock(&blocks_lock);
	struct block *block = block_find(NULL, memory);

	if (!block)
		abort();
	*block = (struct block){memory, place};
	pthread_mutex_unlock(&blocks_lock);
	return memory;
}

/* Blocks of functions without a wrapper are not known. */
static inline void block_remove(const void *memory)
{
	pthread_mutex_lock(&blocks_lock);
	struct block *block = block_find(memory, memory);

	if (block)
		block->memory = BLOCK_FREED;
	pthread_mutex_unlock(&blocks_lock);
}

#define CALLER __builtin_return_address(0)

/* INJECT(kind, errno, result, name, types and names of the parameters, their names): the wrapper of
 * a function that fails with errno. */
#define INJECT(kind, error, result, type, name, parameters, arguments)                             \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (!inject_fails(kind, #name))                                                    \
			return __real_##name arguments;                                            \
		errno = error;                                                                     \
		return result;                                                                     \
	}

/* The same for a function that returns memory. */
#define INJECT_BLOCK(name, parameters, arguments)                                                  \
	void *__real_##name parameters;                                                            \
	void *__wrap_##name parameters;                                                            \
	void *__wrap_##name parameters                                                             \
	{                                                                                          \
		if (!inject_fails(INJECT_MEMORY, #name))                                           \
			return block_add(__real_##name arguments, CALLER);                         \
		errno = ENOMEM;                                                                    \
		return NULL;                                                                       \
	}

INJECT_BLOCK(malloc, (size_t bytes), (bytes))
INJECT_BLOCK(calloc, (size_t n, size_t bytes), (n, bytes))
INJECT_BLOCK(aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
INJECT_BLOCK(strdup, (const char *text), (text))
INJECT_BLOCK(strndup, (const char *text, size_t bytes), (text, bytes))

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
	if (inject_fails(INJECT_MEMORY, "realloc")) {
		errno = ENOMEM;
		return NULL;
	}
	block_remove(memory);
	void *grown = __real_realloc(memory, bytes);

	return block_add(grown ? grown : memory, CALLER) == grown ? grown : NULL;
}

void *__real_reallocarray(void *memory, size_t n, size_t bytes);
void *__wrap_reallocarray(void *memory, size_t n, size_t bytes);
void *__wrap_reallocarray(void *memory, size_t n, size_t bytes)
{
	return __wrap_realloc(memory, n * bytes);
}

void __real_free(void *memory);
void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
	if (memory)
		block_remove(memory);
	__real_free(memory);
}

static inline int inject_vasprintf(char **text, const char *format, va_list arguments, void *place)
{
	if (inject_fails(INJECT_MEMORY, "asprintf")) {
		*text = NULL;
		errno = ENOMEM;
		return -1;
	}
	int length = vasprintf(text, format, arguments);

	if (length >= 0)
		block_add(*text, place);
	return length;
}

int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_asprintf(char **text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int length = inject_vasprintf(text, format, arguments, CALLER);

	va_end(arguments);
	return length;
}

int __wrap___asprintf_chk(char **text, int flag, const char *format, ...);
int __wrap___asprintf_chk(char **text, int flag, const char *format, ...)
{
	va_list arguments;

	(void)flag;
	va_start(arguments, format);
	int length = inject_vasprintf(text, format, arguments, CALLER);

	va_end(arguments);
	return length;
}

INJECT(INJECT_MEMORY, ENOMEM, NULL, FILE *, open_memstream, (char **text, size_t *bytes),
       (text, bytes))

INJECT(INJECT_SYSTEM, ENOMEM, MAP_FAILED, void *, mmap,
       (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
       (at, bytes, protection, flags, fd, offset))
INJECT(INJECT_SYSTEM, EMFILE, -1, int, memfd_create, (const char *name, unsigned flags),
       (name, flags))
INJECT(INJECT_SYSTEM, ENOSPC, -1, int, ftruncate, (int fd, off_t bytes), (fd, bytes))
INJECT(INJECT_SYSTEM, ENOSPC, -1, int, fallocate, (int fd, int mode, off_t offset, off_t bytes),
       (fd, mode, offset, bytes))
INJECT(INJECT_SYSTEM, ENOSPC, -1, ssize_t, pwrite,
       (int fd, const void *from, size_t bytes, off_t offset), (fd, from, bytes, offset))
INJECT(INJECT_SYSTEM, ENOBUFS, -1, ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags),
       (fd, msg, flags))
INJECT(INJECT_SYSTEM, EMFILE, -1, int, epoll_create1, (int flags), (flags))
INJECT(INJECT_SYSTEM, EMFILE, -1, int, eventfd, (unsigned value, int flags), (value, flags))
INJECT(INJECT_SYSTEM, EMFILE, NULL, FILE *, fopen, (const char *path, const char *mode),
       (path, mode))
INJECT(INJECT_SYSTEM, ENOMEM, -1, int, madvise, (void *at, size_t bytes, int advice),
       (at, bytes, advice))
INJECT(INJECT_SYSTEM, ENOMEM, EAGAIN, int, pthread_create,
       (pthread_t * thread, const pthread_attr_t *how, void *(*begin)(void *), void *argument),
       (thread, how, begin, argument))

/* Only calls that take memory: the others cannot fail for a descriptor that is watched. */
int __real_epoll_ctl(int epoll, int how, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int how, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int how, int fd, struct epoll_event *event)
{
	if (how != EPOLL_CTL_ADD || !inject_fails(INJECT_SYSTEM, "epoll_ctl"))
		return __real_epoll_ctl(epoll, how, fd, event);
	errno = ENOSPC;
	return -1;
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	va_list arguments;

	va_start(arguments, command);
	long argument = va_arg(arguments, long);

	va_end(arguments);
	if (command != F_DUPFD_CLOEXEC || !inject_fails(INJECT_SYSTEM, "fcntl"))
		return __real_fcntl(fd, command, argument);
	errno = EMFILE;
	return -1;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	unsigned mode = va_arg(arguments, unsigned);

	va_end(arguments);
	if (!inject_fails(INJECT_SYSTEM, "open"))
		return __real_open(path, flags, mode);
	errno = EMFILE;
	return -1;
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	unsigned mode = va_arg(arguments, unsigned);

	va_end(arguments);
	if (!inject_fails(INJECT_SYSTEM, "openat"))
		return __real_openat(dir, path, flags, mode);
	errno = EMFILE;
	return -1;
}

#endif
