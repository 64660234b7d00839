/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Acts on notices: at the program's next gpumem_safe_point, or at once if the notice says so. */
#ifndef CLIENT_LIB_SAFE_POINT_H
#define CLIENT_LIB_SAFE_POINT_H

#include <sys/types.h>

#include "common/protocol.h"

/* A notice of the daemon of a mount. By the listener's thread, inside the gate. */
void client_notice_take(dev_t device, const struct gpumem_msg_notice *notice);

#endif
