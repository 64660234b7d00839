/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/recall.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/mount.h"
#include "client/core/private_fd.h"
#include "client/core/process.h"
#include "client/core/send.h"
#include "client/preload/core/own.h"
#include "common/cleanup.h"

/* A process sees few mounts of gpumemfs. */
#define LISTENERS_MAX 8

/* A daemon that does not answer by then sends no notices. */
#define ANSWER_SECONDS 2

struct listener {
	uint64_t device;
	int fd; /* the library's; -1: does not listen. The thread closes fd, or a child of fork */
};

static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct listener recall_listeners[LISTENERS_MAX] = {[0 ... LISTENERS_MAX - 1] = {.fd = -1}};
static void (*on_recall)(uint64_t device, uint64_t inode);

void recall_start(void (*recalled)(uint64_t device, uint64_t inode))
{
	on_recall = recalled;
}

/* The result of client_answer_notice for the next packet. */
static int notice_receive(int fd, struct gpumem_msg_notice *notice)
{
	char packet[sizeof(*notice) + 1];
	ssize_t n;

	do {
		n = recv(fd, packet, sizeof(packet), 0);
	} while (n < 0 && errno == EINTR);
	CLIENT_CALL();
	return n <= 0 ? -EPIPE : client_answer_notice(packet, (size_t)n, notice);
}

/* Under listeners_lock. Over the connection come recalls. False: there is none. */
static bool listener_connect(struct listener *listener, int file)
{
	struct gpumem_msg_listen request = {.flags = GPUMEM_LISTEN_RECALL};
	struct timeval patience = {.tv_sec = ANSWER_SECONDS}, forever = {0};
	struct gpumem_msg_notice notice;

	/* A fork finds either no descriptor, or the descriptor in its place. */
	client_enter();
	listener->fd = client_mount_connect(file);
	client_leave();
	if (listener->fd < 0)
		return false;
	setsockopt(listener->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return client_send(listener->fd, &request.header, GPUMEM_MSG_LISTEN, sizeof(request), 1,
			   0) &&
	       notice_receive(listener->fd, &notice) == 1 &&
	       setsockopt(listener->fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever)) == 0;
}

/* Under listeners_lock. */
static void listener_close(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}

static void notice_answer(int fd, uint32_t number)
{
	struct gpumem_msg_noticed answer = {0};

	/* A lost packet ends the connection. */
	client_send(fd, &answer.header, GPUMEM_MSG_NOTICED, sizeof(answer), number, 0);
}

static void *listener_main(void *pointer)
{
	struct listener *listener = pointer;
	uint64_t device = listener->device;
	struct gpumem_msg_notice notice;

	own_thread_began();
	while (notice_receive(listener->fd, &notice) == 0) {
		on_recall(device, notice.inode);
		notice_answer(listener->fd, notice.header.request);
	}
	/* No further recalls come. */
	pthread_mutex_lock(&listeners_lock);
	listener_close(listener);
	pthread_mutex_unlock(&listeners_lock);
	on_recall(device, 0);
	return NULL;
}

/* Under listeners_lock. */
static struct listener *listener_find(uint64_t device)
{
	struct listener *free = NULL;

	for (unsigned i = 0; i < LISTENERS_MAX; i++) {
		if (recall_listeners[i].fd >= 0 && recall_listeners[i].device == device)
			return &recall_listeners[i];
		if (recall_listeners[i].fd < 0)
			free = &recall_listeners[i];
	}
	return free;
}

bool recall_listen(int fd, uint64_t device)
{
	pthread_t thread;

	scoped_lock(&listeners_lock);
	struct listener *listener = listener_find(device);

	if (!listener || listener->fd >= 0)
		return listener;
	listener->device = device;
	if (listener_connect(listener, fd) &&
	    client_private_fd_thread(&thread, listener_main, listener) == 0) {
		pthread_detach(thread);
		return true;
	}
	listener_close(listener);
	return false;
}

void recall_forked(void)
{
	pthread_mutex_init(&listeners_lock, NULL);
	for (unsigned i = 0; i < LISTENERS_MAX; i++)
		listener_close(&recall_listeners[i]);
}
