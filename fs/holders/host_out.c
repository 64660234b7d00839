/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/holders/host_out.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/export.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"

/* A check takes several system calls, some 2 us in all. */
#define CHECK_MS 500

struct host_out {
	struct host_out *prev, *next;
	uint64_t ino;
	struct inode *held; /* HOST_LISTED_REFERENCE: with a reference; else NULL */
};

static FS_STATE(struct host_outs, host_outs_of, FS_HOST_OUTS)

    int host_outs_open(struct fs *fs)
{
	struct host_outs *outs = calloc(1, sizeof(*outs));

	if (!outs)
		return -ENOMEM;
	pthread_mutex_init(&outs->lock, NULL);
	fs->states[FS_HOST_OUTS] = outs;
	return 0;
}

void host_outs_close(struct fs *fs)
{
	pthread_mutex_destroy(&host_outs_of(fs)->lock);
	free(host_outs_of(fs));
}

/* The memory is allocated already, so quotas cannot refuse. */
static void charge_update(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, NULL);
	call.overdraft = true;
	file_update_accounting(inode->file, &call.call);
}

static void out_append(struct host_outs *outs, struct host_out *out)
{
	scoped_lock(&outs->lock);
	bool thread_sleeps = !outs->first && !outs->checking;

	DL_APPEND(outs->first, out);
	if (thread_sleeps)
		background_wake(&outs->background);
}

static struct host_out *outs_take_all(struct host_outs *outs)
{
	scoped_lock(&outs->lock);
	struct host_out *all = outs->first;

	outs->first = NULL;
	outs->checking = true;
	return all;
}

static enum host_listing out_listing(const struct host_out *out)
{
	return out->held ? HOST_LISTED_REFERENCE : HOST_LISTED_NUMBER;
}

/* Raises the inode's listing; false if the inode is listed so, or better, already. */
static bool listing_raise(struct inode *inode, enum host_listing listing)
{
	uint8_t old_listing = atomic_load(&inode->unseen.listing);

	while (old_listing < listing)
		if (atomic_compare_exchange_weak(&inode->unseen.listing, &old_listing, listing))
			return true;
	return false;
}

void host_out_update_accounting(struct fs *fs, struct inode *inode)
{
	enum host_listing listing =
	    file_was_leased(inode->file) ? HOST_LISTED_REFERENCE : HOST_LISTED_NUMBER;

	if (!file_is_out(inode->file))
		return;
	charge_update(fs, inode);
	if (!file_is_out(inode->file) || !listing_raise(inode, listing))
		return;
	struct host_out *out = malloc(sizeof(*out));

	/* Without memory for the entry the file stays charged until the next open and close. */
	if (!out) {
		atomic_store(&inode->unseen.listing, HOST_NOT_LISTED);
		return;
	}
	*out = (struct host_out){.ino = inode->ino};
	if (listing == HOST_LISTED_REFERENCE) {
		inode_ref(inode);
		out->held = inode;
	}
	out_append(host_outs_of(fs), out);
}

static void out_free(struct fs *fs, struct host_out *out)
{
	if (out->held)
		inode_put(fs, out->held, 1);
	free(out);
}

/* Whether the entry stays in the list. */
static bool out_check(struct fs *fs, const struct host_out *out, struct inode *inode)
{
	uint8_t listing = out_listing(out);

	/* A lease came later, and with the lease another entry. */
	if (atomic_load(&inode->unseen.listing) != listing)
		return false;
	charge_update(fs, inode);
	if (file_is_out(inode->file))
		return true;
	/* A lease or handle that ended meanwhile saw the inode listed and added no entry. */
	if (atomic_compare_exchange_strong(&inode->unseen.listing, &listing, HOST_NOT_LISTED))
		host_out_update_accounting(fs, inode);
	return false;
}

static void host_outs_check(struct fs *fs)
{
	struct host_outs *outs = host_outs_of(fs);
	struct host_out *all = outs_take_all(outs), *remaining = NULL, *out, *next;

	LL_FOREACH_SAFE (all, out, next) {
		struct inode *inode = inode_table_get(fs->inodes, out->ino);

		if (inode && out_check(fs, out, inode))
			DL_APPEND(remaining, out);
		else
			out_free(fs, out);
		if (inode)
			inode_put(fs, inode, 1);
	}
	scoped_lock(&outs->lock);
	DL_CONCAT(remaining, outs->first);
	outs->first = remaining;
	outs->checking = false;
}

static bool outs_are_empty(struct host_outs *outs)
{
	scoped_lock(&outs->lock);
	return !outs->first;
}

static void host_outs_work(struct background *background)
{
	struct fs *fs = background->context;

	while (background_wait(background, outs_are_empty(host_outs_of(fs)) ? -1 : CHECK_MS))
		host_outs_check(fs);
	worker_end();
}

int host_outs_start(struct fs *fs)
{
	return background_start(&host_outs_of(fs)->background, host_outs_work, fs);
}

void host_outs_end(struct fs *fs)
{
	struct host_out *all, *out, *next;

	background_stop(&host_outs_of(fs)->background);
	all = outs_take_all(host_outs_of(fs));
	LL_FOREACH_SAFE (all, out, next) {
		out_free(fs, out);
	}
}
