/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/end.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "client/lib/file.h"
#include "client/lib/listener.h"
#include "common/cleanup.h"

/* Between two looks at a callback that runs, which may take long. */
#define FORGET_US 1000

/* A callback that runs in a thread. */
struct call {
	struct call *next;
	struct gpumem *file; /* NULL: no call */
	pthread_t thread;
	void (*callback)(struct gpumem *file, void *context);
	void *context;
};

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER; /* leaf; of the list */
static struct call *running_calls;

/* In the child of a fork: the calls are the parent's. */
static void calls_forked(void)
{
	running_calls = NULL;
}

static struct client_fork_handler fork_handler = {.forked = calls_forked};

/* Under the file's lock. */
static void file_set_ended(struct gpumem *file)
{
	if (!file->end.ended && file->end.fd >= 0)
		eventfd_write(file->end.fd, 1);
	file->end.ended = true;
}

static void file_note_end(struct gpumem *file, void *pointer)
{
	const struct client_identity *ended = pointer;

	if (file->identity.device == ended->device && file->identity.inode == ended->inode)
		file_set_ended(file);
}

/* Under the file's lock: asks the daemon. A parked file has no lease, and gpumem_unpark tells. */
static void file_ask(struct gpumem *file)
{
	if (file->end.watched && !file->end.ended && file->connection &&
	    client_connection_extend(file->connection, &file->layout) == -ESTALE)
		file_set_ended(file);
}

static void file_ask_of(struct gpumem *file, void *device)
{
	if (file->identity.device == *(const dev_t *)device)
		file_ask(file);
}

/* The file is not closed before the call, which is in the list as long as the file's lock is held.
 */
static void file_choose(struct gpumem *file, void *pointer)
{
	struct call *call = pointer;

	if (call->file || !file->end.ended || !file->end.callback)
		return;
	*call = (struct call){.file = file,
			      .thread = pthread_self(),
			      .callback = file->end.callback,
			      .context = file->end.context};
	file->end.callback = NULL;
	scoped_lock(&calls_lock);
	call->next = running_calls;
	running_calls = call;
}

static void call_remove(const struct call *call)
{
	scoped_lock(&calls_lock);
	struct call **at = &running_calls;

	while (*at && *at != call)
		at = &(*at)->next;
	if (*at)
		*at = call->next;
}

/* Outside the gate and without locks: a callback may call any function, and fork. */
static void callbacks_call(void)
{
	struct call call;

	do {
		call = (struct call){0};
		client_enter();
		client_files_each(file_choose, &call);
		client_leave();
		if (!call.file)
			return;
		call.callback(call.file, call.context);
		client_enter();
		call_remove(&call);
		client_leave();
	} while (true);
}

static void end_take(dev_t device, const struct gpumem_msg_notice *notice)
{
	struct client_identity ended = {device, notice->inode};

	client_enter();
	client_files_each(file_note_end, &ended);
	client_leave();
	callbacks_call();
}

static void ends_ask(dev_t device)
{
	client_enter();
	client_files_each(file_ask_of, &device);
	client_leave();
	callbacks_call();
}

static const struct client_notices ends_taker = {.take = end_take, .connected = ends_ask};

/* Under calls_lock: whether another thread calls for the file. */
static bool is_called(const struct gpumem *file)
{
	for (const struct call *at = running_calls; at; at = at->next)
		if (at->file == file && !pthread_equal(at->thread, pthread_self()))
			return true;
	return false;
}

static bool end_forget(struct gpumem *file)
{
	CLIENT_CALL();
	pthread_mutex_lock(&file->lock);
	file->end.callback = NULL;
	pthread_mutex_unlock(&file->lock);
	scoped_lock(&calls_lock);
	return !is_called(file);
}

/* Waits outside the gate: the callback may fork. */
void client_end_forget(struct gpumem *file)
{
	while (!end_forget(file))
		usleep(FORGET_US);
}

/* Listens first, and then asks whether the process has ended before. */
static void file_watch(struct gpumem *file)
{
	pthread_mutex_lock(&file->lock);
	file->end.watched = true;
	pthread_mutex_unlock(&file->lock);
	client_listen_for(&ends_taker, GPUMEM_LISTEN_END);
	client_listen_file(file);
	scoped_lock(&file->lock);
	file_ask(file);
}

int gpumem_on_end(gpumem *file, void (*callback)(gpumem *file, void *context), void *context)
{
	client_end_forget(file);
	client_enter();
	client_fork_handler_register(&fork_handler);
	pthread_mutex_lock(&file->lock);
	file->end.callback = callback;
	file->end.context = context;
	pthread_mutex_unlock(&file->lock);
	if (callback)
		file_watch(file);
	client_leave();
	if (callback)
		callbacks_call();
	return 0;
}

int gpumem_end_fd(gpumem *file)
{
	CLIENT_CALL();
	pthread_mutex_lock(&file->lock);
	if (file->end.fd < 0)
		file->end.fd = eventfd(file->end.ended, EFD_CLOEXEC | EFD_NONBLOCK);
	int fd = file->end.fd, error = errno;

	pthread_mutex_unlock(&file->lock);
	if (fd < 0)
		return client_errno_return(client_fail(error, "no descriptor for the end of the "
							      "file's process"));
	file_watch(file);
	return fd;
}
