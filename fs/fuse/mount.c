/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/core/fs.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/channel.h"
#include "fs/fuse/internal.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"

static void session_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	capabilities_negotiate(fs, conn);
	atomic_store(&session_of(fs)->greeted, true);
	sem_post(&session_of(fs)->answered);
}

static void libfuse_log(enum fuse_log_level level, const char *format, va_list args)
{
	char line[512];
	int length = vsnprintf(line, sizeof(line), format, args);

	if (length <= 0)
		return;
	line[strcspn(line, "\n")] = 0;
	if (level <= FUSE_LOG_ERR)
		log_error("%s", line);
	else if (level <= FUSE_LOG_INFO)
		log_info("%s", line);
	else
		log_debug("%s", line);
}

/* The argument of -o for libfuse. A source that the user named stays as it is, because mount -a
 * finds a mount of fstab by its source. */
static int mount_arguments(const struct fs *fs, struct fuse_args *args)
{
	const struct options *options = &fs->options;
	const char *fallback = backend_is_host(fs->backend) ? "gpumem:host" : "gpumem";
	char *text AUTO_FREE = NULL;

	if (asprintf(&text, "fsname=%s,subtype=gpumemfs,default_permissions%s%s%s%s",
		     options->source ? options->source : fallback,
		     options->allow_other ? ",allow_other" : "", options->mount_options ? "," : "",
		     options->mount_options ? options->mount_options : "",
		     fs->can.io_uring.on ? ",io_uring" : "") < 0)
		return -ENOMEM;
	if (fuse_opt_add_arg(args, "gpumemfs") || fuse_opt_add_arg(args, "-o") ||
	    fuse_opt_add_arg(args, text) || (options->debug && fuse_opt_add_arg(args, "-d")))
		return -ENOMEM;
	return 0;
}

int session_fuse_new(struct session *session)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_lowlevel_ops operations = *session->table.operations;
	int error = mount_arguments(session->fs, &args);

	operations.init = session_init;
	fuse_set_log_func(libfuse_log);
	if (!error) {
		session->fuse =
		    fuse_session_new(&args, &operations, sizeof(operations), session->fs);
		if (!session->fuse)
			error = -EINVAL;
	}
	fuse_opt_free_args(&args);
	return error;
}

/* Unmounts the mount of the last daemon: no process serves that mount any more. */
static void earlier_mount_detach(const struct session *session)
{
	if (session->fuse_init && fuse_init_device(session->fuse_init))
		unmount_lazily(session->fs->options.mountpoint,
			       fuse_init_device(session->fuse_init));
}

static int mount_create(struct session *session)
{
	const char *mountpoint = session->fs->options.mountpoint;

	earlier_mount_detach(session);
	if (fuse_session_mount(session->fuse, mountpoint)) {
		log_error("cannot mount on %s", mountpoint);
		return -EIO;
	}
	/* Record the device at once: a daemon that replaces a killed daemon must recognize the
	 * mount. */
	if (unmount_device(mountpoint, &session->device) == 0 && session->fuse_init)
		fuse_init_set_device(session->fuse_init, session->device);
	/* Wait for the keeper: a program that sees the mount answer may ask the keeper for an
	 * upgrade. */
	fdstore_wait_idle(session->fs->fdstore);
	return 0;
}

/* Mounts so that later daemons can serve the same mount: the keeper holds the descriptor before the
 * kernel gets the first reply. */
static int mount_create_kept(struct session *session)
{
	int error = mount_create(session);

	if (error)
		return error;
	session->fuse_fd = fcntl(fuse_session_fd(session->fuse), F_DUPFD_CLOEXEC, 3);
	fuse_session_destroy(session->fuse);
	session->fuse = NULL;
	if (session->fuse_fd < 0)
		return -errno;
	error = fuse_init_ask(session->fuse_init, session->fuse_fd);
	if (!error)
		error =
		    fdstore_hold(session->fs->fdstore,
				 fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_DEVICE), session->fuse_fd);
	if (!error)
		error = session_fuse_new(session);
	return error ? error : fuse_init_replay(session->fuse_init, session->fuse);
}

/* Whether the mount outlives this daemon. */
static bool mount_is_kept(const struct session *session)
{
	return session->fs->fdstore && session->fs->options.recovery == RECOVERY_TRANSPARENT;
}

int session_mount(struct session *session)
{
	int error = 0;

	if (!mount_is_kept(session))
		error = mount_create(session);
	else if (session->fuse_fd < 0)
		error = mount_create_kept(session);
	if (!error && mount_is_kept(session))
		error = fuse_init_answer(session->fuse_init, session->fuse, session->fuse_fd);
	if (error)
		return error;
	if (!session->fs->can.io_uring.on) {
		channel_prepare(session->fs, session->fuse);
		fuse_set_log_func(libfuse_log);
	}
	return 0;
}

int session_find_earlier_mount(struct session *session)
{
	struct fs *fs = session->fs;

	if (!fs->fdstore)
		return 0;
	int error = fuse_init_open(fs->fdstore, &session->fuse_init);

	if (error || !mount_is_kept(session))
		return error;
	session->fuse_fd = fdstore_take(fs->fdstore, fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_DEVICE));
	if (session->fuse_fd < 0)
		return session->fuse_fd == -ENOENT ? 0 : session->fuse_fd;
	session->device = fuse_init_device(session->fuse_init);
	return fuse_init_replay(session->fuse_init, session->fuse);
}
