/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/deferral.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/channel.h"
#include "fs/fuse/internal.h"
#include "fs/turns/turns.h"

/* Longer requests are writes, or have a value that no slow attribute has. */
#define REQUEST_BYTES_MAX 4096

struct deferral {
	struct turns_job job; /* first */
	struct deferral_notes notes;
	fuse_req_t req; /* unanswered: only for an error */
	int channel;	/* of the worker */
	size_t bytes;
	struct fuse_in_header request[]; /* as the worker read it: the header, then the body */
};

static void deferral_free(struct fs *fs, struct deferral *deferral)
{
	turns_user_put(turns_of(fs), deferral->job.user);
	free(deferral);
}

static void request_serve(struct fs *fs, struct worker *worker, struct deferral *deferral)
{
	struct fuse_buf buf = {.mem = deferral->request, .size = deferral->bytes};

	worker->request_number = deferral->request->unique;
	worker->interrupted = deferral->job.interrupted;
	worker->deferral = deferral;
	fuse_reply_none(deferral->req);
	fuse_session_process_buf(session_of(fs)->fuse, &buf);
	worker->deferral = NULL;
	worker->interrupted = NULL;
	worker->request_number = 0;
}

static void deferral_work(void *context, struct turns_job *job)
{
	struct deferral *deferral = (struct deferral *)job;
	struct fs *fs = context;
	struct worker *worker = worker_self(fs);
	struct log_caller previous =
	    log_caller_change((struct log_caller){true, deferral->request->uid});

	channel_answer_for(deferral->channel);
	if (worker)
		request_serve(fs, worker, deferral);
	else
		fuse_reply_err(deferral->req, ENOMEM);
	log_caller_change(previous);
	deferral_free(fs, deferral);
}

static void deferral_cancel(void *context, struct turns_job *job, int error)
{
	struct deferral *deferral = (struct deferral *)job;
	int channel = channel_current();

	channel_answer_for(deferral->channel);
	fuse_reply_err(deferral->req, -error);
	channel_answer_for(channel);
	deferral_free(context, deferral);
}

bool deferral_begin(struct fs *fs, struct worker *worker, fuse_req_t req,
		    const struct deferral_notes *notes)
{
	const struct fuse_in_header *header = worker->request;

	if (worker->deferral || !header || fs->can.io_uring.on || header->len > REQUEST_BYTES_MAX)
		return false;
	struct deferral *deferral = malloc(sizeof(*deferral) + header->len);
	struct turns_user *user = deferral ? turns_user_get(turns_of(fs), header->uid) : NULL;

	if (!user) {
		free(deferral);
		return false;
	}
	*deferral = (struct deferral){
	    .job = {.work = deferral_work,
		    .cancel = deferral_cancel,
		    .context = fs,
		    .request = header->unique},
	    .notes = *notes,
	    .req = req,
	    .channel = channel_current(),
	    .bytes = header->len,
	};
	memcpy(deferral->request, header, header->len);
	turns_add(turns_of(fs), user, &deferral->job);
	return true;
}

const struct deferral_notes *deferral_notes(const struct deferral *deferral)
{
	return &deferral->notes;
}

void deferral_interrupt(struct fs *fs, const void *message, size_t bytes)
{
	const struct fuse_in_header *header = message;
	struct fuse_interrupt_in in;
	int channel = channel_current();

	if (bytes < sizeof(*header) + sizeof(in))
		return;
	memcpy(&in, header + 1, sizeof(in));
	turns_interrupt(turns_of(fs), in.unique);
	/* The answer to an interrupted lease leaves this thread with the channel of another. */
	channel_answer_for(channel);
}
