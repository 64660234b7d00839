/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/access_log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/channel.h"
#include "fs/keeper/fdstore.h"
#include "fs/trace/access_log.h"
#include "fs/trace/observe.h"

#define ANSWER_BYTES 65536

/* How often the thread checks waiting readers for a signal. FUSE interrupts are turned off, because
 * with them libfuse takes a lock of all workers for each request. */
#define TICK_MS 200

struct reader_slot {
	uint64_t handle; /* 0: the slot is free */
	struct access_reader *reader;
	fuse_req_t waiting; /* a read without an answer yet, or NULL */
	size_t bytes;	    /* the size of that read */
	pid_t pid;	    /* of the reader */
	int channel;	    /* through which the read came */
};

struct access_file {
	struct fs *fs;
	pthread_t thread;
	bool running;
	/* Of all below. Not held across a reply, as libfuse has its own locks there. */
	pthread_mutex_t lock;
	bool ended;
	uint64_t last_handle;
	struct reader_slot slots[ACCESS_READERS_MAX];
};

/* The answer to a reader, sent after the lock is released. */
struct answer {
	fuse_req_t req;
	int channel;
	int error; /* if length is 0 */
	size_t length;
	char text[ANSWER_BYTES];
};

static FS_STATE(struct access_file, access_file_of, FS_ACCESS_FILE)

    static struct reader_slot *slot_find(struct access_file *file, uint64_t handle)
{
	for (unsigned i = 0; i < ACCESS_READERS_MAX; i++)
		if (file->slots[i].handle == handle)
			return &file->slots[i];
	return NULL;
}

/* Whether a reader's waiting request is answered now; file->lock is held. */
static bool slot_answer(struct access_file *file, struct reader_slot *slot, struct answer *answer)
{
	struct access_log *log = access_log_of(file->fs);

	if (!slot->waiting)
		return false;
	answer->length = access_log_take(log, slot->reader, answer->text,
					 slot->bytes < ANSWER_BYTES ? slot->bytes : ANSWER_BYTES);
	if (!answer->length && !file->ended && !caller_has_signal(slot->pid))
		return false;
	answer->error = file->ended ? 0 : EINTR;
	answer->req = slot->waiting;
	answer->channel = slot->channel;
	slot->waiting = NULL;
	return true;
}

static void answer_send(const struct answer *answer)
{
	channel_answer_for(answer->channel);
	if (answer->length || !answer->error)
		fuse_reply_buf(answer->req, answer->text, answer->length);
	else
		fuse_reply_err(answer->req, answer->error);
}

/* Whether a reader still waits for lines. *ended: no more lines will come. */
static bool slots_answer(struct access_file *file, struct answer *answer, bool *ended)
{
	bool waiting = false;

	for (unsigned i = 0; i < ACCESS_READERS_MAX; i++) {
		struct reader_slot *slot = &file->slots[i];

		pthread_mutex_lock(&file->lock);
		bool answered = slot->handle && slot_answer(file, slot, answer);

		waiting = waiting || slot->waiting;
		*ended = file->ended;
		pthread_mutex_unlock(&file->lock);
		if (answered)
			answer_send(answer);
	}
	return waiting;
}

static void *access_log_thread_main(void *pointer)
{
	struct access_file *file = pointer;
	struct answer *answer = malloc(sizeof(*answer));
	bool ended = !answer, waiting = false;
	uint64_t seen = 0;

	while (!ended) {
		access_log_wait(access_log_of(file->fs), &seen, waiting ? TICK_MS : -1);
		waiting = slots_answer(file, answer, &ended);
	}
	free(answer);
	return NULL;
}

int access_file_new(struct fs *fs)
{
	struct access_file *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	file->fs = fs;
	file->last_handle = fdstore_generation(fs->fdstore) << FDSTORE_GENERATION_SHIFT;
	pthread_mutex_init(&file->lock, NULL);
	fs->states[FS_ACCESS_FILE] = file;
	return 0;
}

void access_file_end(struct fs *fs)
{
	struct access_file *file = access_file_of(fs);

	pthread_mutex_lock(&file->lock);
	bool running = file->running && !file->ended;

	file->ended = true;
	pthread_mutex_unlock(&file->lock);
	if (!running)
		return;
	access_log_wake(access_log_of(fs));
	pthread_join(file->thread, NULL);
}

void access_file_free(struct fs *fs)
{
	struct access_file *file = access_file_of(fs);

	if (!file)
		return;
	access_file_end(fs);
	for (unsigned i = 0; i < ACCESS_READERS_MAX; i++) {
		if (file->slots[i].handle)
			access_log_close(access_log_of(fs), file->slots[i].reader);
	}
	pthread_mutex_destroy(&file->lock);
	free(file);
	fs->states[FS_ACCESS_FILE] = NULL;
}

/* file->lock is held. The thread runs until the end of the mount: a release that joined the thread
 * could be the request that the thread waits for. */
static int slot_open(struct access_file *file, uint64_t *handle)
{
	struct reader_slot *slot = slot_find(file, 0);

	if (!slot)
		return -ENFILE;
	if (!file->running && !file->ended) {
		int error = pthread_create(&file->thread, NULL, access_log_thread_main, file);

		if (error)
			return -error;
		file->running = true;
	}
	int error = access_log_open(access_log_of(file->fs), &slot->reader);

	if (error)
		return error;
	slot->handle = *handle = ++file->last_handle;
	atomic_fetch_or(&file->fs->observers, OBSERVE_ACCESS);
	return 0;
}

/* No read of the handle waits: the kernel keeps the file open during a read. */
static void slot_close(struct access_file *file, uint64_t handle)
{
	scoped_lock(&file->lock);
	struct reader_slot *slot = handle ? slot_find(file, handle) : NULL;

	if (slot) {
		if (access_log_close(access_log_of(file->fs), slot->reader))
			atomic_fetch_and(&file->fs->observers, ~(unsigned)OBSERVE_ACCESS);
		*slot = (struct reader_slot){0};
	}
}

void access_file_open(fuse_req_t req, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);
	struct access_file *file = access_file_of(fs);

	pthread_mutex_lock(&file->lock);
	int error = slot_open(file, &info->fh);

	pthread_mutex_unlock(&file->lock);
	if (error) {
		fuse_reply_err(req, -error);
		return;
	}
	info->direct_io = 1;
	info->nonseekable = 1;
	if (fuse_reply_open(req, info))
		slot_close(file, info->fh);
}

enum { READ_LATER = 1 };

/* file->lock is held: 0 with *length bytes, READ_LATER where the request waits, or -errno. */
static int slot_read(struct access_file *file, fuse_req_t req, const struct fuse_file_info *info,
		     char *to, size_t bytes, size_t *length)
{
	struct reader_slot *slot = info->fh ? slot_find(file, info->fh) : NULL;

	*length = 0;
	if (!slot)
		return 0; /* an earlier daemon opened the handle: end of file */
	if (slot->waiting)
		return -EBUSY;
	*length = access_log_take(access_log_of(file->fs), slot->reader, to, bytes);
	if (*length || file->ended)
		return 0;
	if (info->flags & O_NONBLOCK)
		return -EAGAIN;
	slot->waiting = req;
	slot->bytes = bytes;
	slot->pid = fuse_req_ctx(req)->pid;
	slot->channel = channel_current();
	return READ_LATER;
}

void access_file_read(fuse_req_t req, size_t bytes, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);
	struct access_file *file = access_file_of(fs);
	struct worker *worker = worker_self(fs);
	size_t length;

	if (!worker) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (bytes > worker->reply_bytes)
		bytes = worker->reply_bytes;
	pthread_mutex_lock(&file->lock);
	int error = slot_read(file, req, info, worker->reply, bytes, &length);

	pthread_mutex_unlock(&file->lock);
	if (error == READ_LATER)
		access_log_wake(access_log_of(fs));
	else if (error)
		fuse_reply_err(req, -error);
	else
		fuse_reply_buf(req, worker->reply, length);
}

void access_file_release(fuse_req_t req, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	slot_close(access_file_of(fs), info->fh);
}
