/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/protocol.h"
#include "common/system/descriptors.h"
#include "common/system/mounts.h"
#include "common/system/sd_notify.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/systemd_fdstore.h"

/* The serving daemon's pidfd, which only the service manager's store has. */
#define SERVING_ID fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_DAEMON)

/* Descriptors for the keeper itself: its own files and the sockets to daemons. */
#define OWN_FDS 64

/* serving_receive: the time that a keeper sleeps between two batches of messages. */
#define BATCH_US 1000

/* As many descriptors as the machine allows: a file of many chunks needs many. */
static uint64_t holds_limit(void)
{
	uint64_t limit = descriptors_raise();

	return limit > OWN_FDS ? limit - OWN_FDS : 0;
}

static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Lets a keeper restarted by systemd kill this daemon: daemon_kill_stored. */
static void serving_store(const struct keeper *keeper)
{
	store_remove(SERVING_ID);
	store_add(SERVING_ID, keeper->serving.pidfd);
}

/* Whether the mount of the daemons exists. Asks /dev/fuse: a request to the mount could wait for
 * ever. */
static bool is_mounted(const struct keeper *keeper)
{
	struct pollfd fuse = {
	    .fd = fd_table_get(&keeper->held, fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_DEVICE))};

	return fuse.fd >= 0 && poll(&fuse, 1, 0) >= 0 && !(fuse.revents & (POLLERR | POLLHUP));
}

static void log_daemon_end(const struct keeper *keeper, pid_t pid, int status)
{
	const char *mountpoint = keeper->options->mountpoint;

	if (status == CHILD_UNKNOWN)
		log_warn("%s: daemon %d ended", mountpoint, pid);
	else if (WIFSIGNALED(status))
		log_warn("%s: daemon %d was ended by signal %d (%s)", mountpoint, pid,
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_warn("%s: daemon %d ended (status %d)", mountpoint, pid, WEXITSTATUS(status));
}

static int daemon_exit_status(int status)
{
	return status == CHILD_UNKNOWN ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Whether the first daemon ended before serving, or reported failure. A killed daemon may have
 * served before reporting; then the next daemon must find the files. */
static bool mount_never_served(const struct keeper *keeper, const struct child *child, int status)
{
	int record = keeper_init_record(keeper);

	return keeper->generation == 1 && !child->ready &&
	       (!WIFSIGNALED(status) || !fuse_init_generation_of(record));
}

/* For a new program that ended before it served. */
static void upgrade_undo(struct keeper *keeper)
{
	if (keeper->old_program < 0)
		return;
	log_warn("%s: the new program does not serve: the old program is started again",
		 keeper->options->mountpoint);
	close(keeper->program);
	keeper->program = keeper->old_program;
	keeper->old_program = -1;
	upgrade_tell(keeper, ENOEXEC,
		     "it did not serve, see the log: the old program was started "
		     "again");
}

/* No thread of the previous daemon can answer requests or write to memory: the process was reaped,
 * so the driver has ended all GPU work. */
void keeper_take_over(struct keeper *keeper)
{
	/* The standby daemon runs the old program. */
	standby_end(keeper);
	keeper->serving = keeper->next;
	keeper->next = (struct child){0};
	keeper->old_program = keeper->program;
	keeper->program = keeper->serving.program;
	serving_store(keeper);
	child_go(keeper, &keeper->serving);
}

static void serving_died(struct keeper *keeper)
{
	struct child old_daemon = keeper->serving;

	while (keeper_receive(keeper, &keeper->serving))
		;
	old_daemon.ended = keeper->serving.ended;
	old_daemon.ready = keeper->serving.ready;
	/* A process that the daemon was starting has the line, too, until its exec. */
	if (keeper->serving.ipc >= 0)
		keeper->seen_us = clock_us();

	int status = child_reap(&keeper->serving);

	keeper->reaped_us = clock_us();
	if (!keeper->died)
		keeper->died = clock_ms();
	if (old_daemon.ended) {
		keeper_finish(keeper, daemon_exit_status(status));
	} else if (keeper->partial) {
		log_error("%s: daemon %d ended before it had given all descriptors to this keeper: "
			  "its files are lost",
			  keeper->options->mountpoint, old_daemon.pid);
		keeper_finish(keeper, 1);
	} else if (keeper->ending) {
		keeper_end_alone(keeper, 1);
	} else if (keeper->next.prepared) {
		keeper_take_over(keeper);
	} else if (mount_never_served(keeper, &old_daemon, status)) {
		log_daemon_end(keeper, old_daemon.pid, status);
		keeper_end_alone(keeper, 1);
	} else if (keeper->options->recovery == RECOVERY_TRANSPARENT && !is_mounted(keeper)) {
		keeper_finish(keeper, 0);
	} else {
		log_daemon_end(keeper, old_daemon.pid, status);
		if (!old_daemon.ready)
			upgrade_undo(keeper);
		failure_schedule(keeper, &old_daemon, status);
	}
}

/* The serving daemon goes on. */
static void next_died(struct keeper *keeper)
{
	int program = keeper->next.program;

	while (keeper_receive(keeper, &keeper->next))
		;
	child_reap(&keeper->next);
	close(program);
	log_warn("%s: the new program could not take over; nothing was changed",
		 keeper->options->mountpoint);
	upgrade_tell(keeper, ENOEXEC, "it could not take over, see the log: nothing was changed");
	/* The serving daemon may have been killed to make room for the new one. */
	if (!keeper->serving.pid)
		keeper->start_at = 0;
}

static void daemon_start_due(struct keeper *keeper)
{
	if (keeper->serving.pid || keeper->next.pid || keeper->is_done || keeper->ending ||
	    keeper->start_at > clock_ms())
		return;
	if (standby_serves(keeper)) {
		serving_store(keeper);
		return;
	}
	int error = child_start(keeper, &keeper->serving, keeper->program);

	if (!error) {
		serving_store(keeper);
		return;
	}
	log_error("%s: cannot start the daemon: %s", keeper->options->mountpoint, strerror(-error));
	failure_put_off(keeper);
	if (keeper->generation == 0)
		keeper_finish(keeper, 1);
}

static void signals_handle(struct keeper *keeper)
{
	struct signalfd_siginfo info;

	while (read(keeper->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		keeper->ending = true;
	if (!keeper->ending)
		return;
	child_kill(&keeper->next);
	standby_end(keeper);
	if (keeper->serving.pid)
		syscall(SYS_pidfd_send_signal, keeper->serving.pidfd, SIGTERM, NULL, 0);
	else
		keeper_end_alone(keeper, 0);
}

static int poll_timeout(const struct keeper *keeper)
{
	int64_t at =
	    keeper->serving.pid || keeper->next.pid ? standby_due(keeper) : keeper->start_at;
	int64_t late = refuse_due(keeper);

	if (late < at)
		at = late;
	int64_t wait = at - clock_ms();

	return at == KEEPER_NEVER ? -1 : wait < 0 ? 0 : (int)wait;
}

/* Reads the messages of the serving daemon. The daemon sends a message for each file of host/ that
 * is created or removed. While these messages arrive faster than one in BATCH_US, the keeper sleeps
 * between two batches: to wake the keeper for each message costs more than the message itself. A
 * message is safe before it is read, because the socket outlives the daemon. A daemon that restores
 * files gets its answers at once. */
static void serving_receive(struct keeper *keeper)
{
	const struct child *serving = &keeper->serving;
	unsigned old_changes = keeper->held_changes;

	while (keeper_receive(keeper, &keeper->serving))
		;
	if (keeper->held_changes == old_changes || !serving->ready || keeper->partial)
		return;
	if (clock_us() - keeper->changed_us < BATCH_US)
		nanosleep(&(struct timespec){.tv_nsec = BATCH_US * 1000}, NULL);
	keeper->changed_us = clock_us();
}

enum {
	SIGNALS,
	ADDRESS,
	SERVING_LINE,
	SERVING_END,
	NEXT_LINE,
	NEXT_END,
	STANDBY_LINE,
	STANDBY_END,
	REQUESTS,
	MOUNTS,
	WATCHED
};

static void events_handle(struct keeper *keeper)
{
	const struct child *serving = &keeper->serving, *next = &keeper->next,
			   *standby = &keeper->standby;
	struct pollfd fds[WATCHED] = {
	    [SIGNALS] = {keeper->signals, POLLIN, 0},
	    [ADDRESS] = {keeper->address.fd, POLLIN, 0},
	    [SERVING_LINE] = {serving->pid ? serving->ipc : -1, POLLIN, 0},
	    [SERVING_END] = {serving->pid ? serving->pidfd : -1, POLLIN, 0},
	    [NEXT_LINE] = {next->pid ? next->ipc : -1, POLLIN, 0},
	    [NEXT_END] = {next->pid ? next->pidfd : -1, POLLIN, 0},
	    [STANDBY_LINE] = {standby->pid ? standby->ipc : -1, POLLIN, 0},
	    [STANDBY_END] = {standby->pid ? standby->pidfd : -1, POLLIN, 0},
	    [REQUESTS] = {keeper->refusing, POLLIN, 0},
	    [MOUNTS] = {keeper->mounts ? fileno(keeper->mounts) : -1, POLLPRI, 0},
	};

	if (poll(fds, WATCHED, poll_timeout(keeper)) <= 0)
		return;
	if ((fds[REQUESTS].revents && refuse_serve(keeper)) ||
	    (fds[MOUNTS].revents && refuse_mounts(keeper))) {
		keeper_finish(keeper, 0);
		return;
	}
	if (fds[SERVING_LINE].revents)
		serving_receive(keeper);
	if (fds[STANDBY_LINE].revents)
		keeper_receive(keeper, &keeper->standby);
	if (fds[STANDBY_END].revents)
		standby_died(keeper);
	if (fds[NEXT_LINE].revents)
		keeper_receive(keeper, &keeper->next);
	if (fds[NEXT_END].revents)
		next_died(keeper);
	if (fds[SERVING_END].revents)
		serving_died(keeper);
	if (fds[SIGNALS].revents && !keeper->is_done)
		signals_handle(keeper);
	if (fds[ADDRESS].revents && !keeper->is_done)
		upgrade_accept(keeper);
}

static int keeper_open(struct keeper *keeper)
{
	prctl(PR_SET_NAME, "gpumemfs-keeper");
	keeper->holds_max = holds_limit();
	keeper->signals = signals_open();
	keeper->program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	keeper->upgrade_fd = keeper->old_program = keeper->refusing = -1;
	keeper->address.dir = keeper->address.fd = -1;
	if (keeper->signals < 0 || keeper->program < 0) {
		int error = -errno;

		log_error("cannot start the keeper: %s", strerror(-error));
		return error;
	}
	return 0;
}

static int keeper_serve(struct keeper *keeper)
{
	while (!keeper->is_done) {
		daemon_start_due(keeper);
		standby_start(keeper);
		refuse_late(keeper);
		if (!keeper->is_done)
			events_handle(keeper);
	}
	child_kill(&keeper->next);
	child_kill(&keeper->standby);
	/* Otherwise leave all descriptors to the service manager, for the keeper that it starts. */
	if (!keeper->partial) {
		store_remove(SERVING_ID);
		store_remove_all(&keeper->held);
	}
	keeper_close_held(keeper);
	runtime_socket_close(&keeper->address);
	return keeper->status;
}

/* Kills the daemon of an earlier keeper and waits for its end: until then the daemon may write to
 * files and the journal. */
static void daemon_kill_stored(struct keeper *keeper)
{
	struct pollfd daemon = {.fd = fd_table_get(&keeper->held, SERVING_ID), .events = POLLIN};

	if (daemon.fd >= 0) {
		syscall(SYS_pidfd_send_signal, daemon.fd, SIGKILL, NULL, 0);
		while (poll(&daemon, 1, -1) < 0 && errno == EINTR)
			;
	}
	fd_table_drop(&keeper->held, SERVING_ID);
}

/* Takes the descriptors over from a keeper that was killed. */
static int stored_take(struct keeper *keeper)
{
	int error = store_take(&keeper->held);

	if (error)
		return error;
	daemon_kill_stored(keeper);
	keeper->generation = fuse_init_generation_of(keeper_init_record(keeper));
	keeper->died = clock_ms();
	upgrade_follow_mount(keeper);
	log_info("%s: goes on with %u descriptors that the service manager kept",
		 keeper->options->mountpoint, keeper->held.count);
	return 0;
}

int keeper_run(const struct options *options, int argc, char **argv, struct daemon *daemon)
{
	struct keeper keeper = {.options = options, .argc = argc, .argv = argv, .launcher = daemon};

	if (keeper_open(&keeper) || (notify_has_fds() && stored_take(&keeper)))
		return 1;
	return keeper_serve(&keeper);
}

/* The daemon made the socket, so that the peer's pid is the daemon's. */
static int child_adopt(struct child *child, int ipc)
{
	struct ucred peer;
	int error = runtime_peer(ipc, &peer);

	if (error)
		return error;
	*child = (struct child){.pid = peer.pid, .ipc = ipc, .start_ms = clock_ms()};
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	return child->pidfd < 0 ? -errno : 0;
}

int keeper_adopt(const struct options *options, int argc, char **argv, int ipc)
{
	struct keeper keeper = {.options = options, .argc = argc - 1, .argv = argv + 1};
	struct ipc_message message = ipc_message(IPC_WELCOME, 0);

	argv[1] = argv[0];
	setsid();
	fcntl(ipc, F_SETFD, FD_CLOEXEC);
	if (keeper_open(&keeper))
		return 1;
	int error = child_adopt(&keeper.serving, ipc);

	keeper.serving.program = keeper.program;
	message.value = keeper.holds_max;
	if (!error)
		error = ipc_offer(ipc, &message, -1);
	if (error) {
		log_error("descriptor %d is not a daemon's socket: %s", ipc, strerror(-error));
		return 1;
	}
	serving_store(&keeper);
	keeper.partial = true;
	keeper.generation = 2; /* until IPC_READY; not 1, as if no daemon had served */
	return keeper_serve(&keeper);
}
