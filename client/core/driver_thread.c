/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/driver_thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/core/private_fd.h"
#include "client/core/process.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/descriptors.h"

/* How a descriptor gets from the program's table into the thread's. The library keeps no descriptor
 * open for this in the program's table, because the program may close any. The thread listens at a
 * name that the kernel chose (abstract, in this network namespace); a caller connects, sends the
 * descriptor and closes the connection within the call. Other processes can find the name, so the
 * thread checks the process of each peer. pidfd_getfd(2) would be simpler, but containers need a
 * capability for it. */
#define BACKLOG 64
#define TRIES	3

/* A thread that is not ready after this time waits for a lock that the caller holds. */
#define START_S 3

/* The thread's descriptors begin above the numbers of most programs (if the limit leaves room).
 * Otherwise the driver, which uses numbers in other threads, at exit or in a child of fork, could
 * hit a file of the program. */
#define FIRST_NUMBER 768

struct job {
	int (*work)(int fd, void *argument);
	void *argument;
	bool with_fd;
	int rc;
};

static pthread_mutex_t call_lock =
    PTHREAD_MUTEX_INITIALIZER; /* held by the caller of the current job */
static pthread_mutex_t job_lock = PTHREAD_MUTEX_INITIALIZER; /* of the job and its state */
static pthread_cond_t job_changed = PTHREAD_COND_INITIALIZER;
static struct job *current_job; /* NULL: no job, or the job is done */

static enum { NOT_STARTED, STARTED, FAILED } thread_state; /* under call_lock */
static int start_error;					   /* under call_lock */
static struct sockaddr_un socket_name; /* written before the first job is done */
static socklen_t socket_name_bytes;

static atomic_bool thread_enabled;
static void (*thread_began)(void); /* written before thread_enabled */

static _Thread_local bool on_driver_thread;

bool client_driver_thread_here(void)
{
	return on_driver_thread;
}

void client_driver_thread_enable(void (*began)(void))
{
	thread_began = began;
	atomic_store(&thread_enabled, true);
}

bool client_driver_thread_enabled(void)
{
	return atomic_load(&thread_enabled);
}

/* Inside the gate, or in a process with one thread. */
static void driver_thread_forked(void)
{
	call_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	job_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	job_changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	current_job = NULL;
	thread_state = NOT_STARTED;
}

static struct client_fork_handler fork_handler = {.forked = driver_thread_forked};

/* --- In the thread. The system calls are made directly: the functions of libc may be wrappers for
 * the numbers of the program. */

static int listener_open(void)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};

	int fd =
	    (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	socket_name_bytes = sizeof(socket_name);
	if (syscall(SYS_bind, fd, &any, sizeof(any.sun_family)) < 0 ||
	    syscall(SYS_listen, fd, BACKLOG) < 0 ||
	    syscall(SYS_getsockname, fd, &socket_name, &socket_name_bytes) < 0)
		return -errno;
	return fd;
}

/* Fills the low numbers of the thread's table. Standard error stays, for the driver's messages.
 * Each other number refers to the listening socket, so the thread holds no file of the program
 * open, and the driver finds no descriptor that it could mistake for its own. */
static int table_fill(int fd)
{
	struct rlimit limit;
	int last = fd;

	for (int standard = 0; standard < 2; standard++)
		if (syscall(SYS_dup3, fd, standard, O_CLOEXEC) < 0)
			return -errno;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < FIRST_NUMBER + 256)
		return 0;
	while (last >= 0 && last < FIRST_NUMBER - 1)
		last = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
	return last < 0 ? -errno : 0;
}

static bool peer_is_this_process(int fd)
{
	struct ucred peer = {0};
	socklen_t bytes = sizeof(peer);

	return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
	       peer.pid == getpid();
}

static int fd_receive(int connection)
{
	union descriptor_control control;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd;

	if (syscall(SYS_recvmsg, connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return -errno;
	if (message.msg_controllen < CMSG_LEN(sizeof(fd)) || control.header.cmsg_type != SCM_RIGHTS)
		return -EMFILE;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}

/* Receives the descriptor that this process has sent. Connections of other processes are closed. */
static int fd_accept(int listening)
{
	int fd = -EAGAIN;

	while (fd < 0) {
		int connection = (int)syscall(SYS_accept4, listening, NULL, NULL, SOCK_CLOEXEC);
		if (connection < 0)
			return -errno;
		if (peer_is_this_process(connection))
			fd = fd_receive(connection);
		syscall(SYS_close, connection);
	}
	return fd;
}

static void job_perform(struct job *todo, int listening)
{
	int fd = todo->with_fd ? fd_accept(listening) : -1;

	if (todo->with_fd && fd < 0) {
		todo->rc = fd;
		return;
	}
	todo->rc = todo->work(fd, todo->argument);
	if (fd >= 0)
		syscall(SYS_close, fd);
}

static struct job *job_wait(void)
{
	scoped_lock(&job_lock);
	while (!current_job)
		pthread_cond_wait(&job_changed, &job_lock);
	return current_job;
}

static void job_finish(void)
{
	scoped_lock(&job_lock);
	current_job = NULL;
	pthread_cond_broadcast(&job_changed);
}

/* Loading a driver needs the lock of the dynamic loader. A program that calls from a library's
 * constructor holds that lock while it waits. */
static void loader_wait(void)
{
	void *program = dlopen(NULL, RTLD_LAZY);

	if (program)
		dlclose(program);
}

static void *driver_thread_main(void *unused)
{
	(void)unused;
	on_driver_thread = true;
	client_inside();
	if (thread_began)
		thread_began();
	struct job *first = job_wait();
	int listening = client_private_fd_table(STDERR_FILENO + 1);
	if (listening == 0)
		listening = listener_open();
	int rc = listening < 0 ? listening : table_fill(listening);
	if (rc == 0)
		loader_wait();
	first->rc = rc;
	job_finish();
	if (rc < 0)
		return NULL;
	for (;;) {
		job_perform(job_wait(), listening);
		job_finish();
	}
}

/* --- In the thread of a caller */

/* Under call_lock. */
static int job_run(struct job *todo)
{
	scoped_lock(&job_lock);
	current_job = todo;
	pthread_cond_broadcast(&job_changed);
	while (current_job)
		pthread_cond_wait(&job_changed, &job_lock);
	return todo->rc;
}

static int fd_send(int connection, int fd)
{
	union descriptor_control control;
	struct iovec part = {"", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	descriptor_attach(&message, &control, fd);
	return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int job_do_nothing(int fd, void *argument)
{
	(void)fd;
	(void)argument;
	return 0;
}

/* Under call_lock. The packet waits in the queue, so caller and thread never wait for each other.
 * If other processes have filled the queue, a job without a result empties the queue. */
static int job_run_with_fd(struct job *todo, int fd)
{
	int rc = -EAGAIN;

	for (unsigned attempt = 0; rc == -EAGAIN && attempt < TRIES; attempt++) {
		AUTO_CLOSE int connection =
		    socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (connection < 0)
			return -errno;
		if (connect(connection, (struct sockaddr *)&socket_name, socket_name_bytes) == 0) {
			rc = fd_send(connection, fd);
			return rc < 0 ? rc : job_run(todo);
		}
		rc = -errno;
		if (rc == -EAGAIN)
			job_run(&(struct job){.work = job_do_nothing, .with_fd = true});
	}
	return rc;
}

/* Under call_lock. */
static int job_run_first(struct job *first)
{
	int64_t end = clock_ns() + START_S * CLOCK_SECOND;

	scoped_lock(&job_lock);
	current_job = first;
	pthread_cond_broadcast(&job_changed);
	while (current_job)
		if (clock_cond_wait(&job_changed, &job_lock, end) == ETIMEDOUT)
			return -ETIMEDOUT;
	return first->rc;
}

/* Under call_lock. */
static int thread_start(void)
{
	static struct job first; /* static: a late thread still finds the job */
	struct job trial = {.work = job_do_nothing, .with_fd = true};
	pthread_t thread;

	int rc = client_private_fd_thread(&thread, driver_thread_main, NULL);
	if (rc < 0)
		return rc;
	pthread_detach(thread);
	rc = job_run_first(&first);
	if (rc < 0)
		return rc;
	AUTO_CLOSE int sample = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return sample < 0 ? -errno : job_run_with_fd(&trial, sample);
}

/* A cancelled thread must not leave a job behind. */
static int cancel_disable(void)
{
	int old_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old_state);
	return old_state;
}

static void cancel_restore(const int *old_state)
{
	int unused;

	pthread_setcancelstate(*old_state, &unused);
}

#define UNCANCELLED()                                                                              \
	int before_ __attribute__((cleanup(cancel_restore), unused)) = cancel_disable()

int client_driver_thread_start(void)
{
	UNCANCELLED();
	client_fork_handler_register(&fork_handler);
	scoped_lock(&call_lock);
	if (thread_state == NOT_STARTED) {
		start_error = thread_start();
		thread_state = start_error < 0 ? FAILED : STARTED;
	}
	return start_error;
}

int client_driver_thread_call(int (*work)(int fd, void *argument), void *argument, int fd)
{
	struct job todo = {.work = work, .argument = argument, .with_fd = fd >= 0};

	UNCANCELLED();
	scoped_lock(&call_lock);
	if (thread_state != STARTED)
		return -ESRCH;
	return fd >= 0 ? job_run_with_fd(&todo, fd) : job_run(&todo);
}
