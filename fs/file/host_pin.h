/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Pages of host/ files that a GPU's copy engines read and write in place: a mapping of the daemon's
 * own, registered with the GPU's driver. Registering takes some 30 us per MiB on the reference
 * machine, a copy through a buffer 100 and by DMA 18, so windows are kept for the next copy.
 *
 * Nobody ever touches a window by the CPU: its pages may be gone, which is a signal to who looks
 * and nothing to a copy engine, whose pages stay as long as they are registered. Pages that were
 * punched out behind the daemon (madvise(2) by somebody who maps the file) show in the object's
 * times, and the window is not used again. */
#ifndef FS_FILE_HOST_PIN_H
#define FS_FILE_HOST_PIN_H

#include "fs/file/internal.h"

/* A window is of a stretch of this size at a multiple of it, or of less at the end of the file. */
#define HOST_WINDOW_BYTES (64ULL << 20)
/* Shorter copies are not worth the questions. */
#define HOST_WINDOW_COPY_MIN (64ULL << 10)

/* Of a mount: memory that nobody else can have meanwhile. */
#define HOST_WINDOWS_PINNED_MAX (2ULL << 30)

struct host_windows;
struct host_window;

/* pinned_max: bytes that are registered at a time. 0 or -ENOMEM. */
int host_windows_new(uint64_t pinned_max, struct host_windows **windows);
/* No file is left. */
void host_windows_free(struct host_windows *windows);

/* Where [offset, offset + bytes) of the file's object lies in a window that the device's copy
 * engines can be given, with COPY_DMA; or NULL. The range is within one stretch. The file's guard
 * is held, shared, and memory of the device, until host_window_leave. */
char *host_window_enter(struct file *file, uint64_t offset, uint64_t bytes, struct device *device,
			struct host_window **window);
void host_window_leave(struct host_windows *windows, struct host_window *window);

/* The object is about to lose memory, or to go: so do the windows of it. Guard held, exclusive. */
void host_windows_forget(struct host_windows *windows, const struct file *file);

#endif
