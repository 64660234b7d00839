/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Large reads and writes of GPU files by way of staging memory: a copy in this process, and one by
 * the GPU. Stores through a BAR that was not touched before fault at every page, and the kernel's
 * own way is one copy more. */
#ifndef CLIENT_PRELOAD_STAGE_H
#define CLIENT_PRELOAD_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/preload/io.h"
#include "client/preload/slot.h"

/* On the reference machine, as dd(1) writes: 256 KiB 3.9 GB/s, 512 KiB 6.0, 1 MiB 6.7; through the
 * kernel 3.0, through a BAR at first touch 4.5. */
#define STAGE_CALL_MIN (512 << 10)

/* What is worth the opening, which takes a few ms. */
#define STAGE_USE (16ULL << 20)

/* The file is used as much as is worth the opening. Once for a process, on the mount of the first
 * file: others are the kernel's. */
void stage_open(const struct slot *slot, int fd);
/* stage_open is done with, for better or worse. */
bool stage_was_tried(void);
/* Calls on the file may come this way. */
bool stage_is_for(const struct slot *slot);

/* As pwritev(2) or preadv(2), of all that the call names, which is bytes; false: the kernel is to
 * do it, from the start. */
bool stage_move(const struct io_call *call, off_t offset, size_t bytes);

void stage_forked(void);

#endif
