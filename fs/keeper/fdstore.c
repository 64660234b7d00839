/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/descriptors.h"
#include "fs/core/timeline.h"
#include "fs/keeper/ipc.h"
#include "fs/keeper/systemd_fdstore.h"

/* After this many replacements of a keeper the daemon starts no further keeper. */
#define REPLACEMENTS_MAX 100

struct fdstore {
	pthread_mutex_t lock; /* protects all below, and covers each request with its answer */
	int ipc;
	char **argv;
	uint64_t generation, holds_max;
	unsigned flags;
	char wanted_gpu[IPC_TEXT_BYTES];
	int64_t seen_us, reaped_us; /* when the previous daemon ended, from IPC_GO */
	unsigned replacements;
	pid_t started;	      /* the keeper's process, if this daemon started it; 0 */
	_Atomic pid_t keeper; /* 0: the keeper has ended */
	/* A duplicate of each descriptor, for a new keeper if this keeper is killed. */
	struct fd_table held;
	bool gathered; /* held has all descriptors that the keeper has */
	bool full;     /* a warning has said that no more are held */
};

/* lock held. Succeeds if the keeper has ended: fdstore_replace gives all of held to the next
 * keeper. */
static int fdstore_send(struct fdstore *fdstore, enum ipc_type type, uint64_t id, int fd)
{
	struct ipc_message message = ipc_message(type, id);

	message.value = fdstore->generation;
	int error = ipc_send(fdstore->ipc, &message, fd);

	return error == -EPIPE || error == -EBADF ? 0 : error;
}

/* lock held. The answer's type, or -errno. */
static int fdstore_request(struct fdstore *fdstore, enum ipc_type type, uint64_t id,
			   struct ipc_message *answer, int *fd)
{
	struct ipc_message message = ipc_message(type, id);
	int error = ipc_send(fdstore->ipc, &message, -1);

	if (!error)
		error = ipc_receive(fdstore->ipc, answer, fd);
	return error ? error : answer->type;
}

/* lock held. Returns when the keeper has read all earlier messages. */
static void fdstore_sync(struct fdstore *fdstore)
{
	struct ipc_message answer;
	int fd = -1;

	if (fdstore_request(fdstore, IPC_SYNC, 0, &answer, &fd) > 0 && fd >= 0)
		close(fd);
}

/* lock held. The kernel bounds the descriptors that an ordinary user has in flight (ETOOMANYREFS):
 * then wait until the keeper has read them. */
static int fdstore_send_hold(struct fdstore *fdstore, uint64_t id, int fd)
{
	int error = fdstore_send(fdstore, IPC_HOLD, id, fd);

	if (error != -ETOOMANYREFS)
		return error;
	fdstore_sync(fdstore);
	return fdstore_send(fdstore, IPC_HOLD, id, fd);
}

/* lock held. Puts fd into held, or closes fd. */
static int held_put(struct fdstore *fdstore, uint64_t id, int fd)
{
	int error = fd < 0 ? -errno : fd_table_put(&fdstore->held, id, fd);

	if (error && fd >= 0)
		close(fd);
	return error;
}

static enum descriptor_use descriptor_use_of(uint64_t id)
{
	switch (fdstore_kind_of(id)) {
	case FDSTORE_CHUNK:
	case FDSTORE_HOST:
		return DESCRIPTOR_MEMORY;
	case FDSTORE_SOCKET:
	case FDSTORE_PROCESS:
		return DESCRIPTOR_CONNECTION;
	default:
		return DESCRIPTOR_OWN;
	}
}

/* lock held. */
static int fdstore_refuse(struct fdstore *fdstore)
{
	if (!fdstore->full)
		log_warn("the daemon and its keeper hold %u descriptors of memory and "
			 "connections, and their limit of open files (ulimit -n, LimitNOFILE=) "
			 "allows no more: files get no more memory until others are removed",
			 fdstore->held.count);
	fdstore->full = true;
	return -EMFILE;
}

int fdstore_hold(struct fdstore *fdstore, uint64_t id, int fd)
{
	if (!fdstore)
		return 0;
	enum descriptor_use use = descriptor_use_of(id);

	scoped_lock(&fdstore->lock);
	if (fdstore->held.count >= descriptors_for(use, fdstore->holds_max))
		return fdstore_refuse(fdstore);
	int error =
	    held_put(fdstore, id, descriptor_unreserved(use, fcntl(fd, F_DUPFD_CLOEXEC, 3)));

	if (error)
		return error == -EMFILE ? fdstore_refuse(fdstore) : error;
	error = fdstore_send_hold(fdstore, id, fd);
	if (error) {
		fd_table_drop(&fdstore->held, id);
		return error;
	}
	fdstore->full = false;
	/* A message that the keeper has not read is lost when keeper and daemon are killed
	 * together; the service manager's copy is not. */
	store_add(id, fd);
	return 0;
}

void fdstore_drop(struct fdstore *fdstore, uint64_t id)
{
	if (!fdstore)
		return;
	scoped_lock(&fdstore->lock);
	if (fd_table_drop(&fdstore->held, id) == 0)
		fdstore_send(fdstore, IPC_DROP, id, -1);
}

void fdstore_wait_idle(struct fdstore *fdstore)
{
	if (!fdstore)
		return;
	scoped_lock(&fdstore->lock);
	fdstore_sync(fdstore);
}

/* lock held. */
static int held_take(const struct fdstore *fdstore, uint64_t id)
{
	int fd = fd_table_get(&fdstore->held, id);

	if (fd >= 0)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd == -1 ? -errno : fd;
}

int fdstore_take(struct fdstore *fdstore, uint64_t id)
{
	struct ipc_message answer;
	int fd = -1;

	if (!fdstore)
		return -ENOENT;
	scoped_lock(&fdstore->lock);
	if (fdstore->gathered)
		return held_take(fdstore, id);
	int type = fdstore_request(fdstore, IPC_TAKE, id, &answer, &fd);

	if (type == IPC_HELD && fd >= 0 && answer.id == id) {
		int error = held_put(fdstore, id, fcntl(fd, F_DUPFD_CLOEXEC, 3));

		if (!error)
			return fd;
		type = error;
	}
	if (fd >= 0)
		close(fd);
	return type == IPC_NONE ? -ENOENT : type < 0 ? type : -EPROTO;
}

/* lock held. As fdstore_next, from the keeper. */
static int fdstore_request_next(struct fdstore *fdstore, uint64_t *id, uint64_t end, int *fd)
{
	struct ipc_message answer;
	int type = fdstore_request(fdstore, IPC_NEXT, *id, &answer, fd);

	if (type == IPC_HELD && *fd >= 0 && answer.id > *id && answer.id < end) {
		int error = held_put(fdstore, answer.id, *fd);

		*id = answer.id;
		return error ? error : IPC_HELD;
	}
	if (*fd >= 0)
		close(*fd);
	if (type == IPC_NONE || (type == IPC_HELD && answer.id >= end))
		return IPC_NONE;
	return type < 0 ? type : -EPROTO;
}

/* The first descriptor after *id and before end: IPC_HELD, IPC_NONE or -errno. */
static int fdstore_next(struct fdstore *fdstore, uint64_t *id, uint64_t end, int *fd)
{
	scoped_lock(&fdstore->lock);
	if (!fdstore->gathered)
		return fdstore_request_next(fdstore, id, end, fd);
	return fd_table_next(&fdstore->held, *id, id, fd) || *id >= end ? IPC_NONE : IPC_HELD;
}

static int fdstore_walk(struct fdstore *fdstore, uint64_t id, uint64_t end,
			int (*visit)(uint64_t id, int fd, void *arg), void *arg)
{
	while (fdstore) {
		int fd = -1, rc = fdstore_next(fdstore, &id, end, &fd);

		if (rc != IPC_HELD)
			return rc == IPC_NONE ? 0 : rc;
		rc = visit(id, fd, arg);
		if (rc)
			return rc;
	}
	return 0;
}

int fdstore_each(struct fdstore *fdstore, int (*visit)(uint64_t id, int fd, void *arg), void *arg)
{
	return fdstore_walk(fdstore, 0, UINT64_MAX, visit, arg);
}

int fdstore_each_of(struct fdstore *fdstore, enum fdstore_kind kind,
		    int (*visit)(uint64_t id, int fd, void *arg), void *arg)
{
	return fdstore_walk(fdstore, fdstore_id(kind, 0) - 1, fdstore_id(kind + 1, 0), visit, arg);
}

static int ops_hold(void *fdstore, uint64_t id, int fd)
{
	return fdstore_hold(fdstore, id, fd);
}

static void ops_drop(void *fdstore, uint64_t id)
{
	fdstore_drop(fdstore, id);
}

static int ops_take(void *fdstore, uint64_t id)
{
	return fdstore_take(fdstore, id);
}

static int ops_each(void *fdstore, int (*visit)(uint64_t id, int fd, void *arg), void *arg)
{
	return fdstore_each(fdstore, visit, arg);
}

struct fdstore_ops fdstore_ops(struct fdstore *fdstore)
{
	return (struct fdstore_ops){.context = fdstore,
				    .hold = ops_hold,
				    .drop = ops_drop,
				    .take = ops_take,
				    .each = ops_each};
}

static int descriptor_ignore(uint64_t id, int fd, void *arg)
{
	(void)id, (void)fd, (void)arg;
	return 0;
}

int fdstore_gather(struct fdstore *fdstore)
{
	int error = fdstore_each(fdstore, descriptor_ignore, NULL);

	if (error)
		log_error("cannot get the descriptors that the keeper holds: %s", strerror(-error));
	else if (fdstore)
		fdstore->gathered = true;
	return error;
}

/* Reads the keeper's first message. */
static int fdstore_welcome(struct fdstore *fdstore)
{
	struct ipc_message message;
	int fd, error = ipc_receive(fdstore->ipc, &message, &fd);

	if (error)
		return error;
	if (fd >= 0)
		close(fd);
	if (message.type != IPC_WELCOME)
		return -EPROTO;
	fdstore->holds_max = message.value;
	fdstore->flags = message.flags;
	memcpy(fdstore->wanted_gpu, message.text, sizeof(fdstore->wanted_gpu));
	if (message.id)
		fdstore->generation = message.id;
	return 0;
}

int fdstore_open(int ipc, char **argv, struct fdstore **opened)
{
	struct fdstore *fdstore = calloc(1, sizeof(*fdstore));

	if (!fdstore)
		return -ENOMEM;
	pthread_mutex_init(&fdstore->lock, NULL);
	fdstore->ipc = ipc;
	fdstore->argv = argv;
	fdstore->keeper = getppid();
	fcntl(ipc, F_SETFD, FD_CLOEXEC);
	int error = fdstore_welcome(fdstore);

	if (error) {
		log_error("descriptor %d is not a socket to a keeper of this version: %s", ipc,
			  strerror(-error));
		fdstore_close(fdstore);
		return error;
	}
	*opened = fdstore;
	return 0;
}

int fdstore_wait(struct fdstore *fdstore)
{
	struct ipc_message answer = {0};
	int fd = -1;

	if (!fdstore)
		return 0;
	scoped_lock(&fdstore->lock);
	int type = fdstore_request(fdstore, IPC_PREPARED, 0, &answer, &fd);

	if (fd >= 0)
		close(fd);
	if (type == IPC_GO) {
		fdstore->seen_us = (int64_t)answer.id;
		fdstore->reaped_us = (int64_t)answer.value;
		/* The previous daemon may have dropped or replaced descriptors since they were
		 * taken. */
		fd_table_close(&fdstore->held);
		return 0;
	}
	int error = type < 0 ? type : -EPROTO;

	/* A standby daemon ends together with its keeper: no error. */
	log_write(fdstore->flags & IPC_STANDBY ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR,
		  "the keeper does not let this daemon serve: %s", strerror(-error));
	return error;
}

void fdstore_log_end(const struct fdstore *fdstore, struct timeline *timeline)
{
	timeline->at[TIMELINE_SEEN] = fdstore ? fdstore->seen_us : 0;
	timeline->at[TIMELINE_REAPED] = fdstore ? fdstore->reaped_us : 0;
}

void fdstore_ready(struct fdstore *fdstore)
{
	if (!fdstore)
		return;
	scoped_lock(&fdstore->lock);
	fdstore_send(fdstore, IPC_READY, 0, -1);
}

/* Waits for the keeper, so that no descriptor is held any more on return. */
void fdstore_end(struct fdstore *fdstore)
{
	if (!fdstore)
		return;
	scoped_lock(&fdstore->lock);
	fdstore_send(fdstore, IPC_END, 0, -1);
	fdstore_sync(fdstore);
	fd_table_close(&fdstore->held);
	fdstore->holds_max = UINT64_MAX;
	close(fdstore->ipc);
	fdstore->ipc = -1;
}

void fdstore_close(struct fdstore *fdstore)
{
	if (!fdstore)
		return;
	if (fdstore->ipc >= 0)
		close(fdstore->ipc);
	fd_table_close(&fdstore->held);
	pthread_mutex_destroy(&fdstore->lock);
	free(fdstore);
}

uint64_t fdstore_generation(const struct fdstore *fdstore)
{
	return fdstore ? fdstore->generation : 1;
}

pid_t fdstore_keeper(const struct fdstore *fdstore)
{
	return fdstore ? fdstore->keeper : 0;
}

unsigned fdstore_flags(const struct fdstore *fdstore)
{
	return fdstore ? fdstore->flags : 0;
}

const char *fdstore_wanted(const struct fdstore *fdstore)
{
	return fdstore ? fdstore->wanted_gpu : "";
}

int fdstore_request_replacement(struct fdstore *fdstore, const char *uuid)
{
	struct ipc_message message = ipc_message(IPC_REPLACE, 0);

	if (!fdstore)
		return -ENOTSUP;
	scoped_lock(&fdstore->lock);
	if (!(fdstore->flags & IPC_REPLACES) || fdstore->ipc < 0)
		return -ENOTSUP;
	snprintf(message.text, sizeof(message.text), "%s", uuid);
	return ipc_send(fdstore->ipc, &message, -1);
}

int fdstore_fd(const struct fdstore *fdstore)
{
	return fdstore ? fdstore->ipc : -1;
}

/* Starts a keeper with this daemon's command line; --adopt replaces the first option, for the IPC
 * socket. */
static int keeper_spawn(struct fdstore *fdstore, int ipc)
{
	extern char **environ;
	char argument[32];
	char *old_argument = fdstore->argv[1];
	posix_spawn_file_actions_t actions;

	snprintf(argument, sizeof(argument), "--adopt=%d", ipc);
	fdstore->argv[1] = argument;
	posix_spawn_file_actions_init(&actions);
	/* A duplicate onto the same number: removes close-on-exec in the child. */
	posix_spawn_file_actions_adddup2(&actions, ipc, ipc);
	int error = -posix_spawn(&fdstore->started, "/proc/self/exe", &actions, NULL, fdstore->argv,
				 environ);

	posix_spawn_file_actions_destroy(&actions);
	fdstore->argv[1] = old_argument;
	return error;
}

/* lock held. Gives the new keeper all descriptors. */
static int fdstore_send_all(struct fdstore *fdstore)
{
	uint64_t id = 0;
	int fd, error = fdstore_welcome(fdstore);

	while (!error && fd_table_next(&fdstore->held, id, &id, &fd) == 0)
		error = fdstore_send_hold(fdstore, id, fd);
	return error ? error : fdstore_send(fdstore, IPC_READY, 0, -1);
}

static int keeper_restart(struct fdstore *fdstore)
{
	int ends[2];

	if (fdstore->started)
		waitpid(fdstore->started, NULL, WNOHANG);
	if (fdstore->replacements++ >= REPLACEMENTS_MAX)
		return -ELOOP;
	int error = ipc_pair(ends);

	if (error)
		return error;
	close(fdstore->ipc);
	fdstore->ipc = ends[0];
	error = keeper_spawn(fdstore, ends[1]);
	close(ends[1]);
	return error ? error : fdstore_send_all(fdstore);
}

int fdstore_replace(struct fdstore *fdstore)
{
	scoped_lock(&fdstore->lock);
	fdstore->keeper = 0;
	int error = keeper_restart(fdstore);

	if (!error) {
		fdstore->keeper = fdstore->started;
		log_warn("the keeper ended: another keeper, process %d, has taken over",
			 fdstore->started);
		return 0;
	}
	log_error("the keeper ended, and another keeper cannot be started: %s. When this daemon "
		  "ends, its "
		  "files are lost",
		  strerror(-error));
	close(fdstore->ipc);
	fdstore->ipc = -1;
	return error;
}
