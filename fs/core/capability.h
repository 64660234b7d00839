/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A capability says whether this kernel, libfuse and machine can do something for the mount. The
 * daemon decides the capabilities when the mount is made, and shows each in a line of the log at
 * start and in a line of .gpumem/params. */
#ifndef FS_CORE_CAPABILITY_H
#define FS_CORE_CAPABILITY_H

#include <stdbool.h>
#include <stdint.h>

struct capability {
	bool on;
	char reason[300]; /* why the capability is off, or how it is on */
};

struct capabilities {
	struct capability io_uring, clone_fd, busy_poll, passthrough, mmap, killpriv,
	    parallel_writes, recovery;
	unsigned threads;
	unsigned max_write;	    /* bytes */
	_Atomic uint64_t readahead; /* bytes; fuse/readahead.h */
};

/* A reason longer than the member is cut. */
void capability_set(struct capability *capability, bool on, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
