/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Listens for notices of the daemons of all mounts that this process has files of: a connection and
 * a thread for each mount. The thread begins with the first file after client_listen, and ends with
 * the mount. Inside the gate. */
#ifndef CLIENT_LIB_LISTENER_H
#define CLIENT_LIB_LISTENER_H

#include <stdint.h>
#include <sys/types.h>

struct gpumem;

/* Listens from now on, also for files that are opened later. Not in the preload library, which
 * cannot give back what its program uses. */
void client_listen(void);
/* Listens for these notices: enum gpumem_listen_flags. */
void client_listen_for(uint32_t flags);
/* A file was opened, which must be in the list of files. */
void client_listen_file(struct gpumem *file);
/* Answers the notice of a number to the daemon of a mount. */
void client_listener_answer(dev_t device, uint32_t number, int error, uint32_t files);

#endif
