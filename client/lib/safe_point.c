/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/safe_point.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "client/core/process.h"
#include "client/lib/file.h"
#include "client/lib/listener.h"
#include "client/lib/park.h"
#include "common/cleanup.h"

#define NOTICES_MAX 16

struct notice {
	dev_t device; /* of the mount */
	struct gpumem_msg_notice message;
};

/* What gpumem_safe_point has to do. */
enum {
	ATTENTION_LISTEN = 1,  /* begin to listen */
	ATTENTION_NOTICES = 2, /* act on notices */
	ATTENTION_PARKED = 4,  /* files may be parked on request */
};

static atomic_uint attention_flags = ATTENTION_LISTEN;

/* One thread acts on notices at a time, so that notices take effect in their order. Taken before
 * the listener's locks and the files' locks. */
static pthread_mutex_t action_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t notices_lock = PTHREAD_MUTEX_INITIALIZER; /* leaf; of all below */
static struct notice pending_notices[NOTICES_MAX];		 /* in the order of their arrival */
static unsigned n_notices;
static void (*on_pressure)(uint64_t bytes, unsigned device, void *context);
static void *on_pressure_context;

/* A notice for the files of a process, and what became of it. */
struct action {
	const struct notice *notice;
	int error; /* errno of the first file that failed */
	uint32_t files;
};

/* In the child of a fork: the notices were for the parent. */
static void notices_forked(void)
{
	n_notices = 0;
	on_pressure = NULL;
	atomic_store(&attention_flags, ATTENTION_LISTEN);
}

static struct client_fork_handler fork_handler = {.forked = notices_forked};

static bool file_is_meant(const struct gpumem *file, const struct notice *notice)
{
	return file->identity.device == notice->device &&
	       (!notice->message.inode || file->identity.inode == notice->message.inode);
}

static void action_note(struct action *action, int rc)
{
	if (rc >= 0)
		action->files++;
	else if (!action->error)
		action->error = -rc;
}

static void file_park(struct gpumem *file, void *pointer)
{
	struct action *action = pointer;

	if (!file_is_meant(file, action->notice))
		return;
	if (file->parked) {
		action->files++;
	} else if (client_file_holds_gpu(file)) {
		action_note(action, client_park(file));
		file->on_request = file->parked;
	}
}

static void file_unpark(struct gpumem *file, void *pointer)
{
	struct action *action = pointer;

	if (file->on_request && file_is_meant(file, action->notice))
		action_note(action, client_unpark(file));
}

static void file_count_requests(struct gpumem *file, void *count)
{
	*(unsigned *)count += file->on_request;
}

/* Whether files are parked on request, of which other threads learn. */
static bool requests_are_left(void)
{
	unsigned count = 0;

	/* Before the count: a file that is parked meanwhile sets the bit again. */
	atomic_fetch_and(&attention_flags, ~(unsigned)ATTENTION_PARKED);
	client_files_each(file_count_requests, &count);
	if (count)
		atomic_fetch_or(&attention_flags, ATTENTION_PARKED);
	return count;
}

/* Under action_lock. */
static void notice_act(const struct notice *notice)
{
	struct action action = {.notice = notice};

	client_files_each(notice->message.what == GPUMEM_NOTICE_PARK ? file_park : file_unpark,
			  &action);
	requests_are_left();
	client_listener_answer(notice->device, notice->message.header.request, action.error,
			       action.files);
}

/* The same GPU is full as before: the last number counts. */
static bool notice_is_repeated(const struct notice *old, const struct notice *new)
{
	return new->message.what == GPUMEM_NOTICE_MEMORY &&
	       old->message.what == new->message.what && old->device == new->device &&
	       old->message.device == new->message.device;
}

/* False: too many notices wait. */
static bool notice_add(const struct notice *notice)
{
	unsigned at = 0;

	scoped_lock(&notices_lock);
	while (at < n_notices && !notice_is_repeated(&pending_notices[at], notice))
		at++;
	if (at == NOTICES_MAX)
		return false;
	pending_notices[at] = *notice;
	if (at == n_notices)
		n_notices++;
	atomic_fetch_or(&attention_flags, ATTENTION_NOTICES);
	return true;
}

static void notice_take(dev_t device, const struct gpumem_msg_notice *message)
{
	const struct notice notice = {.device = device, .message = *message};

	CLIENT_CALL();
	client_fork_handler_register(&fork_handler);
	if (message->flags & GPUMEM_NOTICE_NOW) {
		scoped_lock(&action_lock);
		notice_act(&notice);
	} else if (!notice_add(&notice) && message->what != GPUMEM_NOTICE_MEMORY) {
		client_listener_answer(device, message->header.request, EBUSY, 0);
	}
}

static const struct client_notices notices_taker = {.take = notice_take};

/* Under action_lock. */
static void notices_listen(void)
{
	bool asks;

	pthread_mutex_lock(&notices_lock);
	asks = on_pressure != NULL;
	pthread_mutex_unlock(&notices_lock);
	client_listen_for(&notices_taker, GPUMEM_LISTEN_PARK | (asks ? GPUMEM_LISTEN_MEMORY : 0));
}

/* Whether this call is to begin to listen. */
static bool attention_listen(void)
{
	return atomic_fetch_and(&attention_flags, ~(unsigned)ATTENTION_LISTEN) & ATTENTION_LISTEN;
}

void client_safe_points_begin(void)
{
	if (!(atomic_load(&attention_flags) & ATTENTION_LISTEN) || !attention_listen())
		return;
	client_fork_handler_register(&fork_handler);
	scoped_lock(&action_lock);
	notices_listen();
}

/* Under action_lock: takes the notice that came first. */
static bool notice_next(struct notice *notice)
{
	scoped_lock(&notices_lock);
	if (!n_notices) {
		atomic_fetch_and(&attention_flags, ~(unsigned)ATTENTION_NOTICES);
		return false;
	}
	*notice = pending_notices[0];
	n_notices--;
	memmove(&pending_notices[0], &pending_notices[1], n_notices * sizeof(pending_notices[0]));
	return true;
}

static void file_find_memory(struct gpumem *file, void *pointer)
{
	struct action *action = pointer;

	action->files += client_file_holds_gpu(file) &&
			 file->layout.device == action->notice->message.device &&
			 file_is_meant(file, action->notice);
}

/* Whether the process holds memory of the GPU that is full. */
static bool memory_is_held(const struct notice *notice)
{
	struct action action = {.notice = notice};

	client_files_each(file_find_memory, &action);
	return action.files;
}

/* What a safe point leaves to the program. */
struct point {
	bool parked;			   /* files are parked on request */
	struct notice memory[NOTICES_MAX]; /* for the callback, if there is one */
	unsigned n;
	void (*callback)(uint64_t bytes, unsigned device, void *context);
	void *context;
};

/* Acts on all notices but those about memory. */
static void notices_act(struct point *point)
{
	struct notice notice;

	/* All locks are taken inside the gate, so that no child finds one held. */
	CLIENT_CALL();
	client_fork_handler_register(&fork_handler);
	scoped_lock(&action_lock);
	if (attention_listen())
		notices_listen();
	while (point->n < NOTICES_MAX && notice_next(&notice)) {
		if (notice.message.what != GPUMEM_NOTICE_MEMORY)
			notice_act(&notice);
		else if (memory_is_held(&notice))
			point->memory[point->n++] = notice;
	}
	point->parked = requests_are_left();
	scoped_lock(&notices_lock);
	point->callback = on_pressure;
	point->context = on_pressure_context;
}

static int safe_point_reach(void)
{
	struct point point = {0};

	notices_act(&point);
	/* No lock is held, and the gate is open: the program may call any function. */
	for (unsigned i = 0; point.callback && i < point.n; i++)
		point.callback(point.memory[i].message.bytes, point.memory[i].message.device,
			       point.context);
	return point.parked;
}

int gpumem_safe_point(void)
{
	return atomic_load_explicit(&attention_flags, memory_order_relaxed) ? safe_point_reach()
									    : 0;
}

int gpumem_on_pressure(void (*callback)(uint64_t bytes, unsigned device, void *context),
		       void *context)
{
	CLIENT_CALL();
	client_fork_handler_register(&fork_handler);
	/* For two calls at once: the callback and the notices that the daemon sends are of the same
	 * call. */
	scoped_lock(&action_lock);
	pthread_mutex_lock(&notices_lock);
	on_pressure = callback;
	on_pressure_context = context;
	pthread_mutex_unlock(&notices_lock);
	notices_listen();
	return 0;
}
