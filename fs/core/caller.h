/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Facts about the thread that sent a request. The request contains the thread's number, user and
 * group; /proc has all other facts. The number is 0 if the thread is in another PID namespace; then
 * nothing more can be known. */
#ifndef FS_CORE_CALLER_H
#define FS_CORE_CALLER_H

#include <stdbool.h>
#include <sys/types.h>

struct caller {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Whether the user is root or the user that runs the daemon. */
bool user_is_privileged(uid_t uid);
/* Whether the caller is a member of the group; false if unknown. */
bool caller_is_member(const struct caller *caller, gid_t group);
/* Whether the caller has a capability, such as CAP_FSETID, in the initial user namespace, as the
 * kernel would check. If unknown, only root has the capability. */
bool caller_is_capable(const struct caller *caller, unsigned capability);
/* The process of the thread; 0 if unknown. */
pid_t caller_process(pid_t pid);
/* Whether a signal is pending for the thread; true if unknown. */
bool caller_has_signal(pid_t pid);
/* Whether the thread ends once its request is answered, because of SIGKILL; false if unknown. */
bool caller_is_killed(pid_t pid);

/* Whether the thread is in a chown(2) of any form; false if unknown. A worker of io_uring may seem
 * to be in the system call that created the worker. */
bool caller_is_in_chown(pid_t pid);

/* Whether a process (0: the daemon) is in the initial user namespace. True if the kernel has no
 * user namespaces; false if unknown. */
bool caller_in_initial_namespace(pid_t pid);

#endif
