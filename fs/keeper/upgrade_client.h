/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumemfs --upgrade MOUNTPOINT: has the mount's keeper go on with the program that asks. */
#ifndef FS_KEEPER_UPGRADE_CLIENT_H
#define FS_KEEPER_UPGRADE_CLIENT_H

/* The kind of a keeper's socket: see common/runtime_dir.h. */
#define UPGRADE_KIND "keeper"

/* Returns when this program serves the mount, or that has failed: the exit status, after a line on
 * the terminal where it is not 0. */
int upgrade_ask(const char *mountpoint);

#endif
