/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls that fail with EBUSY for a leased file, because the file keeps its memory. If the lease is
 * this process's own, the library ends the lease and makes the call again. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/preload/copy/source.h"
#include "client/preload/core/calls.h"
#include "client/preload/core/file_stats.h"
#include "client/preload/mapping.h"
#include "client/preload/slot.h"

static bool file_yield(const struct slot_identity *identity)
{
	bool had = slots_yield(identity);

	had = source_yield(identity) || had;
	return mapping_yield(identity) || had;
}

/* Whether a second try of the failed call makes sense. */
static bool error_is_busy(void)
{
	return errno == EBUSY && !own_inside && own_process();
}

static bool file_gave_way(int folder, const char *path, int flags)
{
	struct statx st;

	if (!error_is_busy())
		return false;
	INSIDE();
	bool gave = statx(folder, path, flags | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 &&
		    file_yield(&(struct slot_identity){.device = (uint64_t)st.stx_dev_major << 32 |
								 st.stx_dev_minor,
						       .inode = st.stx_ino});
	errno = EBUSY;
	return gave;
}

/* Makes the call, and again each time the file gave way: other threads may use the file meanwhile
 * and lease it anew. */
#define TRIES 20
#define TRY(folder, path, flags, kernel)                                                           \
	({                                                                                         \
		real_need();                                                                       \
		int answer_ = (kernel), tries_ = TRIES;                                            \
		while (answer_ < 0 && file_gave_way(folder, path, flags) && tries_--)              \
			answer_ = (kernel);                                                        \
		answer_;                                                                           \
	})
#define TRY_PATH(path, kernel) TRY(AT_FDCWD, path, 0, kernel)
#define TRY_LINK(path, kernel) TRY(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, kernel)
#define TRY_FD(fd, kernel)     TRY(fd, "", AT_EMPTY_PATH, kernel)

/* --- opening. The library keeps the descriptors that libgpumem opens. */

static int fd_note_opened(int fd, int flags)
{
	if (fd < 0)
		return fd;
	if (own_inside)
		return flags & O_PATH ? own_adopt(fd) : fd;
	slot_opened(fd);
	if (!(flags & O_PATH))
		file_stats_open(fd);
	return fd;
}

static mode_t open_mode(int flags, va_list *arguments)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(*arguments, mode_t) : 0;
}

#define WITH_MODE(mode)                                                                            \
	va_list arguments_;                                                                        \
	va_start(arguments_, flags);                                                               \
	mode_t mode = open_mode(flags, &arguments_);                                               \
	va_end(arguments_)

CALL("open64", int, call_open, const char *path, int flags, ...)
{
	WITH_MODE(mode);
	return fd_note_opened(TRY_PATH(path, real.open64(path, flags, mode)), flags);
}
CALL_ALSO("open", "open64")

CALL("openat64", int, call_openat, int folder, const char *path, int flags, ...)
{
	WITH_MODE(mode);
	return fd_note_opened(TRY(folder, path, 0, real.openat64(folder, path, flags, mode)),
			      flags);
}
CALL_ALSO("openat", "openat64")

CALL("__open64_2", int, call_open_2, const char *path, int flags)
{
	return fd_note_opened(TRY_PATH(path, real.__open64_2(path, flags)), flags);
}
CALL_ALSO("__open_2", "__open64_2")

CALL("__openat64_2", int, call_openat_2, int folder, const char *path, int flags)
{
	return fd_note_opened(TRY(folder, path, 0, real.__openat64_2(folder, path, flags)), flags);
}
CALL_ALSO("__openat_2", "__openat64_2")

CALL("creat64", int, call_creat, const char *path, mode_t mode)
{
	return fd_note_opened(TRY_PATH(path, real.creat64(path, mode)), O_WRONLY);
}
CALL_ALSO("creat", "creat64")

CALL("fopen64", FILE *, call_fopen, const char *path, const char *mode)
{
	real_need();
	FILE *file = real.fopen64(path, mode);

	for (int attempts_left = TRIES; !file && file_gave_way(AT_FDCWD, path, 0) && attempts_left;
	     attempts_left--)
		file = real.fopen64(path, mode);
	if (file && !own_inside) {
		slot_opened(fileno(file));
		file_stats_open(fileno(file));
	}
	return file;
}
CALL_ALSO("fopen", "fopen64")

/* --- lengths, holes, places */

CALL("truncate64", int, call_truncate, const char *path, off_t size)
{
	return TRY_PATH(path, real.truncate64(path, size));
}
CALL_ALSO("truncate", "truncate64")

CALL("ftruncate64", int, call_ftruncate, int fd, off_t size)
{
	return TRY_FD(fd, real.ftruncate64(fd, size));
}
CALL_ALSO("ftruncate", "ftruncate64")

CALL("fallocate64", int, call_fallocate, int fd, int mode, off_t offset, off_t bytes)
{
	return TRY_FD(fd, real.fallocate64(fd, mode, offset, bytes));
}
CALL_ALSO("fallocate", "fallocate64")

CALL("rename", int, call_rename, const char *from, const char *to)
{
	return TRY_LINK(from, real.rename(from, to));
}

CALL("renameat", int, call_renameat, int from_folder, const char *from, int folder, const char *to)
{
	return TRY(from_folder, from, AT_SYMLINK_NOFOLLOW,
		   real.renameat(from_folder, from, folder, to));
}

CALL("renameat2", int, call_renameat2, int from_folder, const char *from, int folder,
     const char *to, unsigned flags)
{
	return TRY(from_folder, from, AT_SYMLINK_NOFOLLOW,
		   real.renameat2(from_folder, from, folder, to, flags));
}

/* --- attributes. A change of page_size gives the file new memory. */

CALL("setxattr", int, call_setxattr, const char *path, const char *name, const void *value,
     size_t bytes, int flags)
{
	return TRY_PATH(path, real.setxattr(path, name, value, bytes, flags));
}

CALL("lsetxattr", int, call_lsetxattr, const char *path, const char *name, const void *value,
     size_t bytes, int flags)
{
	return TRY_LINK(path, real.lsetxattr(path, name, value, bytes, flags));
}

CALL("fsetxattr", int, call_fsetxattr, int fd, const char *name, const void *value, size_t bytes,
     int flags)
{
	return TRY_FD(fd, real.fsetxattr(fd, name, value, bytes, flags));
}

CALL("removexattr", int, call_removexattr, const char *path, const char *name)
{
	return TRY_PATH(path, real.removexattr(path, name));
}

CALL("lremovexattr", int, call_lremovexattr, const char *path, const char *name)
{
	return TRY_LINK(path, real.lremovexattr(path, name));
}

CALL("fremovexattr", int, call_fremovexattr, int fd, const char *name)
{
	return TRY_FD(fd, real.fremovexattr(fd, name));
}

/* Sets times by request. The next write must update the times at once, so the slots are told. */
#define SET_TIMES(kernel)                                                                          \
	({                                                                                         \
		real_need();                                                                       \
		int answer_ = (kernel);                                                            \
		slots_times_set();                                                                 \
		answer_;                                                                           \
	})

CALL("utimensat", int, call_utimensat, int folder, const char *path, const struct timespec *times,
     int flags)
{
	return SET_TIMES(real.utimensat(folder, path, times, flags));
}

CALL("futimens", int, call_futimens, int fd, const struct timespec *times)
{
	return SET_TIMES(real.futimens(fd, times));
}

CALL("utimes", int, call_utimes, const char *path, const struct timeval *times)
{
	return SET_TIMES(real.utimes(path, times));
}

CALL("lutimes", int, call_lutimes, const char *path, const struct timeval *times)
{
	return SET_TIMES(real.lutimes(path, times));
}

CALL("futimes", int, call_futimes, int fd, const struct timeval *times)
{
	return SET_TIMES(real.futimes(fd, times));
}

CALL("futimesat", int, call_futimesat, int folder, const char *path, const struct timeval *times)
{
	return SET_TIMES(real.futimesat(folder, path, times));
}

CALL("utime", int, call_utime, const char *path, const struct utimbuf *times)
{
	return SET_TIMES(real.utime(path, times));
}
