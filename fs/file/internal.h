/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* For the sources of fs/file that use a file of either kind. */
#ifndef FS_FILE_INTERNAL_H
#define FS_FILE_INTERNAL_H

#include "fs/file/core/state.h"
#include "fs/file/device/device.h"
#include "fs/file/device/foreign.h"
#include "fs/file/export.h"
#include "fs/file/file.h"
#include "fs/file/host/host.h"

/* Under layout_lock, unless the operation needs no lock. */
static inline const struct file_kind *file_kind(const struct file *file)
{
	if (!file_is_device(file))
		return &host_kind;
	return file_is_foreign(file) ? &foreign_kind : &device_kind;
}

/* place.c. After -ENOSPC, under no lock: whether to try again, because memory of other files has
 * moved, or, if none can, because call asks for memory in the next slower place from here on. */
bool file_find_room(const struct volume *volume, struct file_call *call, uint64_t bytes);

/* The run that begins at offset, at most to end; false at the end. layout_lock is held. */
bool file_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run);

/* bounce.c. Copies bytes between the object of a host/ file and device memory, which must back the
 * whole range: directly if a window exists (host_pin.h), else through a buffer. Not through a
 * mapping and the CPU: a page that cannot be allocated (memory is full, or a program punched a
 * hole) would end the daemon by SIGBUS. */
struct bounce;
/* bytes: the expected total. */
int bounce_new(const struct file_call *call, uint64_t bytes, struct bounce **bounce);
void bounce_free(struct bounce *bounce);
int bounce_in(struct bounce *bounce, struct file *from, uint64_t from_offset,
	      const struct extents *to, uint64_t to_offset, uint64_t bytes);
/* Adds the bytes written to the object to *written, also on failure. to: the file of the object, or
 * NULL if the object has no file yet. */
int bounce_out(struct bounce *bounce, const struct extents *from, uint64_t from_offset,
	       struct file *to, int fd, uint64_t fd_offset, uint64_t bytes, uint64_t *written);

#endif
