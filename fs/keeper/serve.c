/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/systemd_fdstore.h"

/* The keeper never waits: a daemon too slow to read loses its answers. */
static void child_answer(const struct child *child, enum ipc_type type, uint64_t id, int fd)
{
	struct ipc_message message = ipc_message(type, id);

	ipc_offer(child->ipc, &message, fd);
}

static void held_put(struct keeper *keeper, uint64_t id, int fd)
{
	int error = fd < 0 ? -EPROTO : fd_table_put(&keeper->held, id, fd);

	if (error) {
		log_error("%s: cannot hold a descriptor for the next daemon: %s",
			  keeper->options->mountpoint, strerror(-error));
		if (fd >= 0)
			close(fd);
	}
}

static void held_send(struct keeper *keeper, const struct child *child, uint64_t id)
{
	int fd = fd_table_get(&keeper->held, id);

	child_answer(child, fd < 0 ? IPC_NONE : IPC_HELD, id, fd < 0 ? -1 : fd);
}

static void held_send_next(struct keeper *keeper, const struct child *child, uint64_t last_id)
{
	uint64_t id = 0;
	int fd = -1;

	if (fd_table_next(&keeper->held, last_id, &id, &fd))
		child_answer(child, IPC_NONE, 0, -1);
	else
		child_answer(child, IPC_HELD, id, fd);
}

/* A daemon that takes over serves after the end of the previous daemon: keeper.c, serving_died. */
static void child_prepared(struct keeper *keeper, struct child *child)
{
	child->prepared = true;
	if (child == &keeper->standby)
		return;
	if (child == &keeper->serving)
		child_go(keeper, child);
	else if (keeper->serving.pid)
		child_kill(&keeper->serving);
	else
		keeper_take_over(keeper);
}

static void child_ready(struct keeper *keeper, struct child *child, uint64_t generation)
{
	const char *mountpoint = keeper->options->mountpoint;

	child->ready = true;
	keeper->partial = false;
	upgrade_follow_mount(keeper);
	keeper->killed = 0;
	/* A keeper that adopted the daemon does not know the generation. */
	if (generation > keeper->generation)
		keeper->generation = generation;
	if (keeper->died)
		log_info("%s: daemon %d goes on, %lld ms after the end of the previous daemon",
			 mountpoint, child->pid, (long long)(clock_ms() - keeper->died));
	keeper->died = 0;
	if (keeper->launcher)
		daemon_ready(keeper->launcher, keeper->options->log_level);
	if (keeper->old_program >= 0) {
		close(keeper->old_program);
		keeper->old_program = -1;
	}
	char text[32];

	snprintf(text, sizeof(text), "daemon %d", child->pid);
	upgrade_tell(keeper, 0, text);
}

/* Only the serving daemon may change the table of held descriptors. */
static bool child_may_send(const struct keeper *keeper, const struct child *child,
			   enum ipc_type type)
{
	switch (type) {
	case IPC_HOLD:
	case IPC_DROP:
	case IPC_READY:
	case IPC_END:
	case IPC_REPLACE:
		return child == &keeper->serving;
	case IPC_TAKE:
	case IPC_NEXT:
	case IPC_PREPARED:
	case IPC_SYNC:
		return true;
	default:
		return false;
	}
}

static void message_handle(struct keeper *keeper, struct child *child,
			   const struct ipc_message *message, int fd)
{
	switch (message->type) {
	case IPC_HOLD:
		keeper->held_changes++;
		held_put(keeper, message->id, fd);
		return;
	case IPC_DROP:
		keeper->held_changes++;
		if (fd_table_drop(&keeper->held, message->id) == 0)
			store_remove(message->id);
		break;
	case IPC_READY:
		child_ready(keeper, child, message->value);
		break;
	case IPC_END:
		child->ended = true;
		store_remove_all(&keeper->held);
		fd_table_close(&keeper->held);
		break;
	case IPC_REPLACE:
		keeper_replace(keeper, message->text);
		break;
	case IPC_TAKE:
		held_send(keeper, child, message->id);
		break;
	case IPC_NEXT:
		held_send_next(keeper, child, message->id);
		break;
	case IPC_PREPARED:
		child_prepared(keeper, child);
		break;
	default:
		/* IPC_SYNC: a daemon that has mounted waits for the answer, and serves after it. */
		upgrade_follow_mount(keeper);
		child_answer(child, IPC_NONE, 0, -1);
		break;
	}
	if (fd >= 0)
		close(fd);
}

bool keeper_receive(struct keeper *keeper, struct child *child)
{
	struct ipc_message message;
	int fd, error = child->ipc < 0 ? -EAGAIN : ipc_poll(child->ipc, &message, &fd);

	if (error == -EAGAIN)
		return false;
	if (error == -EPIPE) {
		/* A closed connection is not the end of the process: the pidfd shows the end. */
		if (child == &keeper->serving)
			keeper->seen_us = clock_us();
		close(child->ipc);
		child->ipc = -1;
		return false;
	}
	if (error == -EMFILE) {
		log_error("%s: the keeper has no descriptor left: raise the limit "
			  "(ulimit -Hn)",
			  keeper->options->mountpoint);
		return true;
	}
	if (!error && child_may_send(keeper, child, message.type)) {
		message_handle(keeper, child, &message, fd);
		return true;
	}
	if (!error && fd >= 0)
		close(fd);
	log_error("%s: the keeper cannot read a message of daemon %d and ends that daemon",
		  keeper->options->mountpoint, child->pid);
	child_kill(child);
	close(child->ipc);
	child->ipc = -1;
	return false;
}
