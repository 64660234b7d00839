/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Large reads and writes of GPU files through staging memory: one copy in this process and one by
 * the GPU. Stores through a fresh BAR mapping fault at every page, and the kernel's way costs one
 * copy more. */
#ifndef CLIENT_PRELOAD_STAGE_H
#define CLIENT_PRELOAD_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/preload/io.h"
#include "client/preload/slot.h"

/* On the reference machine, as dd(1) writes: 256 KiB 3.9 GB/s, 512 KiB 6.0, 1 MiB 6.7; through the
 * kernel 3.0, through a BAR at first touch 4.5. */
#define STAGE_CALL_MIN (512 << 10)

/* The use of a file that justifies opening staging memory, which takes a few ms. */
#define STAGE_USE (16ULL << 20)

/* Opens staging memory, once for a process, on the mount of the slot's file. Files of other mounts
 * are left to the kernel. */
void stage_open(const struct slot *slot, int fd);
/* Whether stage_open was called, successful or not. */
bool stage_was_tried(void);
/* Whether calls on the file may use the staging memory. */
bool stage_is_for(const struct slot *slot);

/* Does a pwritev(2) or preadv(2) of all bytes of the call. False: the kernel must do the call from
 * its start. */
bool stage_move(const struct io_call *call, off_t offset, size_t bytes);

void stage_forked(void);

#endif
