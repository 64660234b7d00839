/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The version of gpumemfs, for -V, .gpumem/ and packages. */
#ifndef FS_CORE_VERSION_H
#define FS_CORE_VERSION_H

#define GPUMEMFS_VERSION "0.1.0"

#endif
