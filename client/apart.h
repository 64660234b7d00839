/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opening a file again without harm to the program's locks. Closing a file drops all fcntl locks
 * that the process has on it; they go by the table of descriptors, and so the file is opened and
 * closed by a thread with a table of its own. */
#ifndef CLIENT_APART_H
#define CLIENT_APART_H

/* Opens the file of a descriptor again with flags, and gives what work makes of it: 0 or -errno.
 * -EPERM where the process may not have a second table (a sandbox). work may not leave a descriptor
 * behind: it is closed with the thread. */
int client_apart(int fd, int flags, int (*work)(int again, void *argument), void *argument);

#endif
