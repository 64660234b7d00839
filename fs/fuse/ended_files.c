/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/ended_files.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/background.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/worker.h"
#include "fs/file/export.h"
#include "fs/fuse/internal.h"
#include "fs/share/share.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/tree.h"

struct ended_file {
	struct ended_file *next;
	struct inode *inode; /* with a reference */
};

struct ended_files {
	pthread_mutex_t lock;
	struct ended_file *first; /* lock */
	struct background background;
};

static inline FS_STATE(struct ended_files, ended_files_of, FS_ENDED_FILES)

    int ended_files_open(struct fs *fs)
{
	struct ended_files *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;
	pthread_mutex_init(&files->lock, NULL);
	fs->states[FS_ENDED_FILES] = files;
	return 0;
}

static struct inode *file_take(struct ended_files *files)
{
	scoped_lock(&files->lock);
	struct ended_file *file = files->first;

	if (!file)
		return NULL;
	LL_DELETE(files->first, file);
	struct inode *inode = file->inode;

	free(file);
	return inode;
}

/* Those that are left are ended by the next daemon. */
void ended_files_leave(struct fs *fs)
{
	struct inode *inode;

	while ((inode = file_take(ended_files_of(fs))))
		inode_put(fs, inode, 1);
}

void ended_files_close(struct fs *fs)
{
	struct ended_files *files = ended_files_of(fs);

	pthread_mutex_destroy(&files->lock);
	free(files);
}

/* Without a wait for anything that needs an answer of the daemon. The kernel does not remember the
 * names of such files (op_entry), so it is not told of them: to forget a name it waits for a lock
 * that a process has which looks up another name in the directory. If the daemon were killed during
 * that wait, it could not end, and the keeper would start no other. */
static void attributes_changed(const struct session *session, const struct inode *inode)
{
	fuse_lowlevel_notify_inval_inode(session->fuse, inode->ino, -1, 0);
}

/* A rename may take a name from one directory to another meanwhile. */
static void names_end(const struct session *session, struct inode *inode)
{
	char name[NAME_MAX + 1];
	struct inode *parent;
	int error = 0;

	while ((!error || error == -ENOENT) && (parent = tree_name(inode, name))) {
		error = tree_unlink_inode(session->fs, parent, name, inode);
		attributes_changed(session, parent);
		inode_put(session->fs, parent, 1);
	}
	attributes_changed(session, inode);
}

static void file_end_now(const struct session *session, struct inode *inode)
{
	struct inode_call call;

	share_tell_end(session->fs, inode);
	names_end(session, inode);
	inode_call_init(&call, session->fs, inode, worker_copier(session->fs));
	file_adopted_free(inode->file, &call.call);
	inode_put(session->fs, inode, 1);
}

static void ended_files_work(struct background *background)
{
	const struct session *session = background->context;
	struct ended_files *files = ended_files_of(session->fs);
	struct inode *inode;

	do {
		while (!atomic_load(&background->stopping) && (inode = file_take(files)))
			file_end_now(session, inode);
	} while (background_wait(background, -1));
	worker_end();
}

void ended_files_start(struct session *session)
{
	struct ended_files *files = ended_files_of(session->fs);

	if (files && background_start(&files->background, ended_files_work, session))
		log_warn("cannot start the thread that removes files whose process has ended");
}

void ended_files_stop(struct session *session)
{
	struct ended_files *files = ended_files_of(session->fs);

	if (files)
		background_stop(&files->background);
}

/* Without memory for the list the file has no bytes either, and the next daemon ends it. */
static void producer_ended(struct fs *fs, struct inode *inode)
{
	struct ended_files *files = ended_files_of(fs);
	struct ended_file *file;

	if (!file_adopted_end(inode->file))
		return;
	file = malloc(sizeof(*file));
	if (!file)
		return;
	inode_ref(inode);
	file->inode = inode;
	pthread_mutex_lock(&files->lock);
	LL_PREPEND(files->first, file);
	pthread_mutex_unlock(&files->lock);
	background_wake(&files->background);
}

const struct inode_hooks ended_files_hooks = {.producer_ended = producer_ended};
