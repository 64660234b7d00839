/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/snapshot.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/control/lists.h"
#include "fs/control/texts.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"

struct snapshot {
	UT_hash_handle hh;
	uint64_t handle;
	uid_t uid;	/* charged: the user that opened the file */
	uint64_t bytes; /* that uid is charged */
	unsigned users; /* references to this struct, with the handle's; snapshots.lock */
	const struct control_file *file;
	pthread_mutex_t lock; /* of all below */
	char *text;
	uint64_t begin; /* the offset of text in the file */
	size_t length;
	bool ended; /* no piece follows */
	struct control_list list;
};

int snapshots_open(struct fs *fs)
{
	struct snapshots *snapshots = calloc(1, sizeof(*snapshots));

	if (!snapshots)
		return -ENOMEM;
	pthread_mutex_init(&snapshots->lock, NULL);
	fs->states[FS_SNAPSHOTS] = snapshots;
	return 0;
}

static void snapshot_free(struct fs *fs, struct snapshot *snapshot)
{
	if (snapshot->file->piece)
		control_list_end(&snapshot->list);
	ledger_give(fs, snapshot->uid, LEDGER_TEXT_BYTES, snapshot->bytes);
	ledger_give(fs, snapshot->uid, LEDGER_TEXTS, 1);
	pthread_mutex_destroy(&snapshot->lock);
	free(snapshot->text);
	free(snapshot);
}

void snapshots_close(struct fs *fs)
{
	struct snapshots *snapshots = snapshots_of(fs);
	struct snapshot *snapshot, *next;

	HASH_ITER (hh, snapshots->by_handle, snapshot, next) {
		HASH_DEL(snapshots->by_handle, snapshot);
		snapshot_free(fs, snapshot);
	}
	pthread_mutex_destroy(&snapshots->lock);
	free(snapshots);
}

/* Makes the whole text, or the next piece of a list. snapshot->lock is held. */
static int snapshot_make_text(struct fs *fs, struct snapshot *snapshot)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);

	if (!out)
		return -ENOMEM;
	int rc = snapshot->file->piece ? snapshot->file->piece(&snapshot->list, out)
				       : snapshot->file->write(fs, snapshot->uid, out);

	if (fclose(out) && rc >= 0)
		rc = -ENOMEM;
	if (rc < 0) {
		free(text);
		return rc;
	}
	free(snapshot->text);
	snapshot->text = text;
	snapshot->begin += snapshot->length;
	snapshot->length = length;
	snapshot->ended = rc == CONTROL_END;
	return 0;
}

/* A list is charged before its pieces are made; a whole text is charged afterwards, when its length
 * is known. */
static int snapshot_fill(struct fs *fs, struct snapshot *snapshot)
{
	bool is_list = snapshot->file->piece;
	int error = is_list ? 0 : snapshot_make_text(fs, snapshot);
	uint64_t bytes = is_list ? CONTROL_LIST_BYTES : snapshot->length;

	if (!error)
		error = ledger_take(fs, snapshot->uid, LEDGER_TEXT_BYTES, bytes);
	if (!error)
		snapshot->bytes = bytes;
	return error;
}

static int snapshot_new(struct fs *fs, const struct control_file *file, uid_t uid,
			struct snapshot **made)
{
	int error = ledger_check(fs, uid, LEDGER_TEXT_BYTES);

	if (!error)
		error = ledger_take(fs, uid, LEDGER_TEXTS, 1);
	if (error)
		return error;
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot) {
		ledger_give(fs, uid, LEDGER_TEXTS, 1);
		return -ENOMEM;
	}
	snapshot->file = file;
	snapshot->uid = uid;
	snapshot->users = 1;
	snapshot->list.fs = fs;
	snapshot->list.viewer = viewer_of(uid);
	pthread_mutex_init(&snapshot->lock, NULL);
	error = snapshot_fill(fs, snapshot);
	if (error)
		snapshot_free(fs, snapshot);
	else
		*made = snapshot;
	return error;
}

/* *handle 0 is replaced by the next free handle. The lock is held meanwhile: without the lock
 * another thread may close the snapshot. */
static int snapshot_add(struct fs *fs, struct snapshot *snapshot, uint64_t *handle)
{
	struct snapshots *all = snapshots_of(fs);
	struct snapshot *other = NULL;

	scoped_lock(&all->lock);
	snapshot->handle = *handle ? *handle : ++all->last_handle;
	*handle = snapshot->handle;
	HASH_FIND(hh, all->by_handle, handle, sizeof(*handle), other);
	if (other)
		return -EEXIST;
	bool added = HASH_ADD_NEW(hh, all->by_handle, handle, sizeof(snapshot->handle), snapshot);

	return added ? 0 : -ENOMEM;
}

int snapshot_reopen(struct fs *fs, const struct control_file *file, uid_t uid, uint64_t handle)
{
	struct snapshot *snapshot;
	int error = snapshot_new(fs, file, uid, &snapshot);

	if (error)
		return error;
	error = snapshot_add(fs, snapshot, &handle);
	if (error)
		snapshot_free(fs, snapshot);
	return error;
}

int snapshot_open(struct fs *fs, const struct control_file *file, uid_t uid, uint64_t *handle)
{
	struct snapshot *snapshot;
	int error = snapshot_new(fs, file, uid, &snapshot);

	if (error)
		return error;
	*handle = 0;
	error = snapshot_add(fs, snapshot, handle);
	if (error)
		snapshot_free(fs, snapshot);
	return error;
}

static struct snapshot *snapshot_get(struct fs *fs, uint64_t handle)
{
	struct snapshot *snapshot = NULL;

	scoped_lock(&snapshots_of(fs)->lock);
	HASH_FIND(hh, snapshots_of(fs)->by_handle, &handle, sizeof(handle), snapshot);
	if (snapshot)
		snapshot->users++;
	return snapshot;
}

static void snapshot_put(struct fs *fs, struct snapshot *snapshot)
{
	pthread_mutex_lock(&snapshots_of(fs)->lock);
	bool last = --snapshot->users == 0;

	pthread_mutex_unlock(&snapshots_of(fs)->lock);
	if (last)
		snapshot_free(fs, snapshot);
}

void snapshot_close(struct fs *fs, uint64_t handle)
{
	struct snapshot *snapshot = NULL;

	pthread_mutex_lock(&snapshots_of(fs)->lock);
	HASH_FIND(hh, snapshots_of(fs)->by_handle, &handle, sizeof(handle), snapshot);
	if (snapshot)
		HASH_DEL(snapshots_of(fs)->by_handle, snapshot);
	pthread_mutex_unlock(&snapshots_of(fs)->lock);
	if (snapshot)
		snapshot_put(fs, snapshot);
}

/* snapshot->lock is held. */
static ssize_t snapshot_copy_text(struct fs *fs, struct snapshot *snapshot, char *to, size_t bytes,
				  uint64_t offset)
{
	while (snapshot->file->piece && !snapshot->ended &&
	       offset == snapshot->begin + snapshot->length) {
		int error = snapshot_make_text(fs, snapshot);

		if (error)
			return error;
	}
	if (offset < snapshot->begin || offset >= snapshot->begin + snapshot->length)
		return 0;
	size_t at = (size_t)(offset - snapshot->begin);

	if (bytes > snapshot->length - at)
		bytes = snapshot->length - at;
	memcpy(to, snapshot->text + at, bytes);
	return (ssize_t)bytes;
}

ssize_t snapshot_read(struct fs *fs, uint64_t handle, char *to, size_t bytes, uint64_t offset)
{
	struct snapshot *snapshot = snapshot_get(fs, handle);

	if (!snapshot)
		return -ENOENT;
	pthread_mutex_lock(&snapshot->lock);
	ssize_t n = snapshot_copy_text(fs, snapshot, to, bytes, offset);

	pthread_mutex_unlock(&snapshot->lock);
	snapshot_put(fs, snapshot);
	return n;
}
