/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#define FUSE_USE_VERSION 318
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

#define AGREEMENT_MAGIC 0x41465047u /* "GPFA" */
#define MESSAGE_BYTES	512

/* FUSE_NOTIFY_RESEND (Linux 6.9), which older kernel headers do not have. */
#define NOTIFY_RESEND 7

/* Laid out the same for all daemons of a mount. The lengths are set last. */
struct terms {
	uint32_t magic, version;
	uint64_t device, turn;
	_Atomic uint32_t asked, answered; /* bytes; 0: not yet */
	char question[MESSAGE_BYTES], answer[MESSAGE_BYTES];
};

struct agreement {
	struct terms *terms;
};

static const uint64_t ID = (uint64_t)KEEP_FUSE << KEPT_KIND_SHIFT | 1;

static int terms_map(int fd, struct terms **terms)
{
	void *memory = mmap(NULL, sizeof(**terms), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	*terms = memory;
	return 0;
}

static int terms_new(struct keep *keep, struct terms **terms)
{
	AUTO_CLOSE int fd = memfd_create("gpumemfs-agreement", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, sizeof(**terms)))
		return -errno;
	int error = terms_map(fd, terms);

	if (error)
		return error;
	(*terms)->magic = AGREEMENT_MAGIC;
	(*terms)->version = 1;
	return keep_hold(keep, ID, fd);
}

static int terms_take(int fd, struct terms **terms)
{
	int error = lseek(fd, 0, SEEK_END) == sizeof(**terms) ? terms_map(fd, terms) : -EPROTO;

	if (!error && ((*terms)->magic != AGREEMENT_MAGIC || (*terms)->version != 1))
		error = -EPROTO;
	return error;
}

int agreement_open(struct keep *keep, struct agreement **opened)
{
	struct agreement *agreement = calloc(1, sizeof(*agreement));

	if (!agreement)
		return -ENOMEM;
	AUTO_CLOSE int fd = keep_take(keep, ID);
	int error = fd >= 0	    ? terms_take(fd, &agreement->terms)
		    : fd == -ENOENT ? terms_new(keep, &agreement->terms)
				    : fd;

	if (error) {
		log_error("cannot take part in what was agreed on with the kernel: %s",
			  strerror(-error));
		agreement_close(agreement);
		return error;
	}
	*opened = agreement;
	return 0;
}

void agreement_close(struct agreement *agreement)
{
	if (!agreement)
		return;
	if (agreement->terms)
		munmap(agreement->terms, sizeof(*agreement->terms));
	free(agreement);
}

int agreement_ask(struct agreement *agreement, int fuse)
{
	struct terms *terms = agreement->terms;
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
	memcpy(terms->question, message, (size_t)n);
	atomic_store(&terms->asked, (uint32_t)n);
	return 0;
}

/* libfuse's answer, which goes to a socket instead of the kernel. */
static ssize_t hear_out(struct fuse_session *session, const struct terms *terms, char *answer)
{
	char path[32], question[MESSAGE_BYTES];
	struct fuse_buf buf = {.mem = question, .size = terms->asked};
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	AUTO_CLOSE int listener = ends[1];

	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	if (fuse_session_mount(session, path)) {
		close(ends[0]);
		return -EIO;
	}
	memcpy(question, terms->question, sizeof(question));
	fuse_session_process_buf(session, &buf);
	ssize_t n = recv(listener, answer, MESSAGE_BYTES, MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

int agreement_greet(struct agreement *agreement, struct fuse_session *session)
{
	struct terms *terms = agreement->terms;
	char answer[MESSAGE_BYTES];

	if (terms->asked > MESSAGE_BYTES || terms->answered > MESSAGE_BYTES)
		return -EPROTO;
	ssize_t n = hear_out(session, terms, answer);

	if (n < (ssize_t)sizeof(struct fuse_out_header)) {
		log_error("libfuse has no answer for the kernel: %s",
			  n < 0 ? strerror((int)-n) : "too short");
		return n < 0 ? (int)n : -EPROTO;
	}
	if (terms->answered) {
		if (terms->answered == n && memcmp(terms->answer, answer, (size_t)n) == 0)
			return 0;
		log_error("this daemon would agree on something else with the kernel than the one "
			  "that made the mount: it needs a mount of its own");
		return -EPROTONOSUPPORT;
	}
	memcpy(terms->answer, answer, (size_t)n);
	atomic_store(&terms->answered, (uint32_t)n);
	return 0;
}

int agreement_ask_again(int fuse)
{
	struct fuse_out_header resend = {.len = sizeof(resend), .error = NOTIFY_RESEND};

	return write(fuse, &resend, sizeof(resend)) < 0 ? -errno : 0;
}

int agreement_answer(struct agreement *agreement, struct fuse_session *session, int fuse)
{
	struct terms *terms = agreement->terms;
	int error = 0;

	/* A keeper that was killed may have been at it. */
	fcntl(fuse, F_SETFL, O_RDWR);
	/* ENOENT: it was told by a daemon before this one. */
	if (dup3(fuse, fuse_session_fd(session), O_CLOEXEC) < 0 ||
	    (write(fuse, terms->answer, terms->answered) < 0 && errno != ENOENT))
		error = -errno;
	if (!error)
		error = agreement_ask_again(fuse);
	if (error)
		log_error("/dev/fuse: %s", strerror(-error));
	return error;
}

void agreement_set_device(struct agreement *agreement, dev_t device)
{
	agreement->terms->device = device;
}

dev_t agreement_device(const struct agreement *agreement)
{
	return agreement->terms->device;
}

void agreement_set_turn(struct agreement *agreement, uint64_t turn)
{
	agreement->terms->turn = turn;
}

static bool terms_read(int fd, struct terms *terms)
{
	return fd >= 0 && pread(fd, terms, sizeof(*terms), 0) == sizeof(*terms) &&
	       terms->magic == AGREEMENT_MAGIC;
}

dev_t agreement_device_of(int fd)
{
	struct terms terms;

	return terms_read(fd, &terms) ? (dev_t)terms.device : 0;
}

uint64_t agreement_turn_of(int fd)
{
	struct terms terms;

	return terms_read(fd, &terms) ? terms.turn : 0;
}
