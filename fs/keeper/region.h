/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Regions: small shared memory of a fixed layout that outlives a daemon, because the keeper holds
 * the memfd. Each daemon of the mount maps the same region. */
#ifndef FS_KEEPER_REGION_H
#define FS_KEEPER_REGION_H

#include <stddef.h>
#include <stdint.h>

struct fdstore;

/* The first member of every region. */
struct region_head {
	uint32_t magic, version;
};

struct region_kind {
	const char *name; /* of the memfd, for people */
	struct region_head head;
	size_t bytes;
};

/* id: the memfd's in fdstore. Maps the region of an earlier daemon, or makes a zeroed region and
 * has the keeper hold the memfd: 0, or -errno; -EPROTO: the region is not of this kind and version.
 */
int region_open(struct fdstore *fdstore, uint64_t id, const struct region_kind *kind,
		void **region);

#endif
