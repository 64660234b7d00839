/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Windows: pages of host/ files that a GPU's copy engines read and write in place, through a
 * mapping of the daemon that is registered with the GPU's driver. On the reference machine
 * registering takes some 30 us per MiB, a copy through a buffer 100 us and a copy by DMA 18 us, so
 * windows are kept for later copies.
 *
 * The CPU never touches a window: a page that a program has punched out would raise SIGBUS in the
 * daemon, while a copy engine goes on using the registered page. If a program punches out pages
 * through its own mapping (madvise(2)), the object's times change, and the window is not used
 * again. */
#ifndef FS_OBJECT_HOST_PIN_H
#define FS_OBJECT_HOST_PIN_H

#include <stdint.h>

#include "backend/backend.h"

/* A window covers a stretch of this size at a multiple of this size, or less at the end of the
 * file. */
#define HOST_WINDOW_BYTES (64ULL << 20)
/* Shorter copies are not worth looking for a window. */
#define HOST_WINDOW_COPY_MIN (64ULL << 10)

/* Limit of a mount: pinned memory is not available to other programs. */
#define HOST_WINDOWS_PINNED_MAX (2ULL << 30)

struct file; /* tells objects apart, and is not looked into */
struct host_windows;
struct host_window;

/* A range of an object, by its descriptor. */
struct host_range {
	const struct file *file;
	int fd;
	uint64_t offset, bytes;
};

/* pinned_max: bytes that may be registered at a time. 0 or -ENOMEM. */
int host_windows_new(uint64_t pinned_max, struct host_windows **windows);
/* Called after all files are freed. */
void host_windows_free(struct host_windows *windows);

/* The address of the range in a window, for COPY_DMA by the device's copy engines; or NULL. The
 * range must lie within a single stretch. The caller holds the file's layout_lock, shared, and
 * memory of the device, until host_window_leave. */
char *host_window_enter(struct host_windows *windows, const struct host_range *range,
			struct device *device, struct host_window **window);
void host_window_leave(struct host_windows *windows, struct host_window *window);

/* Closes the file's windows. Call before the object loses memory or is closed. layout_lock is held,
 * exclusive. */
void host_windows_forget(struct host_windows *windows, const struct file *file);

#endif
