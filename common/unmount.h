/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef COMMON_UNMOUNT_H
#define COMMON_UNMOUNT_H

#include <sys/types.h>

/* Takes a mount off, lazily, if it is still the one with this device number (0: not known, it is
 * taken for that); by root itself, by fusermount3 otherwise. Does not ask the mount's daemon. */
void unmount_lazily(const char *mountpoint, dev_t device);

/* The device number of what is at path, without a request to its daemon: 0 or -errno. */
int unmount_device(const char *path, dev_t *device);

#endif
