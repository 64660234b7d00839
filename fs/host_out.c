/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/host_out.h"

#include <stdlib.h>

#include "common/defer.h"
#include "fs/fs.h"
#include "fs/worker.h"

/* At a time: each is some system calls. */
#define LOOKS_MAX 512

struct host_out {
	struct host_out *next;
	struct inode *inode; /* a reference */
};

void host_outs_init(struct host_outs *outs)
{
	*outs = (struct host_outs){0};
	pthread_mutex_init(&outs->lock, NULL);
}

static void settle(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	call.overdraft = true;
	file_settle(inode->file, &call.call);
}

/* At the end, so that all have their turn. */
static void put_last(struct host_outs *outs, struct host_out *out)
{
	struct host_out **link = &outs->first;

	LOCKED(&outs->lock);
	while (*link)
		link = &(*link)->next;
	out->next = NULL;
	*link = out;
}

static struct host_out *take_first(struct host_outs *outs)
{
	LOCKED(&outs->lock);
	struct host_out *out = outs->first;

	if (out)
		outs->first = out->next;
	return out;
}

/* Whether the file is to be looked at again. Not one without a name or a handle: the last reference
 * may be the one here, the file's end gives back what the file is charged for, and a program that
 * still has the object has the memory from the kernel alone. */
static bool is_out(struct inode *inode)
{
	LOCKED(&inode->lock);
	return (inode->nlink || inode->opens) && file_is_given(inode->file);
}

void host_out_settle(struct fs *fs, struct inode *inode)
{
	if (!file_is_given(inode->file))
		return;
	settle(fs, inode);
	if (!is_out(inode) || atomic_exchange(&inode->out, true))
		return;
	struct host_out *out = malloc(sizeof(*out));

	/* Without memory for it: charged until it is opened and closed the next time. */
	if (!out) {
		atomic_store(&inode->out, false);
		return;
	}
	inode_ref(inode);
	out->inode = inode;
	put_last(&fs->outs, out);
}

static void end(struct fs *fs, struct host_out *out)
{
	inode_put(fs, out->inode, 1);
	free(out);
}

void host_outs_look(struct fs *fs)
{
	struct host_out *again = NULL, *out;

	for (unsigned i = 0; i < LOOKS_MAX && (out = take_first(&fs->outs)); i++) {
		settle(fs, out->inode);
		if (is_out(out->inode)) {
			out->next = again;
			again = out;
			continue;
		}
		atomic_store(&out->inode->out, false);
		/* Whoever gave it out again in between did not note it. */
		host_out_settle(fs, out->inode);
		end(fs, out);
	}
	while (again) {
		out = again;
		again = out->next;
		put_last(&fs->outs, out);
	}
}

void host_outs_end(struct fs *fs)
{
	struct host_out *out;

	while ((out = take_first(&fs->outs)))
		end(fs, out);
}
