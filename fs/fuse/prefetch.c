/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/prefetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/internal.h"
#include "fs/share/share.h"
#include "fs/tree/inode.h"

/* A program that has read so much without a gap is expected to read on. */
#define BEGIN (32ULL << 20)
/* As much again as was read, so that never more is filled in vain than was read, up to this. */
#define STEP_MAX (1ULL << 30)
/* The requests of two windows of the kernel's readahead arrive in any order. */
#define TOLERANCE (16ULL << 20)
/* Bytes that are asked for and not answered yet: other programs' requests wait behind them, 1 ms.
 */
#define PENDING_MAX (32ULL << 20)
/* The kernel's default window. */
#define WINDOW	(128ULL << 10)
#define WAIT_MS 1
#define WAITS	4

static bool stream_has(const struct prefetch_stream *stream, uint64_t ino, uint64_t offset)
{
	uint64_t end = stream->filled > stream->end ? stream->filled : stream->end;

	return stream->ino == ino && offset + TOLERANCE >= stream->end && offset <= end + TOLERANCE;
}

static struct prefetch_stream *stream_find(struct prefetch *prefetch, uint64_t ino, uint64_t offset)
{
	struct prefetch_stream *oldest = prefetch->streams;

	for (unsigned i = 0; i < PREFETCH_STREAMS; i++) {
		struct prefetch_stream *stream = &prefetch->streams[i];
		if (stream_has(stream, ino, offset))
			return stream;
		if (stream->used < oldest->used)
			oldest = stream;
	}
	*oldest = (struct prefetch_stream){.ino = ino, .start = offset, .end = offset};
	return oldest;
}

bool prefetch_note(struct prefetch *prefetch, const struct prefetch_job *request, uint64_t size)
{
	struct prefetch_stream *stream = stream_find(prefetch, request->ino, request->from);

	stream->used = ++prefetch->clock;
	if (request->from < stream->start)
		stream->start = request->from;
	if (request->to > stream->end)
		stream->end = request->to;
	uint64_t next = stream->filled > stream->end ? stream->filled : stream->end;
	uint64_t read = stream->end - stream->start;
	if (read < BEGIN || stream->end + TOLERANCE < next || next >= size)
		return false;
	uint64_t step = read < STEP_MAX ? read : STEP_MAX;
	stream->filled = step < size - next ? next + step : size;
	stream->job = (struct prefetch_job){request->ino, next, stream->filled, request->reader};
	return true;
}

static bool job_take(struct prefetch *prefetch, struct prefetch_job *job)
{
	scoped_lock(&prefetch->lock);
	for (unsigned i = 0; i < PREFETCH_STREAMS; i++) {
		if (!prefetch->streams[i].job.to)
			continue;
		*job = prefetch->streams[i].job;
		prefetch->streams[i].job.to = 0;
		return true;
	}
	return false;
}

/* Where a process has mapped the job's first byte. The job ends where the mapping ends. */
static char *mapping_find(const struct session *session, pid_t process, struct prefetch_job *job)
{
	char path[40], *line AUTO_FREE = NULL;
	size_t room = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", process);
	FILE *maps AUTO_FCLOSE = fopen(path, "re");
	while (maps && getline(&line, &room, maps) > 0) {
		struct maps_line found = maps_line_parse(line);
		uint64_t bytes = found.end - found.start;

		if (found.device != session->device || found.inode != job->ino ||
		    found.offset > job->from || job->from - found.offset >= bytes)
			continue;
		if (job->to - found.offset > bytes)
			job->to = found.offset + bytes;
		return (char *)(uintptr_t)found.start + (job->from - found.offset);
	}
	return NULL;
}

/* Waits for the answers to the calls before. Pages that were there cause no requests, so the wait
 * is short. False: the thread must end. */
static bool job_wait(struct prefetch *prefetch, uint64_t *bytes_requested)
{
	bool runs = true;

	for (int i = 0;
	     i < WAITS && runs && *bytes_requested > atomic_load(&prefetch->answered) + PENDING_MAX;
	     i++)
		runs = background_wait(&prefetch->background, WAIT_MS);
	if (*bytes_requested > atomic_load(&prefetch->answered) + PENDING_MAX)
		*bytes_requested = atomic_load(&prefetch->answered);
	return runs;
}

/* The kernel fills at most one window of its readahead for a call. */
static uint64_t window_of(const struct fs *fs)
{
	uint64_t bytes = atomic_load(&fs->can.readahead);

	return bytes ? bytes : WINDOW;
}

static void job_run(const struct session *session, struct prefetch *prefetch,
		    struct prefetch_job *job)
{
	uint64_t bytes_requested = atomic_load(&prefetch->answered),
		 window = window_of(session->fs);
	pid_t process = caller_process(job->reader);
	char *address = process ? mapping_find(session, process, job) : NULL;
	AUTO_CLOSE int pidfd = address ? (int)syscall(SYS_pidfd_open, process, 0) : -1;

	while (pidfd >= 0 && job->from < job->to && job_wait(prefetch, &bytes_requested)) {
		uint64_t bytes = job->to - job->from < window ? job->to - job->from : window;
		struct iovec range = {address, bytes};

		if (syscall(SYS_process_madvise, pidfd, &range, 1, MADV_WILLNEED, 0) < 0) {
			log_debug("no pages ahead of process %d: %s", process, strerror(errno));
			return;
		}
		job->from += bytes;
		address += bytes;
		bytes_requested += bytes;
	}
}

static void prefetch_work(struct background *background)
{
	struct session *session = background->context;
	struct prefetch *prefetch = &session->prefetch;
	struct prefetch_job job;

	atomic_store(&prefetch->thread, gettid());
	while (background_wait(background, -1))
		while (job_take(prefetch, &job))
			job_run(session, prefetch, &job);
}

void prefetch_start(struct session *session)
{
	struct prefetch *prefetch = &session->prefetch;

	pthread_mutex_init(&prefetch->lock, NULL);
	if (background_start(&prefetch->background, prefetch_work, session))
		log_warn("cannot start the thread that fills pages of mapped files");
}

void prefetch_stop(struct session *session)
{
	struct prefetch *prefetch = &session->prefetch;

	pthread_mutex_lock(&prefetch->lock);
	prefetch->stopping = true;
	pthread_mutex_unlock(&prefetch->lock);
	background_stop(&prefetch->background);
}

/* A GPU or a writer may change the file, and then later pages should show the change. */
static bool inode_is_still(struct fs *fs, struct inode *inode)
{
	pthread_mutex_lock(&inode->lock);
	bool leased = inode->uses.leases, written = inode->uses.writers;
	pthread_mutex_unlock(&inode->lock);

	return !written && !(leased && share_stores(fs, inode));
}

void session_page_read(struct session *session, struct inode *inode, pid_t reader, uint64_t offset,
		       size_t bytes)
{
	struct prefetch *prefetch = &session->prefetch;
	struct prefetch_job request = {inode->ino, offset, offset + bytes, reader};

	if (!atomic_load(&prefetch->thread) || !reader)
		return;
	if (reader == atomic_load(&prefetch->thread)) {
		atomic_fetch_add(&prefetch->answered, bytes);
		return;
	}
	if (!inode_is_still(session->fs, inode))
		return;
	scoped_lock(&prefetch->lock);
	if (!prefetch->stopping && prefetch_note(prefetch, &request, file_size(inode->file)))
		background_wake(&prefetch->background);
}
