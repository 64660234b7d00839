/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A test of file modes that <sys/stat.h> lacks. */
#ifndef FS_CORE_MODE_H
#define FS_CORE_MODE_H

#include <stdbool.h>
#include <sys/stat.h>

/* Whether the mode is a device node's. The kernel decides which operations a device node allows. */
static inline bool mode_is_device(mode_t mode)
{
	return S_ISCHR(mode) || S_ISBLK(mode);
}

#endif
