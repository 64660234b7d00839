/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/background.h"
#include "common/log.h"
#include "common/system/sd_notify.h"
#include "fs/control/access_log_file.h"
#include "fs/control/nodes.h"
#include "fs/core/fs.h"
#include "fs/core/version.h"
#include "fs/daemon/gpu_faults.h"
#include "fs/daemon/watchdog.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/session.h"
#include "fs/holders/inode_lease.h"
#include "fs/keeper/daemonize.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/ipc.h"
#include "fs/keeper/keeper.h"
#include "fs/keeper/upgrade_client.h"
#include "fs/ops/ops.h"
#include "fs/recovery/restore.h"
#include "fs/recovery/settings.h"
#include "fs/share/binder.h"
#include "fs/share/share.h"
#include "fs/spool/spool.h"
#include "fs/tier/tier.h"
#include "fs/turns/turns.h"

static int version_show(void)
{
	printf("gpumemfs %s (libfuse %s)\n", GPUMEMFS_VERSION, fuse_pkgversion());
	return 0;
}

/* Starts sharing. Threads serve requests already, and use share_of(fs) from the moment that the
 * pointer is set. */
static void share_start(struct fs *fs, const struct session *session)
{
	struct share *share;

	if (share_open(fs, session_device(session), session_changed, &share)) {
		unclaimed_leases_end(fs);
		return;
	}
	atomic_store(&sharing_of(fs)->share, share);
	tier_ask_by(fs, share_want_memory, share);
}

/* Ends the daemon after an error. If there is a keeper, the daemon frees no resources: the next
 * daemon needs files, memory and journal. */
static int mount_abandon(struct fs *fs, struct session *session)
{
	if (fs->fdstore)
		_exit(EXIT_FAILURE);
	session_close(session);
	fs_close(fs);
	return EXIT_FAILURE;
}

static void mount_report_ready(struct fs *fs, struct daemon *daemon)
{
	enum log_level level = log_level_get();

	if (fdstore_generation(fs->fdstore) == 1)
		capabilities_log(fs);
	daemon_ready(daemon, level);
	if (fdstore_flags(fs->fdstore) & IPC_BACKGROUND)
		daemon_leave(level);
	fdstore_ready(fs->fdstore);
	/* After this message the keeper starts no earlier program again. */
	journal_raise(fs->journal);
	share_raise(share_of(fs));
	notify_send(NOTIFY_READY);
}

static bool daemon_stands_by(const struct fs *fs)
{
	return fdstore_flags(fs->fdstore) & IPC_STANDBY;
}

/* Prepares everything that is possible while another daemon still serves the mount, waits for the
 * keeper, and then opens the files in their last state. 0 or -errno. */
static int mount_prepare(struct fs *fs, struct session **session)
{
	const struct session_table table = {.operations = ops_table(),
					    .start = access_file_new,
					    .end = access_file_end,
					    .close = access_file_free};
	int error = fs_prepare(fs);

	if (error)
		return error;
	timeline_mark(&fs->timeline, TIMELINE_DRIVER);
	error = gpu_faults_test(fs);
	if (!error && fs->fdstore_ops)
		error = fs_restore_check(fs->fdstore_ops);
	if (!error)
		error = session_open(fs, &table, session);
	if (error) {
		fs_unprepare(fs);
		return error;
	}
	timeline_mark(&fs->timeline, TIMELINE_PREPARED);
	if (daemon_stands_by(fs))
		prctl(PR_SET_NAME, "gpumemfs-spare");
	error = fdstore_wait(fs->fdstore);
	prctl(PR_SET_NAME, "gpumemfs");
	timeline_mark(&fs->timeline, TIMELINE_GO);
	fdstore_log_end(fs->fdstore, &fs->timeline);
	clock_gettime(CLOCK_REALTIME, &fs->started);
	if (!error)
		error = fdstore_gather(fs->fdstore);
	if (error)
		return mount_abandon(fs, *session);
	fs->mount = session_has_earlier_mount(*session) ? FS_MOUNT_KEPT : FS_MOUNT_NEW;
	control_handles_from(fs, fdstore_generation(fs->fdstore) << FDSTORE_GENERATION_SHIFT);
	error = fs_fill(fs);
	if (error)
		session_close(*session);
	else
		settings_open(fs); /* an error is logged and has no other effect */
	return error;
}

/* Starts to serve requests and to share files. 0 or -errno. */
static int mount_serve(struct fs *fs, struct session *session)
{
	bool shared = share_is_kept(fs);

	if (shared)
		share_start(fs, session);
	int error = session_start(session);

	if (!error && !shared)
		share_start(fs, session);
	return error;
}

/* Serves the mount until the mount ends; the exit status. */
static int mount_run(struct fs *fs, struct daemon *daemon)
{
	struct background watchdog = {0};
	struct session *session;

	session_block_signals();
	if (mount_prepare(fs, &session))
		return EXIT_FAILURE;
	if (mount_serve(fs, session))
		return mount_abandon(fs, session);
	spool_start(fs);
	mount_report_ready(fs, daemon);
	watchdog_start(fs, &watchdog);
	int error = session_wait(session);

	turns_stop(turns_of(fs));
	if (!error || !fs->fdstore)
		spool_end(fs);
	background_stop(&watchdog);
	if (error && fs->fdstore)
		return mount_abandon(fs, session);
	fdstore_end(fs->fdstore);
	/* Close sharing first: leases hold files, and connections of the socket hold the mount. */
	tier_ask_by(fs, NULL, NULL);
	share_close(share_of(fs));
	session_close(session);
	fs_close(fs);
	settings_close(fs);
	log_info("%s: ended", fs->options.mountpoint);
	return EXIT_SUCCESS;
}

/* Started by a user or by mount(8), to mount. */
static int mount_start(struct fs *fs, int argc, char **argv)
{
	struct options *options = &fs->options;
	struct daemon daemon;

	if (!notify_has_fds() && session_check(options->mountpoint))
		return 1;
	if (options->fake)
		return 0;
	if (daemon_start(options->foreground ? DAEMON_FOREGROUND : DAEMON_BACKGROUND, &daemon))
		return 1;
	if (options->recovery == RECOVERY_OFF)
		return mount_run(fs, &daemon);
	argv[argc - 1] = options->mountpoint; /* getopt_long put the mountpoint last */
	return keeper_run(options, argc, argv, &daemon);
}

/* Started by the keeper. */
static int mount_start_kept(struct fs *fs, char **argv)
{
	struct daemon nobody = {.ready_fd = -1};
	static struct fdstore_ops ops;

	if (fdstore_open(fs->options.line, argv, &fs->fdstore))
		return 1;
	prctl(PR_SET_NAME, daemon_stands_by(fs) ? "gpumemfs-starts" : "gpumemfs");
	if (fdstore_flags(fs->fdstore) & IPC_SYSLOG)
		log_setup(fs->options.log_level, LOG_TO_SYSLOG);
	ops = fdstore_ops(fs->fdstore);
	fs->fdstore_ops = &ops;
	int status = mount_run(fs, &nobody);

	fdstore_close(fs->fdstore);
	return status;
}

/* The kernel checks the file size limit (ulimit -f) of the program that writes. The daemon's own
 * limit, which its shell may have lowered, would count for the memory of all files: lift the limit,
 * or let a write that reaches the limit fail without a signal that ends the daemon. */
static void file_size_limit_lift(void)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit) == 0 || getrlimit(RLIMIT_FSIZE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
}

int main(int argc, char **argv)
{
	static struct fs fs;
	struct options *options = &fs.options;
	int status = 0;

	timeline_mark(&fs.timeline, TIMELINE_PROCESS);
	if (options_parse(argc, argv, options))
		return 1;
	if (options->help) {
		options_help(stdout, "gpumemfs");
		return 0;
	}
	if (options->version)
		return version_show();
	log_setup(options->log_level, LOG_TO_TERMINAL);
	file_size_limit_lift();
	switch (options->role) {
	case ROLE_MOUNT:
		status = mount_start(&fs, argc, argv);
		break;
	case ROLE_DAEMON:
		status = mount_start_kept(&fs, argv);
		break;
	case ROLE_KEEPER:
		status = keeper_adopt(options, argc, argv, options->line);
		break;
	case ROLE_UPGRADE:
		status = upgrade_ask(options->mountpoint);
		break;
	case ROLE_REMOUNT:
		status = session_remount(options) ? 1 : 0;
		break;
	case ROLE_BINDER:
		status = binder_run(options->line, options->mountpoint);
		break;
	}
	options_free(options);
	return status;
}
