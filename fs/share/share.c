/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/share.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/system/descriptors.h"
#include "common/vector.h"
#include "fs/core/worker.h"
#include "fs/holders/holds.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"

/* How often deadlines are checked. */
#define TICK_MS 1000

static int epoll_watch(struct share *share, int fd, uint32_t events, void *data)
{
	struct epoll_event event = {.events = events, .data.ptr = data};

	return epoll_ctl(share->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void listener_watch(struct share *share, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = &share->listen_fd};

	if (share->listen_fd >= 0)
		epoll_ctl(share->epoll_fd, EPOLL_CTL_MOD, share->listen_fd, &event);
}

/* accept() failed for lack of descriptors or memory. Until the next tick the listener is not
 * watched: the share thread would repeat the call without a pause. Clients wait in the backlog. */
static void accept_pause(struct share *share, int error)
{
	if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM)
		return;
	if (!share->logged_no_fds)
		log_warn("%s: connections have to wait: %s; raise the daemon's limit of open files "
			 "(ulimit -Hn, LimitNOFILE=)",
			 share->fs->options.mountpoint, strerror(error));
	share->logged_no_fds = share->accept_paused = true;
	listener_watch(share, 0);
}

static void accept_resume(struct share *share)
{
	if (share->accept_paused)
		listener_watch(share, EPOLLIN);
	share->accept_paused = false;
}

static void connection_accept(struct share *share)
{
	int fd = accept4(share->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		accept_pause(share, errno);
		return;
	}
	if (descriptor_unreserved(DESCRIPTOR_CONNECTION, fd) < 0)
		return;
	if (share_socket_admit(share, fd) || share_connection_new(share, fd))
		close(fd);
}

/* Ends connections that had no lease in time. */
static void deadlines_check(struct share *share)
{
	accept_resume(share);
	share_connections_end(share, clock_seconds());
	turns_retry(turns_of(share->fs));
}

/* After the share thread and fs/turns have stopped. */
static void connections_free(struct share *share)
{
	while (share->connections)
		share_connection_free(share, share->connections);
}

/* The socket and each of its connections keep the mount alive, so the daemon closes both after the
 * mount is unmounted. */
static void mount_check(struct share *share)
{
	if (share_socket_mounted(share))
		return;
	share_connections_end(share, SHARE_ALWAYS);
	/* Before close(): events go on while the keeper has a duplicate of the descriptor. */
	if (share->listen_fd >= 0)
		epoll_ctl(share->epoll_fd, EPOLL_CTL_DEL, share->listen_fd, NULL);
	share_socket_close(share);
}

static void event_handle(struct share *share, const struct epoll_event *event)
{
	if (event->data.ptr == &share->listen_fd)
		connection_accept(share);
	else if (event->data.ptr == &share->mounts)
		mount_check(share);
	else if (event->data.ptr == share->fs)
		holds_collect(share->fs);
	else if (event->data.ptr != &share->stop_fd &&
		 share_connection_acquire(share, event->data.ptr))
		share_receive(share, event->data.ptr);
}

bool share_has_more(const struct share *share)
{
	struct pollfd events = {.fd = share->epoll_fd, .events = POLLIN};

	return poll(&events, 1, 0) != 0;
}

static void *share_thread_main(void *pointer)
{
	struct share *share = pointer;
	struct epoll_event event;
	uint64_t stopped;
	int64_t last = clock_seconds();

	/* The mount may have gone while there was no daemon. */
	mount_check(share);
	/* A single event at a time: the handler may free the connection of the next event. */
	while (read(share->stop_fd, &stopped, sizeof(stopped)) < 0) {
		int n = epoll_wait(share->epoll_fd, &event, 1, TICK_MS);

		if (n > 0)
			event_handle(share, &event);
		if (clock_seconds() != last) {
			last = clock_seconds();
			deadlines_check(share);
		}
	}
	worker_end();
	return NULL;
}

static void share_free(struct share *share)
{
	share_socket_close(share);
	if (share->epoll_fd >= 0)
		close(share->epoll_fd);
	if (share->stop_fd >= 0)
		close(share->stop_fd);
	persist_close(share->persist);
	pthread_cond_destroy(&share->delegations.answered);
	pthread_mutex_destroy(&share->lock);
	free(share);
}

static int share_start(struct share *share)
{
	share->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	share->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (share->epoll_fd < 0 || share->stop_fd < 0)
		return -errno;
	int error = persist_open(share->fs->fdstore, &share->persist);

	if (!error)
		error = share_socket_open(share, share->fs->options.mountpoint);
	if (!error && share->listen_fd >= 0)
		share_refuse_fds(share->listen_fd, true);
	if (!error)
		error = share_restore(share);
	if (!error)
		error = epoll_watch(share, share->stop_fd, EPOLLIN, &share->stop_fd);
	if (!error)
		error = epoll_watch(share, share->listen_fd, EPOLLIN, &share->listen_fd);
	if (!error)
		error = epoll_watch(share, holds_fd(share->fs), EPOLLIN, share->fs);
	if (!error && share->mounts)
		error = epoll_watch(share, fileno(share->mounts), EPOLLPRI, &share->mounts);
	if (!error)
		error = -pthread_create(&share->thread, NULL, share_thread_main, share);
	if (error)
		connections_free(share);
	return error;
}

int share_open(struct fs *fs, dev_t device, share_changed *changed, struct share **opened)
{
	struct share *share = calloc(1, sizeof(*share));

	if (!share)
		return -ENOMEM;
	*share =
	    (struct share){.fs = fs,
			   .epoll_fd = -1,
			   .listen_fd = -1,
			   .stop_fd = -1,
			   .tree_fd = -1,
			   .device = device,
			   .changed = changed,
			   .job = {.work = share_work, .cancel = share_cancel, .context = share},
			   /* Late answers to notices of an earlier daemon have other numbers. */
			   .last_notice = (uint32_t)clock_ns()};
	pthread_mutex_init(&share->lock, NULL);
	pthread_cond_init(&share->delegations.answered, NULL);
	int error = share_start(share);

	if (error) {
		share_log_refusal(share, error);
		share_free(share);
		return error;
	}
	*opened = share;
	return 0;
}

/* The share's lock is held. The files of leases whose holders may store without the daemon's
 * knowledge: their number, and an array that is the caller's. Without memory for more, the array
 * ends early. */
static size_t unseen_files(struct share *share, uint64_t **numbers)
{
	struct share_connection *connection;
	size_t n = 0;

	DL_FOREACH2(share->connections, connection, next)
	{
		for (struct share_lease *lease = connection->leases; lease;
		     lease = lease->hh.next) {
			uint64_t *grown =
			    lease->unseen ? vector_grow(*numbers, n, sizeof(*grown)) : NULL;

			if (!grown)
				continue;
			grown[n++] = lease->inode->ino;
			*numbers = grown;
		}
	}
	return n;
}

void share_raise(struct share *share)
{
	AUTO_FREE uint64_t *numbers = NULL;
	size_t n = 0;

	if (!share)
		return;
	pthread_mutex_lock(&share->lock);
	/* The earlier program let the kernel keep the attributes of such files for a day. */
	if (persist_raise(share->persist))
		n = unseen_files(share, &numbers);
	pthread_mutex_unlock(&share->lock);
	while (n)
		share->changed(share->fs->states[FS_SESSION], numbers[--n]);
}

void share_close(struct share *share)
{
	if (!share)
		return;
	eventfd_write(share->stop_fd, 1);
	pthread_join(share->thread, NULL);
	connections_free(share);
	share_free(share);
}

int share_ask(struct share *share, struct share_ask *ask)
{
	struct share_connection *connection;

	if (ask->ask.version != GPUMEM_PROTOCOL_VERSION)
		return -EOPNOTSUPP;
	int error = share_connection_acquire_key(share, ask, &connection);

	return error ? error : share_serve_ask(share, connection, ask);
}

int share_leased(struct share *share, uid_t uid, const uint8_t key[GPUMEM_KEY_BYTES],
		 uint64_t lease, struct inode **inode)
{
	return share_connection_leased(share, uid, key, lease, inode);
}
