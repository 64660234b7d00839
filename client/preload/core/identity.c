/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/identity.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A table with open addressing. Untouched pages of the table take no memory. */
#define PLACES (1U << 15)
#define FULL   (PLACES / 4 * 3)

static struct slot_identity cached_files[PLACES]; /* inode 0: free */
static unsigned n_cached;			  /* at FULL, every file counts as cached */

/* The entry of the identity, or the free entry where the identity belongs. */
static struct slot_identity *identity_find(const struct slot_identity *identity)
{
	uint64_t key = (identity->inode ^ identity->device << 40) * 0x9e3779b97f4a7c15;
	unsigned at = (unsigned)(key >> 32) % PLACES;

	while (cached_files[at].inode && !slot_same(&cached_files[at], identity))
		at = (at + 1) % PLACES;
	return &cached_files[at];
}

void identity_add_cached(const struct slot_identity *identity)
{
	struct slot_identity *place = identity_find(identity);

	if (n_cached == FULL || place->inode)
		return;
	*place = *identity;
	n_cached++;
}

bool identity_is_cached(const struct slot_identity *identity)
{
	return n_cached == FULL || identity_find(identity)->inode;
}

bool identity_get(int fd, struct slot_identity *identity)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE, &st) < 0 ||
	    !S_ISREG(st.stx_mode))
		return false;
	*identity = (struct slot_identity){
	    .device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor, .inode = st.stx_ino};
	return true;
}
