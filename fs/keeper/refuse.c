/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Answering requests while there is no daemon. If a daemon ends after reading a request, the
 * requesting process cannot be killed until the request is answered; so the keeper answers EIO
 * itself when no daemon is likely to come soon. Files and memory stay for a later daemon. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/system/mounts.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"

/* Longer than any start of a daemon. */
#define WAIT_MAX_MS 120000

/* More than any daemon lets the kernel write at once. */
#define REQUEST_BYTES (2U << 20)
/* Requests read before the keeper looks at its other descriptors again. */
#define REQUESTS_MAX 64

/* No program waits for the answer to RELEASE; the kernel counts it as a background request, and
 * stops sending with 128 of these (max_background) in flight. */
#define RELEASES_MAX 64

int64_t refuse_due(const struct keeper *keeper)
{
	bool is_waiting = keeper->options->recovery == RECOVERY_TRANSPARENT && keeper->died &&
			  keeper->refusing < 0 && !keeper->serving.prepared;

	return is_waiting ? keeper->died + WAIT_MAX_MS : KEEPER_NEVER;
}

void refuse_start(struct keeper *keeper)
{
	int fuse = fd_table_get(&keeper->held, fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_DEVICE));

	if (keeper->options->recovery != RECOVERY_TRANSPARENT || fuse < 0 || keeper->refusing >= 0)
		return;
	/* Without O_NONBLOCK the keeper would wait in read if the kernel withdrew the request after
	 * poll. */
	fcntl(fuse, F_SETFL, O_RDWR | O_NONBLOCK);
	keeper->refusing = fuse;
	keeper->releases = 0;
	keeper->mounts = fopen("/proc/self/mountinfo", "re");
	int error = fuse_init_ask_again(fuse);

	if (error)
		log_error("%s: requests under way cannot be answered: %s",
			  keeper->options->mountpoint, strerror(-error));
}

void refuse_late(struct keeper *keeper)
{
	if (refuse_due(keeper) > clock_ms())
		return;
	log_error("%s: no daemon has served for %d s: requests are answered with EIO until a "
		  "daemon serves",
		  keeper->options->mountpoint, WAIT_MAX_MS / 1000);
	refuse_start(keeper);
}

void refuse_stop(struct keeper *keeper)
{
	if (keeper->refusing >= 0)
		fcntl(keeper->refusing, F_SETFL, O_RDWR);
	keeper->refusing = -1;
	if (keeper->mounts)
		fclose(keeper->mounts);
	keeper->mounts = NULL;
}

/* The sharing socket, which the keeper holds, keeps an unmounted file system alive, so only the
 * mount table shows that the mount has ended. */
int refuse_mounts(const struct keeper *keeper)
{
	dev_t device = keeper_mount_device(keeper);

	return device && !mountinfo_has_device(keeper->mounts, device) ? -ENODEV : 0;
}

/* Whether to leave the request without an answer: the kernel expects no answer, or sends the
 * request (RELEASE) again to the next daemon, which must learn that the file was closed. */
static bool request_is_left(struct keeper *keeper, uint32_t opcode)
{
	switch (opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return true;
	case FUSE_RELEASE:
		return keeper->releases++ < RELEASES_MAX;
	default:
		return false;
	}
}

int refuse_serve(struct keeper *keeper)
{
	static char request[REQUEST_BYTES] __attribute__((aligned(8)));
	const struct fuse_in_header *in = (const struct fuse_in_header *)request;

	for (unsigned i = 0; i < REQUESTS_MAX; i++) {
		ssize_t n = read(keeper->refusing, request, sizeof(request));

		if (n < 0 && (errno == ENODEV || errno == ECONNABORTED))
			return -ENODEV;
		if (n < (ssize_t)sizeof(*in))
			return 0;
		if (request_is_left(keeper, in->opcode))
			continue;
		struct fuse_out_header out = {
		    .len = sizeof(out), .error = -EIO, .unique = in->unique};

		/* ENOENT: the request was withdrawn. */
		if (write(keeper->refusing, &out, sizeof(out)) < 0 && errno != ENOENT)
			log_warn("%s: a request cannot be answered: %s",
				 keeper->options->mountpoint, strerror(errno));
	}
	return 0;
}
