/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How a mount ends with its keeper. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/protocol.h"
#include "common/system/mounts.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/systemd_fdstore.h"

int keeper_init_record(const struct keeper *keeper)
{
	return fd_table_get(&keeper->held, fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_INIT));
}

dev_t keeper_mount_device(const struct keeper *keeper)
{
	return fuse_init_device_of(keeper_init_record(keeper));
}

void keeper_finish(struct keeper *keeper, int status)
{
	keeper->is_done = true;
	keeper->status = status;
	upgrade_tell(keeper, ECANCELED, "the mount has ended");
}

/* A duplicate of the sharing socket's directory, or -1: the socket is in the mount, or there is no
 * socket. */
static int share_dir(const struct keeper *keeper, dev_t device)
{
	int dir = fd_table_get(&keeper->held, fdstore_id(FDSTORE_SOCKET, FDSTORE_SHARE_DIR));
	struct statx st;

	/* AT_STATX_DONT_SYNC: no request to the mount, which may have no daemon. */
	if (dir < 0 || statx(dir, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) ||
	    makedev(st.stx_dev_major, st.stx_dev_minor) == device)
		return -1;
	return fcntl(dir, F_DUPFD_CLOEXEC, 3);
}

void keeper_close_held(struct keeper *keeper)
{
	dev_t device = keeper_mount_device(keeper);
	AUTO_CLOSE int dir = share_dir(keeper, device);

	fd_table_close(&keeper->held);
	if (dir >= 0)
		runtime_socket_remove_dead(dir, GPUMEM_SOCKET_KIND, device);
}

void keeper_end_alone(struct keeper *keeper, int status)
{
	dev_t device = keeper_mount_device(keeper);

	/* Unknown: no daemon has mounted, and a mount at that path is not the keeper's. */
	if (device)
		unmount_lazily(keeper->options->mountpoint, device);
	store_remove_all(&keeper->held);
	keeper_close_held(keeper);
	keeper_finish(keeper, status);
}
