/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/core/driver_thread.h"
#include "client/preload/core/own.h"

bool real_ready;

/* For a program's allocator, which may call these while symbols are being looked up. */
static void *early_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	/* The only call here whose result is an address. NOLINTNEXTLINE(performance-no-int-to-ptr)
	 */
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

static int early_munmap(void *at, size_t bytes)
{
	return (int)syscall(SYS_munmap, at, bytes);
}

static int early_mprotect(void *at, size_t bytes, int protection)
{
	return (int)syscall(SYS_mprotect, at, bytes, protection);
}

static ssize_t early_read(int fd, void *to, size_t bytes)
{
	return syscall(SYS_read, fd, to, bytes);
}

static ssize_t early_write(int fd, const void *from, size_t bytes)
{
	return syscall(SYS_write, fd, from, bytes);
}

static int early_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

/* The compiler must not make a call of memmove out of the loops. */
static void *early_memmove(void *to, const void *from, size_t bytes)
{
	const char *source = from;
	char *target = to;

	for (size_t i = 0; i < bytes; i++) {
		size_t at = (uintptr_t)target <= (uintptr_t)source ? i : bytes - 1 - i;
		target[at] = source[at];
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

struct real real = {
    .mmap64 = early_mmap,
    .munmap = early_munmap,
    .mprotect = early_mprotect,
    .read = early_read,
    .write = early_write,
    .close = early_close,
    .memcpy = early_memmove,
    .memmove = early_memmove,
};

static void symbol_find(const char *name, void *function)
{
	void *found = dlsym(RTLD_NEXT, name);

	/* A program cannot call a function that its libc lacks. */
	if (found)
		memcpy(function, &found, sizeof(found));
}

void real_resolve(void)
{
	static _Thread_local bool resolving __attribute__((tls_model("initial-exec")));
	int error = errno;

	if (resolving)
		return;
	resolving = true;
#define REAL_FIND(type, name, arguments) symbol_find(#name, &real.name);
	REAL_FUNCTIONS(REAL_FIND)
#undef REAL_FIND
	resolving = false;
	/* Before any mapping: the first mapping decides where drivers run. */
	client_driver_thread_enable(own_thread_began);
	__atomic_store_n(&real_ready, true, __ATOMIC_RELEASE);
	errno = error;
}
