/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/internal.h"
#include "fs/keeper/fdstore.h"

/* How long a thread polls for the next request before sleeping. On the reference machine a request
 * and its reply took 25 us if a thread had to wake up, and 11 us otherwise. A client with
 * back-to-back requests gains the whole difference within 20 us. The longer time is for a client
 * with computation between requests, and equals KVM's halt polling, which has the same purpose. */
#define BUSY_POLL_NS 200000
/* The time between two tries. Each try takes the lock of the kernel's queue, which callers need to
 * add a request: on an H100's host with 16 processors 16 threads got 1.30 GB/s in reads of 4 KiB
 * with one try after the other, and 1.48 with a pause of 2 us; 8 threads created 47,000 and 71,000
 * files a second. */
#define BUSY_POLL_EACH_NS 2000
/* A thread polls only while the threads that serve or poll are at most one for each BUSY_POLL_SHARE
 * processors. The other processors are left to programs that compute, and with more requests than
 * that under way polling costs more than it saves: for each request that a polling thread takes,
 * the kernel wakes up a sleeping thread in vain. On an H100's host with 16 processors 16 readers of
 * 1 MiB got 41 GB/s beside 2 threads that always polled, and 46 without; of 128 KiB 22 and 28. */
#define BUSY_POLL_SHARE 8

/* The calling thread's device; -1: the session's. */
static _Thread_local int own_fd = -1;
/* The calling thread is counted in busy_poll.awake. */
static _Thread_local bool is_awake;

static ssize_t channel_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)userdata;
	return writev(own_fd < 0 ? fd : own_fd, iov, count);
}

static void libfuse_log_nothing(enum fuse_log_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
}

/* fuse_session_custom_io needs a read function for libfuse's own loop, although the daemon uses a
 * loop of its own. */
static ssize_t channel_read_wait(int fd, void *to, size_t bytes, void *userdata)
{
	(void)userdata;
	return read(own_fd < 0 ? fd : own_fd, to, bytes);
}

/* Fails if libfuse was built without custom I/O. */
static int session_custom_io(struct fuse_session *fuse)
{
	static const struct fuse_custom_io io = {.writev = channel_writev,
						 .read = channel_read_wait};

	return fuse_session_custom_io(fuse, &io, sizeof(io), fuse_session_fd(fuse));
}

/* The descriptor or -errno. */
static int device_clone(struct fuse_session *fuse)
{
	uint32_t session = (uint32_t)fuse_session_fd(fuse);
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, FUSE_DEV_IOC_CLONE, &session) == 0)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static void busy_poll_prepare(struct fs *fs)
{
	struct capability *busy_poll = &fs->can.busy_poll;
	struct busy_poll *polling = &session_of(fs)->busy_poll;
	unsigned processors = (unsigned)get_nprocs();

	polling->max_awake =
	    fs->can.clone_fd.on ? (processors + BUSY_POLL_SHARE / 2) / BUSY_POLL_SHARE : 0;
	if (polling->max_awake)
		capability_set(
		    busy_poll, true,
		    "for %u us after a request, while at most %u of %u processors are busy",
		    BUSY_POLL_NS / 1000, polling->max_awake, processors);
	else if (fs->can.clone_fd.on)
		capability_set(busy_poll, false, "%u processors are too few", processors);
	else
		capability_set(busy_poll, false, "threads share one /dev/fuse");
}

static void clones_prepare(struct fs *fs, struct fuse_session *fuse)
{
	struct capability *capability = &fs->can.clone_fd;
	int fd = device_clone(fuse);

	if (fd < 0) {
		capability_set(capability, false, "/dev/fuse: %s", strerror(-fd));
		return;
	}
	close(fd);
	fuse_set_log_func(libfuse_log_nothing);
	if (session_custom_io(fuse))
		capability_set(capability, false, "libfuse is built without custom I/O");
	else
		capability_set(capability, true, "each thread has a /dev/fuse of its own");
}

void channel_prepare(struct fs *fs, struct fuse_session *fuse)
{
	clones_prepare(fs, fuse);
	busy_poll_prepare(fs);
}

/* The device that the thread of this number had in an earlier daemon, or a new device. */
static int device_clone_kept(struct fs *fs, struct fuse_session *fuse, unsigned number)
{
	uint64_t id = fdstore_id(FDSTORE_CLONE, number);
	int error, fd = fdstore_take(fs->fdstore, id);

	if (fd != -ENOENT)
		return fd;
	fd = device_clone(fuse);
	error = fd < 0 ? fd : fdstore_hold(fs->fdstore, id, fd);
	if (!error)
		return fd;
	if (fd >= 0)
		close(fd);
	return error;
}

int channel_open(struct fs *fs, struct fuse_session *fuse, unsigned number)
{
	if (!fs->can.clone_fd.on)
		return -1;
	bool is_kept = fs->options.recovery == RECOVERY_TRANSPARENT;
	int fd = is_kept ? device_clone_kept(fs, fuse, number) : device_clone(fuse);
	if (fd < 0)
		log_warn("a worker thread shares its /dev/fuse with others: %s", strerror(-fd));
	else
		fcntl(fd, F_SETFL, O_RDWR); /* a killed daemon may have left O_NONBLOCK */
	own_fd = fd < 0 ? -1 : fd;
	return own_fd;
}

int channel_current(void)
{
	return own_fd;
}

void channel_answer_for(int channel)
{
	own_fd = channel;
}

/* As read(2) with O_NONBLOCK, for at most BUSY_POLL_NS. */
static ssize_t channel_read_polling(void *to, size_t bytes)
{
	int64_t now = clock_ns(), deadline = now + BUSY_POLL_NS;
	ssize_t n;

	if (fcntl(own_fd, F_SETFL, O_RDWR | O_NONBLOCK))
		return -1;
	while ((n = read(own_fd, to, bytes)) < 0 && errno == EAGAIN && now < deadline)
		for (int64_t next = now + BUSY_POLL_EACH_NS; now < next;)
			now = clock_ns();
	int error = errno;
	fcntl(own_fd, F_SETFL, O_RDWR);
	errno = error;
	return n;
}

void channel_set_awake(struct fs *fs, bool awake)
{
	if (awake != is_awake)
		atomic_fetch_add(&session_of(fs)->busy_poll.awake, awake ? 1U : -1U);
	is_awake = awake;
}

ssize_t channel_read(struct fs *fs, struct fuse_session *fuse, void *to, size_t bytes)
{
	const struct busy_poll *polling = &session_of(fs)->busy_poll;
	ssize_t n = -1;

	if (own_fd < 0 || !polling->max_awake)
		return channel_read_wait(fuse_session_fd(fuse), to, bytes, NULL);
	errno = EAGAIN;
	channel_set_awake(fs, true);
	if (atomic_load_explicit(&polling->awake, memory_order_relaxed) <= polling->max_awake)
		n = channel_read_polling(to, bytes);
	if (n >= 0 || errno != EAGAIN)
		return n;
	channel_set_awake(fs, false);
	n = channel_read_wait(fuse_session_fd(fuse), to, bytes, NULL);
	channel_set_awake(fs, true);
	return n;
}
