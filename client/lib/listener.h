/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Listens for notices of the daemons of all mounts that this process has files of: a connection and
 * a thread for each mount. The thread begins with the first file after client_listen, and ends with
 * the mount. Inside the gate. */
#ifndef CLIENT_LIB_LISTENER_H
#define CLIENT_LIB_LISTENER_H

#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"

struct gpumem;

/* A part that acts on notices, in the listener's thread, outside the gate. Both functions get the
 * mount. */
struct client_notices {
	void (*take)(dev_t device, const struct gpumem_msg_notice *notice);
	/* The daemon may have sent notices that did not come. Or NULL. */
	void (*connected)(dev_t device);
};

/* Listens for these kinds of notices, enum gpumem_listen_flags, from now on, also for files that
 * are opened later. 0: for none. Of at most CLIENT_TAKERS. Not in the preload library, which cannot
 * give back what its program uses. */
#define CLIENT_TAKERS 2
void client_listen_for(const struct client_notices *taker, uint32_t kinds);
/* A file was opened, which must be in the list of files. */
void client_listen_file(struct gpumem *file);
/* Answers the notice of a number to the daemon of a mount. */
void client_listener_answer(dev_t device, uint32_t number, int error, uint32_t files);

#endif
