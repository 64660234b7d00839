/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/copy.h"

#include <errno.h>

#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/holders/holds.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/quota.h"
#include "fs/tree/tree.h"

/* The attributes of a copy do not come from the file or the GPU's directory: the chunks are handed
 * out, and the CPU maps them in the reader's process. */
static const struct attr_values copy_attrs = {.page_size = PAGE_SIZE_2M};

/* Before memory is allocated: a copy of many gigabytes that fails halfway has kept the GPU busy,
 * and has taken room from other users, in vain. Another user may still take the room meanwhile. */
static int room_check(struct fs *fs, struct inode *from, uid_t uid, const struct volume *volume)
{
	uint64_t bytes = file_data_bytes(from->file, CHUNK_ALIGN), available;
	brlock_token token = brlock_read_lock(&fs->topology);
	uint64_t quota = quota_room(inode_find(fs, volume->root_ino));

	brlock_read_unlock(&fs->topology, token);
	/* Charged already: a copy of the same reader takes this memory. */
	uint64_t shelved = holds_shelved(fs, uid, volume);

	if (bytes > shelved && bytes - shelved > quota)
		return -EDQUOT;
	int error = pool_available(volume->pool, &available);

	return !error && bytes > shelved && bytes - shelved > available ? -ENOSPC : error;
}

static int copy_bytes(struct fs *fs, struct inode *from, struct inode *to)
{
	uint64_t size = file_size(from->file), n_copied = 0;
	struct inode_call call;

	inode_call_init(&call, fs, to, worker_copier(fs));
	/* Announces the size, so that the copy has few chunks. */
	int rc = file_truncate(to->file, &call.call, size);

	while (rc == 0 && n_copied < size) {
		ssize_t n = file_copy(from->file, n_copied, to->file, &call.call, n_copied,
				      size - n_copied);

		if (n < 0)
			rc = (int)n;
		if (n <= 0)
			break; /* 0: the file has become shorter */
		n_copied += (uint64_t)n;
	}
	return rc;
}

int share_copy(struct fs *fs, struct inode *from, uid_t uid, struct inode **copy)
{
	const struct volume *volume = file_volume(from->file);
	struct tree_new params = {.mode = S_IFREG | 0600, .uid = uid, .gid = from->gid};
	struct inode *new_inode;

	if (!volume->device)
		return -ENOTSUP;
	int error = room_check(fs, from, uid, volume);

	if (!error)
		error = tree_tmpfile(fs, inode_find(fs, volume->root_ino), &params, &new_inode);
	if (error)
		return error;
	atomic_store(&new_inode->attrs, copy_attrs);
	error = copy_bytes(fs, from, new_inode);
	if (error)
		inode_put(fs, new_inode, 1);
	else
		*copy = new_inode;
	return error;
}
