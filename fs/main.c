/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <stdio.h>

#include "common/log.h"
#include "fs/capabilities.h"
#include "fs/daemon.h"
#include "fs/fs.h"
#include "fs/notify.h"
#include "fs/session.h"
#include "fs/share.h"
#include "fs/version.h"
#include "fs/watchdog.h"

static int show_version(void)
{
	printf("gpumemfs %s (libfuse %s)\n", GPUMEMFS_VERSION, fuse_pkgversion());
	return 0;
}

/* Requests are served already, and find the sharing from one moment to the next. */
static void share_start(struct fs *fs)
{
	struct share *share;

	if (share_open(fs, &share) == 0)
		atomic_store(&fs->share, share);
}

/* Serves the mount from here to its end. */
static int run(struct fs *fs, struct daemon *daemon)
{
	struct watchdog *watchdog;
	struct session *session;

	session_block_signals();
	if (fs_open(fs))
		return 1;
	int error = session_open(fs, &session);

	if (!error) {
		capabilities_log(fs);
		share_start(fs);
		daemon_ready(daemon, fs->options.log_level);
		notify_send(NOTIFY_READY);
		watchdog_start(fs, &watchdog);
		session_wait(session);
		watchdog_stop(watchdog);
		/* Leases hold files, and the socket's connections the mount. */
		share_close(fs->share);
		session_close(session);
	}
	fs_close(fs);
	log_info("%s: ended", fs->options.mountpoint);
	return error ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct fs fs;
	struct daemon daemon;

	if (options_parse(argc, argv, &fs.options))
		return 1;
	struct options *options = &fs.options;

	if (options->help) {
		options_help(stdout, "gpumemfs");
		return 0;
	}
	if (options->version)
		return show_version();
	log_setup(options->log_level, LOG_TO_TERMINAL);
	if (session_check(options->mountpoint))
		return 1;
	if (options->fake)
		return 0;
	if (daemon_start(options->foreground ? DAEMON_FOREGROUND : DAEMON_BACKGROUND, &daemon))
		return 1;
	int status = run(&fs, &daemon);

	options_free(options);
	return status;
}
