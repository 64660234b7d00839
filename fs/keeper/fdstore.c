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
#include "common/descriptors.h"
#include "common/log.h"
#include "fs/core/timeline.h"
#include "fs/keeper/ipc.h"
#include "fs/keeper/systemd_fdstore.h"

/* A keeper that goes as often as this is not started again. */
#define RENEWALS_MAX 100

struct keep {
	pthread_mutex_t lock; /* of all below, and a question with its answer */
	int line;
	char **argv;
	uint64_t turn, holds_max;
	unsigned flags;
	char wanted[LINE_TEXT_BYTES];
	int64_t seen_us, reaped_us; /* the end of the daemon before */
	unsigned renewals;
	pid_t started;	      /* the keeper that this daemon started; 0: none */
	_Atomic pid_t keeper; /* 0: it has gone */
	/* The same once more: for a new keeper, should this one be killed. */
	struct kept held;
	bool gathered; /* all of it */
};

/* lock held. A keeper that has gone is not an error here: keep_renew tells the next one. */
static int say(struct keep *keep, enum line_type type, uint64_t id, int fd)
{
	struct line_message message = line_message(type, id);

	message.value = keep->turn;
	int error = line_send(keep->line, &message, fd);

	return error == -EPIPE || error == -EBADF ? 0 : error;
}

/* lock held: the answer's type, or -errno. */
static int ask(struct keep *keep, enum line_type type, uint64_t id, struct line_message *answer,
	       int *fd)
{
	struct line_message message = line_message(type, id);
	int error = line_send(keep->line, &message, -1);

	if (!error)
		error = line_receive(keep->line, answer, fd);
	return error ? error : answer->type;
}

/* lock held: when it returns, the keeper has read what was sent. */
static void catch_up(struct keep *keep)
{
	struct line_message answer;
	int fd = -1;

	if (ask(keep, LINE_SYNC, 0, &answer, &fd) > 0 && fd >= 0)
		close(fd);
}

/* lock held. The kernel bounds the fds that an ordinary user has on their way. */
static int say_hold(struct keep *keep, uint64_t id, int fd)
{
	int error = say(keep, LINE_HOLD, id, fd);

	if (error != -ETOOMANYREFS)
		return error;
	catch_up(keep);
	return say(keep, LINE_HOLD, id, fd);
}

/* lock held. Takes fd over. */
static int note(struct keep *keep, uint64_t id, int fd)
{
	int error = fd < 0 ? -errno : kept_put(&keep->held, id, fd);

	if (error && fd >= 0)
		close(fd);
	return error;
}

static enum descriptor_use use_of(uint64_t id)
{
	switch (keep_kind_of(id)) {
	case KEEP_CHUNK:
	case KEEP_HOST:
		return DESCRIPTOR_MEMORY;
	case KEEP_SOCKET:
		return DESCRIPTOR_CONNECTION;
	default:
		return DESCRIPTOR_OWN;
	}
}

int keep_hold(struct keep *keep, uint64_t id, int fd)
{
	if (!keep)
		return 0;
	enum descriptor_use use = use_of(id);

	LOCKED(&keep->lock);
	if (keep->held.count >= descriptors_for(use, keep->holds_max))
		return -EMFILE;
	int error = note(keep, id, descriptor_unreserved(use, fcntl(fd, F_DUPFD_CLOEXEC, 3)));

	if (error)
		return error;
	error = say_hold(keep, id, fd);
	if (error)
		kept_drop(&keep->held, id);
	else
		/* What the keeper has not read is lost when it is killed together with this daemon.
		 */
		store_add(id, fd);
	return error;
}

void keep_drop(struct keep *keep, uint64_t id)
{
	if (!keep)
		return;
	LOCKED(&keep->lock);
	if (kept_drop(&keep->held, id) == 0)
		say(keep, LINE_DROP, id, -1);
}

void keep_settle(struct keep *keep)
{
	if (!keep)
		return;
	LOCKED(&keep->lock);
	catch_up(keep);
}

/* lock held. */
static int take_gathered(const struct keep *keep, uint64_t id)
{
	int fd = kept_get(&keep->held, id);

	if (fd >= 0)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd == -1 ? -errno : fd;
}

int keep_take(struct keep *keep, uint64_t id)
{
	struct line_message answer;
	int fd = -1;

	if (!keep)
		return -ENOENT;
	LOCKED(&keep->lock);
	if (keep->gathered)
		return take_gathered(keep, id);
	int type = ask(keep, LINE_TAKE, id, &answer, &fd);

	if (type == LINE_HELD && fd >= 0 && answer.id == id) {
		int error = note(keep, id, fcntl(fd, F_DUPFD_CLOEXEC, 3));

		if (!error)
			return fd;
		type = error;
	}
	if (fd >= 0)
		close(fd);
	return type == LINE_NONE ? -ENOENT : type < 0 ? type : -EPROTO;
}

/* lock held. From the keeper, as next. */
static int ask_next(struct keep *keep, uint64_t *id, uint64_t end, int *fd)
{
	struct line_message answer;
	int type = ask(keep, LINE_NEXT, *id, &answer, fd);

	if (type == LINE_HELD && *fd >= 0 && answer.id > *id && answer.id < end) {
		int error = note(keep, answer.id, *fd);

		*id = answer.id;
		return error ? error : LINE_HELD;
	}
	if (*fd >= 0)
		close(*fd);
	if (type == LINE_NONE || (type == LINE_HELD && answer.id >= end))
		return LINE_NONE;
	return type < 0 ? type : -EPROTO;
}

/* The next after id and before end: LINE_HELD, LINE_NONE or -errno. */
static int next(struct keep *keep, uint64_t *id, uint64_t end, int *fd)
{
	LOCKED(&keep->lock);
	if (!keep->gathered)
		return ask_next(keep, id, end, fd);
	return kept_next(&keep->held, *id, id, fd) || *id >= end ? LINE_NONE : LINE_HELD;
}

static int walk(struct keep *keep, uint64_t id, uint64_t end,
		int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	while (keep) {
		int fd = -1, rc = next(keep, &id, end, &fd);

		if (rc != LINE_HELD)
			return rc == LINE_NONE ? 0 : rc;
		rc = each(id, fd, arg);
		if (rc)
			return rc;
	}
	return 0;
}

int keep_each(struct keep *keep, int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	return walk(keep, 0, UINT64_MAX, each, arg);
}

int keep_each_of(struct keep *keep, enum keep_kind kind,
		 int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	return walk(keep, keep_id(kind, 0) - 1, keep_id(kind + 1, 0), each, arg);
}

static int pass_over(uint64_t id, int fd, void *arg)
{
	(void)id, (void)fd, (void)arg;
	return 0;
}

int keep_gather(struct keep *keep)
{
	int error = keep_each(keep, pass_over, NULL);

	if (error)
		log_error("what the keeper holds cannot be had: %s", strerror(-error));
	else if (keep)
		keep->gathered = true;
	return error;
}

/* What a keeper says first. */
static int welcome(struct keep *keep)
{
	struct line_message message;
	int fd, error = line_receive(keep->line, &message, &fd);

	if (error)
		return error;
	if (fd >= 0)
		close(fd);
	if (message.type != LINE_WELCOME)
		return -EPROTO;
	keep->holds_max = message.value;
	keep->flags = message.flags;
	memcpy(keep->wanted, message.text, sizeof(keep->wanted));
	if (message.id)
		keep->turn = message.id;
	return 0;
}

int keep_open(int line, char **argv, struct keep **opened)
{
	struct keep *keep = calloc(1, sizeof(*keep));

	if (!keep)
		return -ENOMEM;
	pthread_mutex_init(&keep->lock, NULL);
	keep->line = line;
	keep->argv = argv;
	keep->keeper = getppid();
	fcntl(line, F_SETFD, FD_CLOEXEC);
	int error = welcome(keep);

	if (error) {
		log_error("descriptor %d is no line to a keeper of this version: %s", line,
			  strerror(-error));
		keep_close(keep);
		return error;
	}
	*opened = keep;
	return 0;
}

int keep_wait(struct keep *keep)
{
	struct line_message answer = {0};
	int fd = -1;

	if (!keep)
		return 0;
	LOCKED(&keep->lock);
	int type = ask(keep, LINE_PREPARED, 0, &answer, &fd);

	if (fd >= 0)
		close(fd);
	if (type == LINE_GO) {
		keep->seen_us = (int64_t)answer.id;
		keep->reaped_us = (int64_t)answer.value;
		/* It may be long ago that this was taken. */
		kept_close(&keep->held);
		return 0;
	}
	int error = type < 0 ? type : -EPROTO;

	/* Who stands by goes with its keeper. */
	log_write(keep->flags & LINE_STANDBY ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR,
		  "the keeper does not let this daemon serve: %s", strerror(-error));
	return error;
}

void keep_tell_end(const struct keep *keep, struct timeline *timeline)
{
	timeline->at[TIMELINE_SEEN] = keep ? keep->seen_us : 0;
	timeline->at[TIMELINE_REAPED] = keep ? keep->reaped_us : 0;
}

void keep_ready(struct keep *keep)
{
	if (!keep)
		return;
	LOCKED(&keep->lock);
	say(keep, LINE_READY, 0, -1);
}

/* Answered, so that nothing is held any more when it returns. */
void keep_end(struct keep *keep)
{
	if (!keep)
		return;
	LOCKED(&keep->lock);
	say(keep, LINE_END, 0, -1);
	catch_up(keep);
	kept_close(&keep->held);
	keep->holds_max = UINT64_MAX;
	close(keep->line);
	keep->line = -1;
}

void keep_leave(struct keep *keep)
{
	if (!keep)
		return;
	LOCKED(&keep->lock);
	kept_close(&keep->held);
	if (keep->line >= 0)
		close(keep->line);
	keep->line = -1;
}

void keep_close(struct keep *keep)
{
	if (!keep)
		return;
	if (keep->line >= 0)
		close(keep->line);
	kept_close(&keep->held);
	pthread_mutex_destroy(&keep->lock);
	free(keep);
}

uint64_t keep_turn(const struct keep *keep)
{
	return keep ? keep->turn : 1;
}

pid_t keep_keeper(const struct keep *keep)
{
	return keep ? keep->keeper : 0;
}

unsigned keep_flags(const struct keep *keep)
{
	return keep ? keep->flags : 0;
}

const char *keep_wanted(const struct keep *keep)
{
	return keep ? keep->wanted : "";
}

int keep_ask_renewal(struct keep *keep, const char *uuid)
{
	struct line_message message = line_message(LINE_RENEW, 0);

	if (!keep)
		return -ENOTSUP;
	LOCKED(&keep->lock);
	if (!(keep->flags & LINE_RENEWS) || keep->line < 0)
		return -ENOTSUP;
	snprintf(message.text, sizeof(message.text), "%s", uuid);
	return line_send(keep->line, &message, -1);
}

int keep_fd(const struct keep *keep)
{
	return keep ? keep->line : -1;
}

/* The command line of this daemon, but for the line. */
static int keeper_spawn(struct keep *keep, int line)
{
	extern char **environ;
	char argument[32];
	char *was = keep->argv[1];
	posix_spawn_file_actions_t actions;

	snprintf(argument, sizeof(argument), "--adopt=%d", line);
	keep->argv[1] = argument;
	posix_spawn_file_actions_init(&actions);
	/* Onto itself: takes close-on-exec off, in the child. */
	posix_spawn_file_actions_adddup2(&actions, line, line);
	int error =
	    -posix_spawn(&keep->started, "/proc/self/exe", &actions, NULL, keep->argv, environ);

	posix_spawn_file_actions_destroy(&actions);
	keep->argv[1] = was;
	return error;
}

/* lock held. */
static int hand_over(struct keep *keep)
{
	uint64_t id = 0;
	int fd, error = welcome(keep);

	while (!error && kept_next(&keep->held, id, &id, &fd) == 0)
		error = say_hold(keep, id, fd);
	return error ? error : say(keep, LINE_READY, 0, -1);
}

static int renew(struct keep *keep)
{
	int ends[2];

	if (keep->started)
		waitpid(keep->started, NULL, WNOHANG);
	if (keep->renewals++ >= RENEWALS_MAX)
		return -ELOOP;
	int error = line_pair(ends);

	if (error)
		return error;
	close(keep->line);
	keep->line = ends[0];
	error = keeper_spawn(keep, ends[1]);
	close(ends[1]);
	return error ? error : hand_over(keep);
}

int keep_renew(struct keep *keep)
{
	LOCKED(&keep->lock);
	keep->keeper = 0;
	int error = renew(keep);

	if (!error) {
		keep->keeper = keep->started;
		log_warn("the keeper was gone: another one, process %d, has taken over",
			 keep->started);
		return 0;
	}
	log_error("the keeper is gone, and no other can be started: %s. When this daemon ends, its "
		  "files are lost",
		  strerror(-error));
	close(keep->line);
	keep->line = -1;
	return error;
}
