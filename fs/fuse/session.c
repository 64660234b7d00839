/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "common/system/sd_notify.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/channel.h"
#include "fs/fuse/crew.h"
#include "fs/fuse/deferral.h"
#include "fs/fuse/ended_files.h"
#include "fs/fuse/internal.h"
#include "fs/fuse/lookup_gc.h"
#include "fs/fuse/readahead.h"
#include "fs/journal/journal.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"

/* How long processes may still use the mount after a signal to the daemon; then their requests
 * fail. */
#define END_GRACE_MS 500
#define KICK_MS	     10

/* The kernel may answer stat(2) of a dead mount out of its cache, but not statfs(2). */
static int mountpoint_look(const char *mountpoint, struct stat *st)
{
	struct statfs fs;

	return stat(mountpoint, st) < 0 || statfs(mountpoint, &fs) < 0 ? -errno : 0;
}

/* Reports that the daemon of a mount has ended: of gpumemfs, or of another FUSE file system. */
static int mountpoint_fail_dead(const char *mountpoint)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	if (table && mountinfo_find(table, mountpoint, FSTYPE))
		log_error("%s: the mount here is dead: its daemon has ended, and its files are "
			  "lost: gpumem umount %s, then mount again",
			  mountpoint, mountpoint);
	else
		log_error("%s: a mount here or above is dead (%s): unmount it first", mountpoint,
			  strerror(ENOTCONN));
	return -ENOTCONN;
}

int session_check(const char *mountpoint)
{
	struct stat st;
	int error = mountpoint_look(mountpoint, &st);

	if (error == -ENOTCONN)
		return mountpoint_fail_dead(mountpoint);
	if (error) {
		log_error("%s: %s", mountpoint,
			  error == -ENOENT ? "no such directory" : strerror(-error));
		return error;
	}
	if (!S_ISDIR(st.st_mode)) {
		log_error("%s: not a directory", mountpoint);
		return -ENOTDIR;
	}
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	if (!table)
		log_warn("/proc/self/mountinfo: %s: cannot read the mount table", strerror(errno));
	if (table && mountinfo_find(table, mountpoint, FSTYPE)) {
		log_error("%s: gpumemfs is mounted here already", mountpoint);
		return -EBUSY;
	}
	return 0;
}

static void signal_interrupt(int signal)
{
	(void)signal; /* SIGUSR1 only interrupts a read(2) */
}

static sigset_t ending_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	return set;
}

void session_block_signals(void)
{
	sigset_t set = ending_signals();

	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int signals_setup(struct session *session)
{
	struct sigaction action = {.sa_handler = signal_interrupt};
	sigset_t set = ending_signals();

	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* raised by system_object_is_held */
	session->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	session->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return session->signal_fd < 0 || session->ended_fd < 0 ? -errno : 0;
}

/* Waits until the worker of this number is needed. */
static void turn_wait(struct session *session, unsigned number)
{
	if (crew_is_surplus(session->crew, number)) {
		channel_set_awake(session->fs, false);
		crew_park(session->crew, number);
	}
	crew_wait(session->crew, number);
}

/* Serves one request; false: there will be no more requests. */
static bool request_serve(struct session *session, struct worker *worker, unsigned number)
{
	turn_wait(session, number);
	ssize_t n =
	    channel_read(session->fs, session->fuse, worker->request, worker->request_bytes);

	if (n < 0) {
		/* ENOENT: the kernel withdrew the request. ENODEV, ECONNABORTED: the mount is gone;
		 * with ECONNABORTED requests were in progress. */
		if (errno == EINTR || errno == ENOENT || errno == EAGAIN)
			return !atomic_load(&session->ending);
		if (errno != ENODEV && errno != ECONNABORTED)
			log_error("/dev/fuse: %s", strerror(errno));
		return false;
	}
	struct fuse_buf buf = {.mem = worker->request, .size = (size_t)n};
	const struct fuse_in_header *header = worker->request;

	crew_take(session->crew, number, header->opcode);
	/* libfuse would answer that requests cannot be interrupted, or keep a list of all requests,
	 * behind a lock. */
	if (header->opcode == FUSE_INTERRUPT) {
		deferral_interrupt(session->fs, worker->request, (size_t)n);
		return true;
	}
	worker->request_number = header->unique;
	fuse_session_process_buf(session->fuse, &buf);
	timeline_answered(&session->fs->timeline, session->fs->options.mountpoint);
	return true;
}

static void thread_ended(struct session *session)
{
	sem_post(&session->answered);
	if (atomic_fetch_sub(&session->running, 1) == 1)
		eventfd_write(session->ended_fd, 1);
}

static void *worker_thread_main(void *pointer)
{
	struct session *session = pointer;
	struct worker *worker = worker_self(session->fs);

	if (worker && worker_need_request(worker, session->fs)) {
		log_error("no memory for a worker thread");
		worker = NULL;
	}
	unsigned number = atomic_fetch_add(&session->n_channels, 1);

	session->channels[number] = channel_open(session->fs, session->fuse, number);
	while (worker && request_serve(session, worker, number))
		;
	crew_end(session->crew);
	worker_end();
	thread_ended(session);
	return NULL;
}

/* libfuse owns the rings, and only libfuse's own loop ends their threads. The loop also serves the
 * requests that do not come by ring (FORGET, INIT). */
static void *rings_thread_main(void *pointer)
{
	struct session *session = pointer;

	/* libfuse's loop reads the requests, so the journal does not get their numbers. Only
	 * recovery=transparent needs the numbers, and uring_choose refuses rings there. */
	assert(session->fs->options.recovery != RECOVERY_TRANSPARENT);
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (config) {
		fuse_loop_cfg_set_max_threads(config, session->fs->can.threads);
		fuse_session_loop_mt(session->fuse, config);
		fuse_loop_cfg_destroy(config);
	}
	thread_ended(session);
	return NULL;
}

static int threads_start(struct session *session)
{
	bool rings = session->fs->can.io_uring.on;
	unsigned n_wanted = rings ? 1 : session->fs->can.threads;

	session->threads = calloc(n_wanted, sizeof(*session->threads));
	session->channels = calloc(n_wanted, sizeof(*session->channels));
	if (!session->threads || !session->channels || crew_new(n_wanted, &session->crew))
		return -ENOMEM;
	/* Count all threads before the first starts; otherwise a thread that ends early would take
	 * itself for the last. */
	atomic_store(&session->running, n_wanted);
	while (session->n_threads < n_wanted) {
		int error = pthread_create(&session->threads[session->n_threads], NULL,
					   rings ? rings_thread_main : worker_thread_main, session);
		if (error) {
			log_error("cannot start thread %u of %u: %s", session->n_threads + 1,
				  n_wanted, strerror(error));
			atomic_fetch_sub(&session->running, n_wanted - session->n_threads);
			return session->n_threads ? 0 : -error;
		}
		session->n_threads++;
	}
	return 0;
}

/* Unmounts, unless another daemon has mounted here since: then the device number differs. */
static void session_unmount(const struct session *session)
{
	unmount_lazily(session->fs->options.mountpoint, session->device);
}

/* Whether the last thread ended within the time. */
static bool threads_wait(struct session *session, int timeout_ms)
{
	struct pollfd fd = {.fd = session->ended_fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) > 0;
}

static void threads_join(struct session *session)
{
	for (unsigned i = 0; i < session->n_threads; i++)
		pthread_join(session->threads[i], NULL);
	session->n_threads = 0;
}

/* Ends the threads after the requests that they are serving, even if the kernel has more requests.
 */
static void threads_end(struct session *session)
{
	atomic_store(&session->ending, true);
	fuse_session_exit(session->fuse);
	while (session->n_threads && !threads_wait(session, KICK_MS))
		for (unsigned i = 0; i < session->n_threads; i++)
			pthread_kill(session->threads[i], SIGUSR1);
	threads_join(session);
}

int session_open(struct fs *fs, const struct session_table *table, struct session **opened)
{
	struct session *session = cacheline_calloc(sizeof(*session));
	int error = session ? 0 : -ENOMEM;

	if (error)
		return error;
	*session = (struct session){
	    .fs = fs, .table = *table, .fuse_fd = -1, .ended_fd = -1, .signal_fd = -1};
	sem_init(&session->answered, 0, 0);
	fs->states[FS_SESSION] = session;
	error = signals_setup(session);
	if (!error)
		error = capabilities_choose(fs);
	if (!error)
		error = session_fuse_new(session);
	if (!error)
		error = session_find_earlier_mount(session);
	if (error)
		session_close(session);
	else
		*opened = session;
	return error;
}

bool session_has_earlier_mount(const struct session *session)
{
	return session->fuse_fd >= 0;
}

/* Whether the kernel still has the connection. */
static bool connection_is_open(const struct session *session)
{
	struct pollfd fuse = {.fd = fuse_session_fd(session->fuse)};

	return poll(&fuse, 1, 0) >= 0 && !(fuse.revents & (POLLERR | POLLHUP));
}

/* Whether an earlier daemon of this mount left requests that wait for a reply. */
static bool request_is_waiting(const struct session *session)
{
	struct pollfd fuse = {.fd = fuse_session_fd(session->fuse), .events = POLLIN};

	return session->fs->mount == FS_MOUNT_KEPT && poll(&fuse, 1, 0) > 0 &&
	       fuse.revents & POLLIN;
}

int session_start(struct session *session)
{
	struct fs *fs = session->fs;
	int error = session_mount(session);

	if (error)
		return error;
	if (session->fuse_init)
		fuse_init_set_generation(session->fuse_init, fdstore_generation(fs->fdstore));
	if (session->table.start)
		error = session->table.start(fs);
	timeline_mark(&fs->timeline, TIMELINE_SERVING);
	if (!request_is_waiting(session))
		timeline_idle(&fs->timeline, fs->options.mountpoint);
	page_drop_start(session);
	ended_files_start(session);
	prefetch_start(session);
	if (!error)
		error = threads_start(session);
	if (error)
		goto unmount_fuse;
	sem_wait(&session->answered);
	if (atomic_load(&session->running) == 0 || !session->device) {
		/* The mount is gone already: succeed, so that the caller closes everything as at
		 * the end of a mount. */
		if (atomic_load(&session->greeted) && !connection_is_open(session))
			return 0;
		log_error("%s: the mount does not answer", fs->options.mountpoint);
		error = -EIO;
		goto unmount_fuse;
	}
	readahead_setup(fs, session->device);
	if (fs->mount == FS_MOUNT_KEPT)
		lookup_gc_start(session);
	return 0;

unmount_fuse:
	page_drop_stop(session);
	ended_files_stop(session);
	prefetch_stop(session);
	if (fdstore_generation(fs->fdstore) == 1)
		session_unmount(session);
	threads_end(session);
	return error;
}

dev_t session_device(const struct session *session)
{
	return session->device;
}

void session_changed(struct session *session, uint64_t ino)
{
	/* Pages stay valid, so the kernel sends no request that this thread would have to serve. */
	if (atomic_load(&session->running))
		fuse_lowlevel_notify_inval_inode(session->fuse, ino, -1, 0);
}

int session_wait(struct session *session)
{
	struct fdstore *fdstore = session->fs->fdstore;
	int error = 0;
	struct pollfd fds[] = {{.fd = session->ended_fd, .events = POLLIN},
			       {.fd = session->signal_fd, .events = POLLIN},
			       {.events = POLLRDHUP}};

	do {
		fds[2].fd = fdstore_fd(fdstore);
		if (poll(fds, 3, -1) > 0 && fds[2].revents)
			fdstore_replace(fdstore);
	} while (!fds[0].revents && !fds[1].revents);
	background_stop(&session->lookup_gc);
	page_drop_stop(session);
	ended_files_stop(session);
	prefetch_stop(session);
	notify_send(NOTIFY_STOPPING);
	if (!(fds[0].revents & POLLIN)) {
		log_info("%s: asked to end", session->fs->options.mountpoint);
		if (session->table.end)
			session->table.end(session->fs);
		/* The threads go on until the kernel closes the connection, because the kernel
		 * still writes back dirty pages of mappings. */
		session_unmount(session);
		if (!threads_wait(session, END_GRACE_MS)) {
			log_info("%s: still in use: processes there get ENOTCONN from now on",
				 session->fs->options.mountpoint);
			threads_end(session);
		}
	} else if (connection_is_open(session)) {
		log_error("%s: no thread serves the mount any more, but the mount is still there",
			  session->fs->options.mountpoint);
		error = -EIO;
	}
	threads_join(session);
	return error;
}

void session_close(struct session *session)
{
	if (session->table.close)
		session->table.close(session->fs);
	/* When the last device is closed, the kernel ends the connection. */
	for (unsigned i = 0; i < atomic_load(&session->n_channels); i++)
		if (session->channels[i] >= 0)
			close(session->channels[i]);
	if (session->fuse)
		fuse_session_destroy(session->fuse);
	if (session->fuse_fd >= 0)
		close(session->fuse_fd);
	fuse_init_close(session->fuse_init);
	if (session->ended_fd >= 0)
		close(session->ended_fd);
	if (session->signal_fd >= 0)
		close(session->signal_fd);
	sem_destroy(&session->answered);
	crew_free(session->crew);
	free(session->channels);
	free(session->threads);
	free(session);
}
