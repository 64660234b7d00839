/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: moving extents between the device, system memory and the disk. The caller holds
 * layout_lock. */
#ifndef FS_FILE_DEVICE_PLACE_H
#define FS_FILE_DEVICE_PLACE_H

#include "fs/file/device/device.h"

/* A move of extents from any place of a set (bits 1 << place) to another place. */
struct device_placing {
	unsigned from;
	enum memory_place to;
	bool over_quota; /* what processes keep of the extents has no room in a quota */
	/* Not NULL: extents in chunks that pass this test move within their place instead. */
	bool (*renews)(const struct chunk *chunk);
	uint64_t renewed_end; /* the end of the last such extent */
};

static inline struct device_placing placing_all_to(enum memory_place place)
{
	return (struct device_placing){.from = ~(1U << place), .to = place};
}

/* Moves the next extent. The bytes that moved, 0 if all are in place, or -errno: -EBUSY if sharers
 * use the extent. Nothing is to move in a file in host/. Exclusive. */
int64_t device_place_next(struct file *file, const struct file_call *call,
			  struct device_placing *placing);
/* Whether the extents are where the attribute resident wants them, or sharers keep them where they
 * are. */
bool device_is_placed(const struct file *file, const struct file_call *call);

#endif
