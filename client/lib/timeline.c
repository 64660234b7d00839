/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The creator of timelines has an exclusive lock on their file, which the kernel drops with the
 * process. A process that gets a lock, too, knows that the creator has ended. A thread of each
 * process that waits is told by inotify(7) that a descriptor of a file was closed, and tries. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/private_fd.h"
#include "client/core/process.h"
#include "client/gpu/program.h"
#include "client/lib/file.h"
#include "common/cleanup.h"

/* Each word has a cache line. */
#define WORD_STRIDE 64
#define COUNT_MAX   (1u << 20)

/* The kernel tells of a close before the lock is dropped. And work that the creator's GPU still did
 * while the process ended may overwrite the words: they are written again. */
#define TRIES	    50
#define TRY_MS	    2
#define FALLBACK_MS 1000

/* "timeline", in the byte order of x86 and Arm. */
#define MAGIC 0x656e696c656d6974ULL

#define SPIN_NS	 100000
#define SLEEP_NS 10000

struct gpumem_timeline {
	struct gpumem_timeline *next; /* under list_lock; of those that wait */
	gpumem *file;
	char *words; /* the CPU's mapping */
	size_t count;
	char *name; /* path; of the creator; else NULL */
	pid_t owner;
	int lock_fd; /* the creator's has the lock; an open file of this handle alone */
	int watch;   /* of the file in notify_fd; -1: none. Handles of a file have the same. */
	atomic_bool ended;
	unsigned rewritten; /* so many times since the end */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpumem_timeline *own_timelines,
    *awaited_timelines; /* under list_lock, as the next two */
static bool is_watching;
static int notify_fd = -1;

static _Atomic uint64_t *word_of(const struct gpumem_timeline *timeline, size_t number)
{
	return (_Atomic uint64_t *)(void *)(timeline->words + number * WORD_STRIDE);
}

/* In the child of a fork, which would keep the lock after the creator's end. */
static void timelines_forked(void)
{
	for (struct gpumem_timeline *at = own_timelines; at; at = at->next) {
		close(at->lock_fd);
		at->lock_fd = -1;
	}
	own_timelines = awaited_timelines = NULL;
	is_watching = false;
	if (notify_fd >= 0)
		close(notify_fd);
	notify_fd = -1;
}

static struct client_fork_handler fork_handler = {.forked = timelines_forked};

static void list_add(struct gpumem_timeline **list, struct gpumem_timeline *timeline)
{
	timeline->next = *list;
	*list = timeline;
}

static void list_remove(struct gpumem_timeline **list, const struct gpumem_timeline *timeline)
{
	while (*list && *list != timeline)
		list = &(*list)->next;
	if (*list)
		*list = timeline->next;
}

/* --- The end of creators */

static void words_end(struct gpumem_timeline *timeline)
{
	for (size_t i = 0; i < timeline->count; i++)
		atomic_store(word_of(timeline, i), GPUMEM_TIMELINE_ENDED);
	gpumem_flush(timeline->file);
	atomic_store(&timeline->ended, true);
}

static bool creator_is_gone(const struct gpumem_timeline *timeline)
{
	if (flock(timeline->lock_fd, LOCK_SH | LOCK_NB) < 0)
		return false;
	flock(timeline->lock_fd, LOCK_UN);
	return true;
}

/* Whether timelines are left. */
static bool creators_check(void)
{
	CLIENT_CALL();
	scoped_lock(&list_lock);
	for (struct gpumem_timeline *at = awaited_timelines; at; at = at->next)
		if (atomic_load(&at->ended) ? at->rewritten++ < TRIES : creator_is_gone(at))
			words_end(at);
	return awaited_timelines;
}

static void *watch_main(void *unused)
{
	char events[4096];
	bool any = true;

	while (true) {
		struct pollfd notify = {.fd = notify_fd, .events = POLLIN};
		bool told = poll(&notify, 1, any ? FALLBACK_MS : -1) > 0;

		if (told && read(notify.fd, events, sizeof(events)) < 0 && errno != EAGAIN)
			told = false;
		for (int i = 0; i < (told ? TRIES : 1); i++) {
			any = creators_check();
			usleep(told ? TRY_MS * 1000 : 0);
		}
	}
	return unused;
}

/* Under list_lock. */
static int watch_begin(void)
{
	pthread_t thread;

	if (is_watching)
		return 0;
	notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (notify_fd < 0)
		return client_fail(errno, "inotify: %s", strerror(errno));
	int rc = client_private_fd_thread(&thread, watch_main, NULL);

	if (rc < 0) {
		close(notify_fd);
		notify_fd = -1;
		return client_fail(-rc, "no thread for timelines");
	}
	pthread_detach(thread);
	is_watching = true;
	return 0;
}

static int watch_add(struct gpumem_timeline *timeline)
{
	char path[BENEATH_THROUGH_MAX];

	scoped_lock(&list_lock);
	int rc = watch_begin();

	if (rc < 0)
		return rc;
	timeline->watch =
	    inotify_add_watch(notify_fd, beneath_through(timeline->lock_fd, path), IN_CLOSE_WRITE);
	if (timeline->watch < 0)
		return client_fail(errno, "inotify: %s", strerror(errno));
	list_add(&awaited_timelines, timeline);
	return 0;
}

static void watch_end(struct gpumem_timeline *timeline)
{
	scoped_lock(&list_lock);
	list_remove(&awaited_timelines, timeline);
	if (timeline->watch < 0 || timeline->owner != getpid())
		return;
	for (const struct gpumem_timeline *at = awaited_timelines; at; at = at->next)
		if (at->watch == timeline->watch)
			return;
	inotify_rm_watch(notify_fd, timeline->watch);
}

/* --- Open and close */

static void timeline_free(struct gpumem_timeline *timeline)
{
	if (timeline->lock_fd >= 0)
		close(timeline->lock_fd);
	free(timeline->name);
	free(timeline);
}

/* The file may be of another user, and of any size. */
static int words_map(struct gpumem_timeline *timeline)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	void *address;

	if (gpumem_get_info(timeline->file, &info) < 0)
		return -errno;
	timeline->count = info.size / WORD_STRIDE;
	if (!timeline->count || timeline->count > COUNT_MAX)
		return client_fail(EINVAL, "the file has no timelines");
	if (gpumem_map_host(timeline->file, &address, NULL) < 0)
		return -errno;
	timeline->words = address;
	/* The file may not be parked: threads and streams use the words at any time. */
	scoped_lock(&timeline->file->lock);
	timeline->file->exported = true;
	return 0;
}

/* Over an open file, which the timeline owns on success. */
static int timeline_new(gpumem *file, struct gpumem_timeline **new_timeline)
{
	struct gpumem_timeline *timeline = calloc(1, sizeof(*timeline));
	char path[BENEATH_THROUGH_MAX];

	if (!timeline)
		return client_fail(ENOMEM, "no memory");
	client_fork_handler_register(&fork_handler);
	timeline->owner = getpid();
	timeline->watch = -1;
	timeline->file = file;
	timeline->lock_fd = open(beneath_through(file->fd, path), O_RDWR | O_CLOEXEC);
	int rc = timeline->lock_fd < 0
		     ? client_fail(errno, "opening the file again: %s", strerror(errno))
		     : words_map(timeline);
	if (rc < 0) {
		timeline_free(timeline);
		return rc;
	}
	*new_timeline = timeline;
	return 0;
}

/* Behind the first word. */
static _Atomic uint64_t *magic_of(const struct gpumem_timeline *timeline)
{
	return word_of(timeline, 0) + 1;
}

/* Before the file has its name, so that no other process has the lock. */
static int creator_begin(struct gpumem_timeline *timeline, const char *path)
{
	timeline->name = strdup(path);
	if (!timeline->name)
		return client_fail(ENOMEM, "no memory");
	if (flock(timeline->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return client_fail(errno, "%s: flock: %s", path, strerror(errno));
	atomic_store(magic_of(timeline), MAGIC);
	gpumem_flush(timeline->file);
	if (gpumem_publish(timeline->file) < 0)
		return -errno;
	char *absolute = realpath(path, NULL);

	if (absolute) {
		free(timeline->name);
		timeline->name = absolute;
	}
	scoped_lock(&list_lock);
	list_add(&own_timelines, timeline);
	return 0;
}

/* Begins with a file, which is closed after a failure. */
static gpumem_timeline *timeline_begin(gpumem *file, const char *path,
				       int (*begin)(struct gpumem_timeline *, const char *path))
{
	struct gpumem_timeline *timeline = NULL;
	int rc = timeline_new(file, &timeline);

	if (rc == 0)
		rc = begin(timeline, path);
	if (rc == 0)
		return timeline;
	if (timeline) {
		watch_end(timeline);
		timeline_free(timeline);
	}
	gpumem_close(file);
	client_errno_return(rc);
	return NULL;
}

gpumem_timeline *gpumem_timeline_create(const char *path, size_t count, mode_t mode, int flags)
{
	int rc = 0;

	CLIENT_CALL();
	if (!count || count > COUNT_MAX || flags & ~GPUMEM_CREATE_EXCL)
		rc = client_fail(EINVAL,
				 "a file has 1 to %u timelines; flags are 0 or "
				 "GPUMEM_CREATE_EXCL",
				 COUNT_MAX);
	if (client_errno_return(rc) < 0)
		return NULL;
	gpumem *file =
	    gpumem_create(path, count * WORD_STRIDE, 0, mode, flags | GPUMEM_CREATE_PENDING);

	return file ? timeline_begin(file, path, creator_begin) : NULL;
}

static int ended_fail(void)
{
	return client_fail(EOWNERDEAD, "the process that created the timelines has ended");
}

/* Watches first, and then asks whether the creator is there. */
static int waiter_begin(struct gpumem_timeline *timeline, const char *path)
{
	(void)path;
	if (atomic_load(magic_of(timeline)) != MAGIC)
		return client_fail(EINVAL, "the file has no timelines");
	int rc = watch_add(timeline);

	return rc == 0 && creator_is_gone(timeline) ? ended_fail() : rc;
}

gpumem_timeline *gpumem_timeline_open(const char *path)
{
	CLIENT_CALL();
	gpumem *file = gpumem_open(path, O_RDWR);

	return file ? timeline_begin(file, path, waiter_begin) : NULL;
}

/* A file that has the name by now stays. */
static void name_remove(const struct gpumem_timeline *timeline)
{
	if (timeline->owner == getpid() && client_file_has_name(timeline->file, timeline->name))
		unlink(timeline->name);
}

__attribute__((destructor)) static void names_remove(void)
{
	scoped_lock(&list_lock);
	for (const struct gpumem_timeline *at = own_timelines; at; at = at->next)
		name_remove(at);
}

/* The processes that wait learn from the lock. */
int gpumem_timeline_close(gpumem_timeline *timeline)
{
	if (!timeline)
		return 0;
	CLIENT_CALL();
	pthread_mutex_lock(&list_lock);
	list_remove(&own_timelines, timeline);
	pthread_mutex_unlock(&list_lock);
	watch_end(timeline);
	if (timeline->name)
		name_remove(timeline);
	gpumem *file = timeline->file;

	timeline_free(timeline);
	return gpumem_close(file);
}

/* --- Signals and waits */

static int arguments_check(const struct gpumem_timeline *timeline, size_t number, uint64_t value)
{
	if (timeline->owner != getpid())
		return client_fail(EINVAL, "the timelines are the parent's");
	if (number >= timeline->count || value > GPUMEM_TIMELINE_MAX)
		return client_fail(EINVAL, "the file has %zu timelines, of values up to 2^62 - 1",
				   timeline->count);
	return 0;
}

/* Of a word in the current context. */
static int address_find(gpumem_timeline *timeline, size_t number, uint64_t *address)
{
	unsigned long long base;

	if (gpumem_map_device(timeline->file, &base, NULL) < 0)
		return -errno;
	*address = base + number * WORD_STRIDE;
	return 0;
}

typedef int stream_operation(void *stream, uint64_t address, uint64_t value);

static int stream_operate(gpumem_timeline *timeline, size_t number, void *stream, uint64_t value,
			  stream_operation *operation)
{
	uint64_t address = 0;
	int rc = arguments_check(timeline, number, value);

	if (rc == 0)
		rc = address_find(timeline, number, &address);
	return client_errno_return(rc < 0 ? rc : operation(stream, address, value));
}

int gpumem_timeline_signal(gpumem_timeline *timeline, size_t number, void *stream, uint64_t value)
{
	CLIENT_CALL();
	return stream_operate(timeline, number, stream, value, client_stream_write);
}

int gpumem_timeline_wait(gpumem_timeline *timeline, size_t number, void *stream, uint64_t value)
{
	CLIENT_CALL();
	return stream_operate(timeline, number, stream, value, client_stream_wait);
}

int gpumem_timeline_signal_host(gpumem_timeline *timeline, size_t number, uint64_t value)
{
	CLIENT_CALL();
	int rc = arguments_check(timeline, number, value);

	if (client_errno_return(rc) < 0)
		return -1;
	gpumem_flush(timeline->file);
	atomic_store(word_of(timeline, number), value);
	return gpumem_flush(timeline->file);
}

int gpumem_timeline_value(gpumem_timeline *timeline, size_t number, uint64_t *value)
{
	CLIENT_CALL();
	int rc = arguments_check(timeline, number, 0);

	if (rc == 0)
		*value = atomic_load(word_of(timeline, number));
	return client_errno_return(rc);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Spins at first, because a sleep takes 60 us at least. */
static bool value_await(const _Atomic uint64_t *word, uint64_t value, int64_t timeout)
{
	int64_t start = now_ns(), passed = 0;

	while (atomic_load(word) < value) {
		if (timeout >= 0 && passed >= timeout)
			return false;
		if (passed < SPIN_NS)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
		passed = now_ns() - start;
	}
	return true;
}

int gpumem_timeline_wait_host(gpumem_timeline *timeline, size_t number, uint64_t value,
			      int64_t timeout)
{
	client_enter();
	int rc = client_errno_return(arguments_check(timeline, number, value));

	client_leave();
	if (rc < 0)
		return rc;
	/* Outside the gate: a fork does not wait. */
	bool reached = value_await(word_of(timeline, number), value, timeout);

	CLIENT_CALL();
	if (!reached)
		rc = client_fail(ETIMEDOUT, "the timeline has not reached the value");
	else if (atomic_load(word_of(timeline, number)) >= GPUMEM_TIMELINE_ENDED)
		rc = ended_fail();
	return client_errno_return(rc);
}

int gpumem_timeline_check(gpumem_timeline *timeline)
{
	CLIENT_CALL();
	/* Another process may have ended the words before this process's thread has looked. */
	bool ended =
	    atomic_load(&timeline->ended) || (!timeline->name && creator_is_gone(timeline));

	return client_errno_return(ended ? ended_fail() : 0);
}
