/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The thread that a request is from: a request has its number, user and group, and /proc the rest.
 * The number is 0 where the thread is in another PID namespace, and nothing more can be known. */
#ifndef FS_CORE_CALLER_H
#define FS_CORE_CALLER_H

#include <stdbool.h>
#include <sys/types.h>

struct caller {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Whether the caller is a member of the group; false where that cannot be known. */
bool caller_is_member(const struct caller *caller, gid_t group);
/* Whether the caller has the capability, CAP_FSETID or another one, in the initial user namespace,
 * as the kernel asks for it; where that cannot be known, root has it. */
bool caller_is_capable(const struct caller *caller, unsigned capability);
/* Whether a signal waits for the thread; true where that cannot be known. */
bool caller_has_signal(pid_t pid);

/* Whether the thread waits in a chown(2) of any form; false where that cannot be known. A worker of
 * io_uring may seem to be in the system call during which it was made. */
bool caller_is_in_chown(pid_t pid);

/* Whether a process is in the initial user namespace; 0 is the daemon. true where the kernel has no
 * user namespaces, and false where that cannot be known. */
bool caller_in_initial_namespace(pid_t pid);

#endif
