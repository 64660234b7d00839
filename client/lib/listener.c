/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/listener.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/driver_thread.h"
#include "client/core/mount.h"
#include "client/core/private_fd.h"
#include "client/core/process.h"
#include "client/core/send.h"
#include "client/lib/file.h"
#include "common/cleanup.h"

/* Between the end of a connection and the next, so that a daemon that hangs up is not called in a
 * loop. */
#define PAUSE_S 1

struct listener {
	struct listener *next; /* under listeners_lock, and so all below */
	dev_t device;	       /* of the mount; never changes */
	int fd;		       /* -1: not connected; set by the listener's thread alone */
	ino_t socket;	       /* inode of fd, because programs close descriptors */
};

/* Taken before the lock of the list of files. */
static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct listener *listener_list;
static struct listening {
	const struct client_notices *taker;
	uint32_t kinds;
} notice_takers[CLIENT_TAKERS];

/* In the child of a fork. The threads are the parent's. */
static void listeners_forked(void)
{
	for (struct listener *at = listener_list, *next; at; at = next) {
		next = at->next;
		if (at->fd >= 0)
			close(at->fd);
		free(at);
	}
	listener_list = NULL;
	for (unsigned i = 0; i < CLIENT_TAKERS; i++)
		notice_takers[i].kinds = 0;
}

static struct client_fork_handler fork_handler = {.forked = listeners_forked};

/* Under listeners_lock, or by the listener's thread. */
static bool socket_is_ours(const struct listener *listener)
{
	struct stat st;

	return listener->fd >= 0 && fstat(listener->fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       st.st_ino == listener->socket;
}

/* Under listeners_lock. Never waits: a lost packet ends the connection, or is an answer that no
 * process waits for any more. */
static bool packet_send(const struct listener *listener, struct gpumem_msg_header *packet,
			uint16_t type, uint32_t number, size_t bytes)
{
	return socket_is_ours(listener) &&
	       client_send(listener->fd, packet, type, bytes, number, MSG_DONTWAIT);
}

/* Under listeners_lock. */
static uint32_t all_kinds(void)
{
	uint32_t kinds = 0;

	for (unsigned i = 0; i < CLIENT_TAKERS; i++)
		kinds |= notice_takers[i].kinds;
	return kinds;
}

/* Under listeners_lock. */
static bool listen_send(const struct listener *listener)
{
	struct gpumem_msg_listen request = {.flags = all_kinds()};

	return packet_send(listener, &request.header, GPUMEM_MSG_LISTEN, 0, sizeof(request));
}

void client_listener_answer(dev_t device, uint32_t number, int error, uint32_t files)
{
	struct gpumem_msg_noticed answer = {.error = error, .files = files};

	scoped_lock(&listeners_lock);
	for (struct listener *at = listener_list; at; at = at->next)
		if (at->device == device)
			packet_send(at, &answer.header, GPUMEM_MSG_NOTICED, number, sizeof(answer));
}

/* --- In the listener's thread */

/* The arguments of file_connect. */
struct connecting {
	dev_t device;
	int fd;
};

/* Connects by any file of the mount. */
static void file_connect(struct gpumem *file, void *pointer)
{
	struct connecting *connecting = pointer;

	if (connecting->fd < 0 && file->identity.device == connecting->device)
		connecting->fd = client_mount_connect(file->fd);
}

/* Under listeners_lock. */
static void listener_close(struct listener *listener)
{
	if (socket_is_ours(listener))
		close(listener->fd);
	listener->fd = -1;
}

/* Under listeners_lock. */
static void listener_remove(struct listener *listener)
{
	struct listener **at = &listener_list;

	listener_close(listener);
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	free(listener);
}

/* Connects, or frees the listener: the mount has no more files here, or its daemon does not answer.
 */
static bool listener_connect(struct listener *listener)
{
	struct connecting connecting = {.device = listener->device, .fd = -1};
	struct stat st;

	CLIENT_CALL();
	/* Before listeners_lock: a daemon that does not answer holds up calls for this mount alone.
	 */
	client_files_each(file_connect, &connecting);
	scoped_lock(&listeners_lock);
	listener->fd = connecting.fd;
	if (listener->fd >= 0 && fstat(listener->fd, &st) == 0) {
		listener->socket = st.st_ino;
		if (listen_send(listener))
			return true;
	}
	listener_remove(listener);
	return false;
}

/* Ends the connection, and without an answer the listener, too: the daemon sends no notices. */
static bool listener_hang_up(struct listener *listener, bool answered)
{
	CLIENT_CALL();
	scoped_lock(&listeners_lock);
	if (answered)
		listener_close(listener);
	else
		listener_remove(listener);
	return answered;
}

static uint32_t kind_of(const struct gpumem_msg_notice *notice)
{
	static const uint32_t kinds[] = {[GPUMEM_NOTICE_PARK] = GPUMEM_LISTEN_PARK,
					 [GPUMEM_NOTICE_UNPARK] = GPUMEM_LISTEN_PARK,
					 [GPUMEM_NOTICE_MEMORY] = GPUMEM_LISTEN_MEMORY,
					 [GPUMEM_NOTICE_RECALL] = GPUMEM_LISTEN_RECALL,
					 [GPUMEM_NOTICE_END] = GPUMEM_LISTEN_END};

	return kinds[notice->what];
}

static struct listening taker_at(unsigned i)
{
	CLIENT_CALL();
	scoped_lock(&listeners_lock);
	return notice_takers[i];
}

/* Whether the packet is a notice, or the daemon's answer. */
static bool packet_take(const struct listener *listener, const void *packet, size_t bytes)
{
	struct gpumem_msg_notice notice;
	int rc = client_answer_notice(packet, bytes, &notice);

	for (unsigned i = 0; rc >= 0 && i < CLIENT_TAKERS; i++) {
		struct listening listening = taker_at(i);

		if (rc == 0 && listening.kinds & kind_of(&notice))
			listening.taker->take(listener->device, &notice);
		else if (rc == 1 && listening.kinds && listening.taker->connected)
			listening.taker->connected(listener->device);
	}
	return rc >= 0;
}

/* Takes notices until the connection ends. Whether the daemon has ever answered. */
static bool notices_take(const struct listener *listener)
{
	char packet[sizeof(struct gpumem_msg_notice) + 1];
	bool answered = false;

	while (socket_is_ours(listener)) {
		ssize_t n = recv(listener->fd, packet, sizeof(packet), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || !packet_take(listener, packet, (size_t)n))
			return answered;
		answered = true;
	}
	return answered;
}

static void *listener_main(void *pointer)
{
	struct listener *listener = pointer;

	while (listener_connect(listener) && listener_hang_up(listener, notices_take(listener)))
		sleep(PAUSE_S);
	return NULL;
}

/* --- In threads of the program */

/* Under listeners_lock. A process that may have no thread has no listener. */
static void listener_start(dev_t device)
{
	pthread_t thread;

	for (const struct listener *at = listener_list; at; at = at->next)
		if (at->device == device)
			return;
	struct listener *new_listener = malloc(sizeof(*new_listener));
	if (!new_listener)
		return;
	*new_listener = (struct listener){.next = listener_list, .device = device, .fd = -1};
	if (client_private_fd_thread(&thread, listener_main, new_listener) < 0) {
		free(new_listener);
		return;
	}
	pthread_detach(thread);
	listener_list = new_listener;
}

static void file_listen(struct gpumem *file, void *unused)
{
	(void)unused;
	if (client_file_holds_gpu(file) || file->end.watched)
		listener_start(file->identity.device);
}

/* Under listeners_lock. */
static struct listening *taker_find(const struct client_notices *taker)
{
	struct listening *at = notice_takers;

	while (at->taker && at->taker != taker)
		at++;
	at->taker = taker;
	return at;
}

void client_listen_for(const struct client_notices *taker, uint32_t kinds)
{
	scoped_lock(&listeners_lock);
	uint32_t before = all_kinds();

	if (client_driver_thread_enabled())
		return;
	client_fork_handler_register(&fork_handler);
	taker_find(taker)->kinds = kinds;
	if (!before)
		client_files_each(file_listen, NULL);
	else if (all_kinds() != before)
		for (const struct listener *at = listener_list; at; at = at->next)
			listen_send(at);
}

void client_listen_file(struct gpumem *file)
{
	scoped_lock(&listeners_lock);
	if (!all_kinds())
		return;
	scoped_lock(&file->lock);
	file_listen(file, NULL);
}
