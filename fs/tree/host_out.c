/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/host_out.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/file.h"
#include "fs/tree/inode.h"

/* Files checked per call: every check takes several system calls. */
#define CHECKS_MAX 512

struct host_out {
	struct host_out *prev, *next;
	struct inode *inode; /* holds a reference */
};

int host_outs_open(struct fs *fs)
{
	fs->outs = calloc(1, sizeof(*fs->outs));
	if (!fs->outs)
		return -ENOMEM;
	pthread_mutex_init(&fs->outs->lock, NULL);
	return 0;
}

void host_outs_close(struct fs *fs)
{
	pthread_mutex_destroy(&fs->outs->lock);
	free(fs->outs);
}

static void charge_update(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	call.overdraft = true;
	file_update_accounting(inode->file, &call.call);
}

static void out_append(struct host_outs *outs, struct host_out *out)
{
	scoped_lock(&outs->lock);
	DL_APPEND(outs->first, out);
}

static struct host_out *out_take_first(struct host_outs *outs)
{
	scoped_lock(&outs->lock);
	struct host_out *out = outs->first;

	if (out)
		DL_DELETE(outs->first, out);
	return out;
}

void host_out_update_accounting(struct fs *fs, struct inode *inode)
{
	if (!file_is_out(inode->file))
		return;
	charge_update(fs, inode);
	if (!file_is_out(inode->file) || atomic_exchange(&inode->out, true))
		return;
	struct host_out *out = malloc(sizeof(*out));

	/* Without memory for the entry the file stays charged until the next open and close. */
	if (!out) {
		atomic_store(&inode->out, false);
		return;
	}
	inode_ref(inode);
	out->inode = inode;
	out_append(fs->outs, out);
}

static void host_out_free(struct fs *fs, struct host_out *out)
{
	inode_put(fs, out->inode, 1);
	free(out);
}

void host_outs_check(struct fs *fs)
{
	struct host_out *again = NULL, *out, *next;

	for (unsigned i = 0; i < CHECKS_MAX && (out = out_take_first(fs->outs)); i++) {
		charge_update(fs, out->inode);
		if (file_is_out(out->inode->file)) {
			LL_PREPEND(again, out);
			continue;
		}
		atomic_store(&out->inode->out, false);
		/* A lease or handle that ended meanwhile saw inode->out still set and added no
		 * entry. */
		host_out_update_accounting(fs, out->inode);
		host_out_free(fs, out);
	}
	LL_FOREACH_SAFE (again, out, next) {
		out_append(fs->outs, out);
	}
}

void host_outs_end(struct fs *fs)
{
	struct host_out *out;

	while ((out = out_take_first(fs->outs)))
		host_out_free(fs, out);
}
