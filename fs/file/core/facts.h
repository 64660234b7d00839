/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What is known of a file without its layout_lock. */
#ifndef FS_FILE_CORE_FACTS_H
#define FS_FILE_CORE_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/volume/volume.h"

struct file;

/* Changed by a move, under layout_lock. */
struct volume *file_volume(const struct file *file);
/* For the next daemon: whether the kernel may have pages of the file with newer bytes. */
void file_set_paged(struct file *file, bool paged);
bool file_is_paged(const struct file *file);

/* When the file was last read, written or leased: in ticks of file_used_now, for files whose volume
 * is tiered; 0: not yet. */
uint32_t file_used(const struct file *file);
/* Whether memory of the file has left the device, and was used since. */
enum file_away { FILE_HERE, FILE_AWAY, FILE_AWAY_USED };
enum file_away file_away(const struct file *file);
uint32_t file_used_now(void);
#define FILE_USED_TICKS 16 /* a second */

/* The backing id of passthrough, 0 if there is none. The id belongs to the file because all opens
 * must share a backing id. */
_Atomic int32_t *file_backing_id(struct file *file);

#endif
