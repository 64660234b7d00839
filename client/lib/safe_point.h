/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Acts on notices: at the program's next gpumem_safe_point, or at once if the notice says so. */
#ifndef CLIENT_LIB_SAFE_POINT_H
#define CLIENT_LIB_SAFE_POINT_H

/* Listens for such requests from now on. Inside the gate. */
void client_safe_points_begin(void);

#endif
