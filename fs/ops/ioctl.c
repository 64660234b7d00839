/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/core/caller.h"
#include "fs/fuse/channel.h"
#include "fs/fuse/session.h"
#include "fs/ops/ops.h"
#include "fs/share/share.h"
#include "fs/share/viewer.h"
#include "fs/spool/spool.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"
#include "fs/volume/volume.h"

/* info->fh records how the process opened the file; only the kernel can name a handle. */
static enum gpumem_access handle_access(const struct fuse_file_info *info)
{
	return info->fh & OP_HANDLE_WRITES ? GPUMEM_ACCESS_WRITE : GPUMEM_ACCESS_READ;
}

static int share_check(const struct op *op, struct share **share)
{
	*share = share_of(op->fs);
	/* GPUMEM_IOC_SOCKET returns the reason. */
	if (!*share)
		return -EPROTONOSUPPORT;
	if (!S_ISREG(op->inode->mode))
		return S_ISDIR(op->inode->mode) ? -EISDIR : -EINVAL;
	return 0;
}

/* A process can always read memory that the daemon shares, so a handle that was not opened for
 * reading gets no memory, not even root's: the handle decides, not the caller's rights to the file.
 */
static int handle_check(const struct op *op, const struct fuse_file_info *info,
			struct share **share)
{
	int error = share_check(op, share);

	return !error && info->fh & OP_HANDLE_NO_READS ? -EACCES : error;
}

static void ioctl_version(struct op *op, fuse_req_t req)
{
	static const struct gpumem_version version = {.version = GPUMEM_PROTOCOL_VERSION};

	op_end(op, 0);
	fuse_reply_ioctl(req, 0, &version, sizeof(version));
}

static void ioctl_mount(struct op *op, fuse_req_t req)
{
	bool caches = op->fs->options.cache != CACHE_NONE;
	bool simulates = strcmp(op->fs->backend->name, "host") == 0;
	const struct gpumem_mount mount = {.flags = (caches ? GPUMEM_MOUNT_CACHES : 0u) |
						    (simulates ? GPUMEM_MOUNT_SIMULATES : 0u)};

	op_end(op, 0);
	fuse_reply_ioctl(req, 0, &mount, sizeof(mount));
}

/* A lease for which a thread of fs/share may answer the ioctl. */
struct lease_op {
	struct share_ask ask;
	struct share_adoption adoption;
	struct op op;
	int channel; /* of the worker */
};

static void lease_reply(struct op *op, int error)
{
	if (error) {
		op_done(op, op->req, error);
		return;
	}
	op_end(op, 0);
	fuse_reply_ioctl(op->req, 0, NULL, 0);
}

static void lease_done(struct share_ask *ask, int error)
{
	struct lease_op *lease = (struct lease_op *)ask;

	if (op_take_over(&lease->op, lease->channel))
		lease_reply(&lease->op, error);
	free(lease);
}

/* A user who may only write to a file must not change its bytes and leave its times. */
static enum share_times lease_times(const struct op *op, unsigned command)
{
	uid_t uid = fuse_req_ctx(op->req)->uid;

	if (command == GPUMEM_IOC_LEASE || (uid != op->inode->uid && !user_is_privileged(uid)))
		return SHARE_TIMES_UNSEEN;
	return SHARE_TIMES_TOLD;
}

/* The memory is charged to the file's owner, and only a process itself shares its memory. */
static int adopt_check(const struct op *op, const struct fuse_file_info *info,
		       const struct gpumem_adopt_ask *ask)
{
	if (handle_access(info) != GPUMEM_ACCESS_WRITE)
		return -EBADF;
	if (ask->flags & ~(uint32_t)(GPUMEM_ADOPT_STAYS | GPUMEM_ADOPT_LATER))
		return -EINVAL;
	if (fuse_req_ctx(op->req)->uid != op->inode->uid)
		return -EPERM;
	/* The kernel remembers names that it has seen before for longer than the file may have
	 * them (op_entry). */
	return !(ask->flags & GPUMEM_ADOPT_STAYS) && atomic_load(&op->inode->nlink) ? -EBUSY : 0;
}

/* adopt: of GPUMEM_IOC_ADOPT, or NULL. */
static void ioctl_lease(struct op *op, const struct fuse_file_info *info,
			const struct gpumem_lease_ask *ask, const struct gpumem_adopt_ask *adopt,
			unsigned command)
{
	struct lease_op *lease = malloc(sizeof(*lease));
	struct share *share;
	int error = handle_check(op, info, &share);

	if (!error && adopt)
		error = adopt_check(op, info, adopt);

	if (!error && !lease)
		error = -ENOMEM;
	if (!error) {
		*lease = (struct lease_op){
		    .ask = {.inode = op->inode,
			    .access = handle_access(info),
			    .times = lease_times(op, command),
			    .loads = command == GPUMEM_IOC_LEASE_LOADS,
			    .pid = fuse_req_ctx(op->req)->pid,
			    .uid = fuse_req_ctx(op->req)->uid,
			    .resent = journal_request_is_resent(op->worker->request_number),
			    .request = op->worker->request_number,
			    .ask = *ask,
			    .complete = lease_done},
		    .op = *op,
		    .channel = channel_current(),
		};
		if (adopt) {
			lease->adoption =
			    (struct share_adoption){.skip = adopt->skip,
						    .size = adopt->size,
						    .n_pieces = adopt->n_pieces,
						    .stays = adopt->flags & GPUMEM_ADOPT_STAYS,
						    .later = adopt->flags & GPUMEM_ADOPT_LATER};
			lease->ask.adopt = &lease->adoption;
		}
		error = share_ask(share, &lease->ask);
	}
	if (error == -EINPROGRESS) {
		op_hand_over(op);
		return;
	}
	free(lease);
	lease_reply(op, error);
}

static void ioctl_socket(struct op *op, fuse_req_t req)
{
	struct gpumem_socket location;

	share_where(op->fs, &location);
	op_end(op, 0);
	fuse_reply_ioctl(req, 0, &location, sizeof(location));
}

static void saved_name_first_failed(struct op *op, uint64_t ino, char name[GPUMEM_SAVED_FIRST])
{
	const struct viewer viewer = viewer_of(fuse_req_ctx(op->req)->uid);
	struct inode *inode = inode_table_get(op->fs->inodes, ino);
	char path[PATH_MAX] = "";

	if (inode) {
		viewer_path(op->fs, &viewer, inode, path);
		inode_put(op->fs, inode, 1);
	}
	if (!*path || snprintf(name, GPUMEM_SAVED_FIRST, "%s", path) >= GPUMEM_SAVED_FIRST)
		tree_number_text(ino, name, GPUMEM_SAVED_FIRST);
}

static void ioctl_save(struct op *op, fuse_req_t req)
{
	struct spool_saved saved;
	struct inode *top = op->inode == op->fs->root ? NULL : op->inode;

	if (spool_of(op->fs) && op_defer(op))
		return;
	/* Below a directory, or the root, the caller may not even see other users' files. */
	uid_t uid = fuse_req_ctx(req)->uid;
	uid_t owner = S_ISDIR(op->inode->mode) && !user_is_privileged(uid) ? uid : SPOOL_ALL_USERS;
	int error = spool_of(op->fs) ? spool_save_below(op->fs, top, owner, &saved) : -ENOTSUP;

	if (error && (error == -ENOTSUP || !saved.failed)) {
		op_done(op, req, error);
		return;
	}
	struct gpumem_saved answer = {
	    .files = saved.files, .bytes = saved.bytes, .failed = saved.failed, .error = -error};

	if (saved.failed)
		saved_name_first_failed(op, saved.first_failed, answer.first);

	op_end(op, error);
	fuse_reply_ioctl(req, 0, &answer, sizeof(answer));
}

/* A copy ends at the size of the opened file: the kernel would not learn of a larger size. */
static uint64_t copy_bytes_possible(const struct inode *to, const struct gpumem_copy_ask *ask)
{
	uint64_t size = file_size(to->file), remaining = ask->to < size ? size - ask->to : 0;
	uint64_t bytes = ask->bytes < remaining ? ask->bytes : remaining;

	return bytes < GPUMEM_COPY_MAX ? bytes : GPUMEM_COPY_MAX;
}

static int copy_check(const struct op *op, const struct fuse_file_info *info,
		      const struct gpumem_copy_ask *ask)
{
	if (handle_access(info) != GPUMEM_ACCESS_WRITE)
		return -EBADF;
	if (ask->version != GPUMEM_PROTOCOL_VERSION || op->fs->options.cache != CACHE_NONE ||
	    !file_volume(op->inode->file)->pool)
		return -EOPNOTSUPP;
	return ask->reserved ? -EINVAL : 0;
}

/* 0, an error, or -EINPROGRESS: the copy was left to the queue. */
static int copy_begin(struct op *op, struct share *share, uint64_t bytes)
{
	if (bytes > OP_SMALL_BYTES && op_defer(op))
		return -EINPROGRESS;
	int error = share_store_begin(share, op->inode, FILE_NO_WAIT);

	if (error != -EINPROGRESS || op_defer(op))
		return error;
	return share_store_begin(share, op->inode, FILE_MAY_WAIT);
}

static void ioctl_copy(struct op *op, fuse_req_t req, const struct fuse_file_info *info,
		       const struct gpumem_copy_ask *ask)
{
	struct inode *from = NULL;
	struct share *share;
	int error = share_check(op, &share);

	if (!error)
		error = copy_check(op, info, ask);
	if (!error)
		error = share_leased(share, fuse_req_ctx(req)->uid, ask->key, ask->lease, &from);
	if (error) {
		op_done(op, req, error);
		return;
	}
	uint64_t bytes = copy_bytes_possible(op->inode, ask);

	error = copy_begin(op, share, bytes);
	if (error == -EINPROGRESS) {
		inode_put(op->fs, from, 1);
		return;
	}
	op->to = op->inode;
	op->inode = from;
	op->offset = ask->from;
	op->bytes = ask->bytes;
	ssize_t n = error || !bytes ? error : op_copy_bytes(op, ask->from, ask->to, bytes);

	if (!error)
		share_store_end(share, op->to);
	if (n > 0)
		session_changed(session_of(op->fs), op->to->ino);
	if (n < 0) {
		op_done(op, req, (int)n);
	} else {
		op_end(op, n);
		fuse_reply_ioctl(req, (int)n, NULL, 0);
	}
	inode_put(op->fs, from, 1);
}

static void ioctl_drop(struct op *op, fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct share *share;
	int error = share_check(op, &share);

	if (!error && uid != op->inode->uid && !user_is_privileged(uid))
		error = -EPERM;
	if (error) {
		op_done(op, req, error);
		return;
	}
	struct gpumem_dropped dropped = {.leases = share_drop(share, op->inode, INT64_MAX)};

	op_end(op, 0);
	fuse_reply_ioctl(req, 0, &dropped, sizeof(dropped));
}

/* The mount's sharing, for a regular file and for a directory. */
static int share_get(const struct op *op, struct share **share)
{
	int error = share_check(op, share);

	return error == -EISDIR ? 0 : error;
}

static void ioctl_notify(struct op *op, fuse_req_t req, struct gpumem_notify *notify)
{
	const struct inode *file = S_ISREG(op->inode->mode) ? op->inode : NULL;
	struct share *share;
	int error = share_get(op, &share);

	if (!error && op_defer(op))
		return;
	if (!error)
		error = share_notify(share, fuse_req_ctx(req)->uid, file, notify);
	if (error) {
		op_done(op, req, error);
		return;
	}
	op_end(op, 0);
	fuse_reply_ioctl(req, 0, notify, sizeof(*notify));
}

static void ioctl_notified(struct op *op, fuse_req_t req, struct gpumem_notified *notified)
{
	struct share *share;
	int error = share_get(op, &share);

	if (error) {
		op_done(op, req, error);
		return;
	}
	share_notified(share, fuse_req_ctx(req)->uid, notified);
	op_end(op, 0);
	fuse_reply_ioctl(req, 0, notified, sizeof(*notified));
}

/* Whether the command is one of gpumemfs, and the kernel gave room for its arguments. The kernel
 * derives the room from the sizes in the command's number. */
static bool command_is_known(unsigned command, size_t in_bytes, size_t out_bytes)
{
	switch (command) {
	case GPUMEM_IOC_VERSION:
	case GPUMEM_IOC_MOUNT:
	case GPUMEM_IOC_SAVE:
	case GPUMEM_IOC_SOCKET:
	case GPUMEM_IOC_DROP:
		return out_bytes >= _IOC_SIZE(command);
	case GPUMEM_IOC_LEASE:
	case GPUMEM_IOC_LEASE_TIMED:
	case GPUMEM_IOC_LEASE_LOADS:
	case GPUMEM_IOC_ADOPT:
	case GPUMEM_IOC_COPY:
		return in_bytes >= _IOC_SIZE(command);
	case GPUMEM_IOC_NOTIFY:
	case GPUMEM_IOC_NOTIFIED:
		return in_bytes >= _IOC_SIZE(command) && out_bytes >= _IOC_SIZE(command);
	default:
		return false;
	}
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument,
		     struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
		     size_t out_bytes)
{
	struct gpumem_lease_ask lease;
	struct gpumem_adopt_ask adopt;
	struct gpumem_copy_ask copy;
	struct gpumem_notify notify;
	struct gpumem_notified notified;
	struct op op;

	(void)argument, (void)flags;
	if (!command_is_known(command, in_bytes, out_bytes)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (!op_begin(&op, req, ino, command == GPUMEM_IOC_COPY ? STAT_COPY : STAT_IOCTL))
		return;
	/* in is not aligned, so copy each structure. */
	switch (command) {
	case GPUMEM_IOC_SAVE:
		ioctl_save(&op, req);
		break;
	case GPUMEM_IOC_DROP:
		ioctl_drop(&op, req);
		break;
	case GPUMEM_IOC_VERSION:
		ioctl_version(&op, req);
		break;
	case GPUMEM_IOC_MOUNT:
		ioctl_mount(&op, req);
		break;
	case GPUMEM_IOC_SOCKET:
		ioctl_socket(&op, req);
		break;
	case GPUMEM_IOC_LEASE:
	case GPUMEM_IOC_LEASE_TIMED:
	case GPUMEM_IOC_LEASE_LOADS:
		memcpy(&lease, in, sizeof(lease));
		ioctl_lease(&op, info, &lease, NULL, command);
		break;
	case GPUMEM_IOC_ADOPT:
		memcpy(&adopt, in, sizeof(adopt));
		ioctl_lease(&op, info, &adopt.lease, &adopt, GPUMEM_IOC_LEASE);
		break;
	case GPUMEM_IOC_COPY:
		memcpy(&copy, in, sizeof(copy));
		ioctl_copy(&op, req, info, &copy);
		break;
	case GPUMEM_IOC_NOTIFY:
		memcpy(&notify, in, sizeof(notify));
		ioctl_notify(&op, req, &notify);
		break;
	case GPUMEM_IOC_NOTIFIED:
		memcpy(&notified, in, sizeof(notified));
		ioctl_notified(&op, req, &notified);
		break;
	}
}

void ops_ioctl(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
}
