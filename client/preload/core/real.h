/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libc's own functions, which the program would have called without this library. The functions
 * that replace them have the symbols of libc but other names in C, because headers declare and
 * fortify libc's names in many ways. */
#ifndef CLIENT_PRELOAD_CORE_REAL_H
#define CLIENT_PRELOAD_CORE_REAL_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#define REAL_FUNCTIONS(X)                                                                          \
	X(ssize_t, read, (int, void *, size_t))                                                    \
	X(ssize_t, write, (int, const void *, size_t))                                             \
	X(ssize_t, pread64, (int, void *, size_t, off_t))                                          \
	X(ssize_t, pwrite64, (int, const void *, size_t, off_t))                                   \
	X(ssize_t, readv, (int, const struct iovec *, int))                                        \
	X(ssize_t, writev, (int, const struct iovec *, int))                                       \
	X(ssize_t, preadv64, (int, const struct iovec *, int, off_t))                              \
	X(ssize_t, pwritev64, (int, const struct iovec *, int, off_t))                             \
	X(ssize_t, preadv64v2, (int, const struct iovec *, int, off_t, int))                       \
	X(ssize_t, pwritev64v2, (int, const struct iovec *, int, off_t, int))                      \
	X(ssize_t, __read_chk, (int, void *, size_t, size_t))                                      \
	X(ssize_t, __pread64_chk, (int, void *, size_t, off_t, size_t))                            \
	X(void *, mmap64, (void *, size_t, int, int, int, off_t))                                  \
	X(int, munmap, (void *, size_t))                                                           \
	X(void *, mremap, (void *, size_t, size_t, int, ...))                                      \
	X(int, mprotect, (void *, size_t, int))                                                    \
	X(int, msync, (void *, size_t, int))                                                       \
	X(int, open64, (const char *, int, ...))                                                   \
	X(int, __open64_2, (const char *, int))                                                    \
	X(int, openat64, (int, const char *, int, ...))                                            \
	X(int, __openat64_2, (int, const char *, int))                                             \
	X(int, creat64, (const char *, mode_t))                                                    \
	X(FILE *, fopen64, (const char *, const char *))                                           \
	X(size_t, fread, (void *, size_t, size_t, FILE *))                                         \
	X(size_t, fread_unlocked, (void *, size_t, size_t, FILE *))                                \
	X(size_t, __fread_chk, (void *, size_t, size_t, size_t, FILE *))                           \
	X(size_t, __fread_unlocked_chk, (void *, size_t, size_t, size_t, FILE *))                  \
	X(void *, memcpy, (void *, const void *, size_t))                                          \
	X(void *, memmove, (void *, const void *, size_t))                                         \
	X(int, close, (int))                                                                       \
	X(int, close_range, (unsigned, unsigned, int))                                             \
	X(void, closefrom, (int))                                                                  \
	X(int, dup, (int))                                                                         \
	X(int, dup2, (int, int))                                                                   \
	X(int, dup3, (int, int, int))                                                              \
	X(int, socket, (int, int, int))                                                            \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                           \
	X(int, truncate64, (const char *, off_t))                                                  \
	X(int, ftruncate64, (int, off_t))                                                          \
	X(int, fallocate64, (int, int, off_t, off_t))                                              \
	X(int, rename, (const char *, const char *))                                               \
	X(int, renameat, (int, const char *, int, const char *))                                   \
	X(int, renameat2, (int, const char *, int, const char *, unsigned))                        \
	X(int, setxattr, (const char *, const char *, const void *, size_t, int))                  \
	X(int, lsetxattr, (const char *, const char *, const void *, size_t, int))                 \
	X(int, fsetxattr, (int, const char *, const void *, size_t, int))                          \
	X(int, removexattr, (const char *, const char *))                                          \
	X(int, lremovexattr, (const char *, const char *))                                         \
	X(int, fremovexattr, (int, const char *))                                                  \
	X(int, utimensat, (int, const char *, const struct timespec *, int))                       \
	X(int, futimens, (int, const struct timespec *))                                           \
	X(int, utimes, (const char *, const struct timeval *))                                     \
	X(int, lutimes, (const char *, const struct timeval *))                                    \
	X(int, futimes, (int, const struct timeval *))                                             \
	X(int, futimesat, (int, const char *, const struct timeval *))                             \
	X(int, utime, (const char *, const struct utimbuf *))                                      \
	X(void, _exit, (int))                                                                      \
	X(int, _dl_find_object, (void *, struct dl_find_object *))

struct dl_find_object;
struct msghdr;
struct timespec;
struct timeval;
struct utimbuf;

#define REAL_FIELD(type, name, arguments) type(*name) arguments;
struct real {
	REAL_FUNCTIONS(REAL_FIELD)
};
#undef REAL_FIELD

extern struct real real;

/* To be called before any use of real, because the constructor of another library may run before
 * this library's. */
extern bool real_ready;
void real_resolve(void);
static inline void real_need(void)
{
	if (__builtin_expect(!real_ready, 0))
		real_resolve();
}

#endif
