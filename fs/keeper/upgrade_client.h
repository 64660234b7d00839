/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The client of gpumemfs --upgrade MOUNTPOINT: asks the mount's keeper to start daemons from the
 * program of this process from now on. */
#ifndef FS_KEEPER_UPGRADE_CLIENT_H
#define FS_KEEPER_UPGRADE_CLIENT_H

/* The kind in the name of a keeper's socket: common/system/runtime_dir.h. */
#define UPGRADE_KIND "keeper"

/* Returns when this program serves the mount, or the upgrade has failed: the exit status. On
 * failure a line is on the terminal. */
int upgrade_ask(const char *mountpoint);

#endif
