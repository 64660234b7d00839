/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Binds the sharing socket to its name in the mount, in a separate process. For bind() the kernel
 * sends requests to the mount, and a process with a pending request does not end before the answer,
 * even after SIGKILL. A daemon that called bind() itself could be killed while it waits for its own
 * answer; the dying daemon would keep /dev/fuse open, and the kernel would never end the request.
 */
#ifndef FS_SHARE_BINDER_H
#define FS_SHARE_BINDER_H

#include <stdbool.h>
#include <sys/types.h>

/* Called by the daemon, while its threads serve: gives socket its name below the mount, of which
 * tree is a descriptor. Returns when the binder process has ended: 0 or -errno. */
int binder_bind(int socket, int tree);
/* Whether pid is the process that binder_bind started. */
bool binder_is(pid_t pid);
/* The main function of the binder process, which has the two descriptors and no /dev/fuse: the exit
 * status. */
int binder_run(int socket, const char *tree);

#endif
