/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Times that are set by hand: what is written after has to move them, however soon. */
#include "client/preload/calls.h"
#include "client/preload/slot.h"

#define SET(kernel)                                                                                \
	({                                                                                         \
		real_need();                                                                       \
		int answer_ = (kernel);                                                            \
		slots_times_set();                                                                 \
		answer_;                                                                           \
	})

CALL("utimensat", int, call_utimensat, int folder, const char *path, const struct timespec *times,
     int flags)
{
	return SET(real.utimensat(folder, path, times, flags));
}

CALL("futimens", int, call_futimens, int fd, const struct timespec *times)
{
	return SET(real.futimens(fd, times));
}

CALL("utimes", int, call_utimes, const char *path, const struct timeval *times)
{
	return SET(real.utimes(path, times));
}

CALL("lutimes", int, call_lutimes, const char *path, const struct timeval *times)
{
	return SET(real.lutimes(path, times));
}

CALL("futimes", int, call_futimes, int fd, const struct timeval *times)
{
	return SET(real.futimes(fd, times));
}

CALL("futimesat", int, call_futimesat, int folder, const char *path, const struct timeval *times)
{
	return SET(real.futimesat(folder, path, times));
}

CALL("utime", int, call_utime, const char *path, const struct utimbuf *times)
{
	return SET(real.utime(path, times));
}
