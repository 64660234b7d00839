/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/fuse_init.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"

#define FUSE_INIT_MAGIC	  0x41465047u /* "GPFA" */
#define FUSE_INIT_VERSION 1
#define MESSAGE_BYTES	  512

/* FUSE_NOTIFY_RESEND (Linux 6.9): not in older kernel headers. */
#define NOTIFY_RESEND 7

/* The region's layout, the same for all daemons of a mount. Each length is stored after its bytes.
 */
struct init_record {
	struct region_head head;
	uint64_t device, generation;
	_Atomic uint32_t asked, answered; /* bytes; 0: not yet */
	char question[MESSAGE_BYTES], answer[MESSAGE_BYTES];
};

struct fuse_init {
	struct init_record *init_record;
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-init",
    .head = {.magic = FUSE_INIT_MAGIC, .version = FUSE_INIT_VERSION},
    .bytes = sizeof(struct init_record),
};

int fuse_init_open(struct fdstore *fdstore, struct fuse_init **opened)
{
	struct fuse_init *fuse_init = calloc(1, sizeof(*fuse_init));

	if (!fuse_init)
		return -ENOMEM;
	void *record = NULL;
	int error = region_open(fdstore, fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_INIT), &region_kind,
				&record);

	fuse_init->init_record = record;
	if (error) {
		log_error("cannot open the record of FUSE's INIT message: %s", strerror(-error));
		fuse_init_close(fuse_init);
		return error;
	}
	*opened = fuse_init;
	return 0;
}

void fuse_init_close(struct fuse_init *fuse_init)
{
	if (!fuse_init)
		return;
	if (fuse_init->init_record)
		munmap(fuse_init->init_record, sizeof(*fuse_init->init_record));
	free(fuse_init);
}

int fuse_init_ask(struct fuse_init *fuse_init, int fuse)
{
	struct init_record *init_record = fuse_init->init_record;
	char message[FUSE_MIN_READ_BUFFER];
	ssize_t n;

	do
		n = read(fuse, message, sizeof(message));
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(struct fuse_in_header) || n > MESSAGE_BYTES) {
		int error = n < 0 ? -errno : -EPROTO;

		log_error("/dev/fuse: %s", strerror(-error));
		return error;
	}
	memcpy(init_record->question, message, (size_t)n);
	atomic_store(&init_record->asked, (uint32_t)n);
	return 0;
}

/* Has the session answer the stored question on a socket instead of /dev/fuse. */
static ssize_t session_answer(struct fuse_session *session, const struct init_record *init_record,
			      char *answer)
{
	char path[32], question[MESSAGE_BYTES];
	struct fuse_buf buf = {.mem = question, .size = init_record->asked};
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	AUTO_CLOSE int listener = ends[1];

	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	if (fuse_session_mount(session, path)) {
		close(ends[0]);
		return -EIO;
	}
	memcpy(question, init_record->question, sizeof(question));
	fuse_session_process_buf(session, &buf);
	ssize_t n = recv(listener, answer, MESSAGE_BYTES, MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

int fuse_init_replay(struct fuse_init *fuse_init, struct fuse_session *session)
{
	struct init_record *init_record = fuse_init->init_record;
	char answer[MESSAGE_BYTES];

	if (init_record->asked > MESSAGE_BYTES || init_record->answered > MESSAGE_BYTES)
		return -EPROTO;
	ssize_t n = session_answer(session, init_record, answer);

	if (n < (ssize_t)sizeof(struct fuse_out_header)) {
		log_error("libfuse does not answer INIT: %s",
			  n < 0 ? strerror((int)-n) : "too short");
		return n < 0 ? (int)n : -EPROTO;
	}
	if (init_record->answered) {
		if (init_record->answered == n &&
		    memcmp(init_record->answer, answer, (size_t)n) == 0)
			return 0;
		log_error(
		    "this daemon answers INIT differently from the daemon that made the mount: "
		    "unmount and mount again to use this program");
		return -EPROTONOSUPPORT;
	}
	memcpy(init_record->answer, answer, (size_t)n);
	atomic_store(&init_record->answered, (uint32_t)n);
	return 0;
}

int fuse_init_ask_again(int fuse)
{
	struct fuse_out_header resend = {.len = sizeof(resend), .error = NOTIFY_RESEND};

	return write(fuse, &resend, sizeof(resend)) < 0 ? -errno : 0;
}

int fuse_init_answer(struct fuse_init *fuse_init, struct fuse_session *session, int fuse)
{
	struct init_record *init_record = fuse_init->init_record;
	int error = 0;

	/* A keeper that answered requests with EIO may have left O_NONBLOCK set. */
	fcntl(fuse, F_SETFL, O_RDWR);
	/* ENOENT: an earlier daemon has sent the kernel the answer. */
	if (dup3(fuse, fuse_session_fd(session), O_CLOEXEC) < 0 ||
	    (write(fuse, init_record->answer, init_record->answered) < 0 && errno != ENOENT))
		error = -errno;
	if (!error)
		error = fuse_init_ask_again(fuse);
	if (error)
		log_error("/dev/fuse: %s", strerror(-error));
	return error;
}

void fuse_init_set_device(struct fuse_init *fuse_init, dev_t device)
{
	fuse_init->init_record->device = device;
}

dev_t fuse_init_device(const struct fuse_init *fuse_init)
{
	return fuse_init->init_record->device;
}

void fuse_init_set_generation(struct fuse_init *fuse_init, uint64_t generation)
{
	fuse_init->init_record->generation = generation;
}

static bool init_record_read(int fd, struct init_record *init_record)
{
	return fd >= 0 && pread(fd, init_record, sizeof(*init_record), 0) == sizeof(*init_record) &&
	       init_record->head.magic == FUSE_INIT_MAGIC;
}

dev_t fuse_init_device_of(int fd)
{
	struct init_record init_record;

	return init_record_read(fd, &init_record) ? (dev_t)init_record.device : 0;
}

uint64_t fuse_init_generation_of(int fd)
{
	struct init_record init_record;

	return init_record_read(fd, &init_record) ? init_record.generation : 0;
}
