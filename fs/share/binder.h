/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Binds the sharing socket to its name in the mount, in a process of its own. The kernel makes
 * requests for a bind(), and a process that has a request under way does not end before the answer,
 * even after SIGKILL. A daemon that waited for its own answer would keep /dev/fuse open, so that
 * the request would never be ended. */
#ifndef FS_SHARE_BINDER_H
#define FS_SHARE_BINDER_H

#include <stdbool.h>
#include <sys/types.h>

/* By the daemon, while its threads serve: socket gets its name below the mount that tree is open
 * at. Returns when the process has ended: 0 or -errno. */
int binder_bind(int socket, int tree);
/* Whether this is the process that binder_bind started. */
bool binder_is(pid_t pid);
/* In that process, which holds the two and no /dev/fuse: its exit status. */
int binder_run(int socket, const char *tree);

#endif
