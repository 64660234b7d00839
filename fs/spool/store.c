/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The spool directory: checks, the lock, records and data files. File names come from the disk or
 * from users, so every file is opened beneath the directory without following links. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/log.h"
#include "common/system/sd_notify.h"
#include "fs/spool/internal.h"

#define STATE ".spool"

/* A daemon that ends writes this text to the lock file: the next daemon then waits for the lock. */
#define ENDING "ending\n"

/* Milliseconds: between two tries for the lock; how long a killed daemon of this mount may keep
 * the lock; between two requests to the service manager for more time. */
#define LOCK_MS	  50
#define OURS_MS	  5000
#define EXTEND_MS 10000

/* The record of a file of a petabyte is smaller. */
#define RECORD_BYTES_MAX (1LL << 36)

static int log_refusal(const char *path, const char *reason)
{
	log_error("spool=%s: %s", path, reason);
	return -EINVAL;
}

static bool path_is_below(const char *path, const char *dir)
{
	size_t length = strlen(dir);

	return strncmp(path, dir, length) == 0 && (!path[length] || path[length] == '/');
}

int spool_check(const struct options *options)
{
	const char *path = options->spool;
	struct stat st;

	if (!path)
		return 0;
	AUTO_FREE char *real = realpath(path, NULL);

	if (!real || stat(real, &st)) {
		int rc = -errno;

		log_error("spool=%s: %s", path, strerror(-rc));
		return rc;
	}
	if (!S_ISDIR(st.st_mode))
		return log_refusal(path, "not a directory");
	if (path_is_below(real, options->mountpoint) || path_is_below(options->mountpoint, real))
		return log_refusal(path, "the mount and its spool cannot lie in each other");
	if (st.st_uid != geteuid())
		return log_refusal(path, "the directory belongs to another user than the daemon");
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return log_refusal(path, "other users may write to the directory (chmod go-w)");
	return 0;
}

static int open_below(int dir, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
	    .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
	    .mode = flags & O_CREAT ? mode : 0,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int dir_make(int dir, const char *name, int *fd)
{
	if (mkdirat(dir, name, 0700) && errno != EEXIST)
		return -errno;
	*fd = open_below(dir, name, O_RDONLY | O_DIRECTORY, 0);
	return *fd < 0 ? *fd : 0;
}

/* Whether the owner of the lock is at its last save. */
static bool is_ending(int fd)
{
	char text[sizeof(ENDING)] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 && strcmp(text, ENDING) == 0;
}

/* Waits for a daemon that is at its last save. A killed daemon of this same mount keeps the lock
 * until the kernel has closed its descriptors, for at most OURS_MS. */
static int lock_wait(const struct spool *spool, enum spool_owner owner)
{
	int max_ms = owner == SPOOL_OURS ? OURS_MS : 0;

	for (int ms = 0; flock(spool->lock_fd, LOCK_EX | LOCK_NB); ms += LOCK_MS) {
		bool ending = is_ending(spool->lock_fd);

		if (errno != EWOULDBLOCK || (!ending && ms >= max_ms))
			return -EBUSY;
		if (ending && ms == 0)
			log_info("spool=%s: the previous daemon is still saving", spool->path);
		if (ending && ms % EXTEND_MS == 0)
			notify_send(NOTIFY_EXTEND);
		nanosleep(&(struct timespec){.tv_nsec = LOCK_MS * 1000000L}, NULL);
	}
	return 0;
}

static int lock_take(struct spool *spool, int state, enum spool_owner owner)
{
	spool->lock_fd = open_below(state, "lock", O_RDWR | O_CREAT, 0600);
	if (spool->lock_fd < 0)
		return spool->lock_fd;
	int rc = lock_wait(spool, owner);

	if (rc) {
		log_error("spool=%s: another mount uses the directory", spool->path);
		return rc;
	}
	return ftruncate(spool->lock_fd, 0) ? -errno : 0;
}

static int open_parts(struct spool *spool, enum spool_owner owner)
{
	AUTO_CLOSE int state = -1;

	spool->dir = open(spool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool->dir < 0)
		return -errno;
	int rc = dir_make(spool->dir, STATE, &state);

	if (rc == 0)
		rc = lock_take(spool, state, owner);
	if (rc == 0)
		rc = dir_make(state, "records", &spool->records);
	if (rc == 0)
		rc = dir_make(state, "data", &spool->data);
	return rc;
}

int spool_dir_open(const char *path, enum spool_owner owner, struct spool **opened)
{
	struct spool *spool = calloc(1, sizeof(*spool));
	int rc = spool ? 0 : -ENOMEM;

	if (rc)
		return rc;
	*spool = (struct spool){.path = realpath(path, NULL),
				.dir = -1,
				.records = -1,
				.data = -1,
				.lock_fd = -1,
				.direct = true};
	spool->last = &spool->first;
	pthread_mutex_init(&spool->lock, NULL);
	pthread_mutex_init(&spool->draining, NULL);
	pthread_mutex_init(&spool->mirror, NULL);
	rc = spool->path ? open_parts(spool, owner) : -errno;
	if (rc) {
		if (rc != -EBUSY)
			log_error("spool=%s: %s", path, strerror(-rc));
		spool_dir_close(spool);
		return rc;
	}
	*opened = spool;
	return 0;
}

void spool_announce_ending(struct spool *spool)
{
	if (pwrite(spool->lock_fd, ENDING, sizeof(ENDING) - 1, 0) < 0)
		log_debug("spool: lock: %s", strerror(errno));
}

void spool_dir_close(struct spool *spool)
{
	int fds[] = {spool->dir, spool->records, spool->data, spool->lock_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	pthread_mutex_destroy(&spool->lock);
	pthread_mutex_destroy(&spool->draining);
	pthread_mutex_destroy(&spool->mirror);
	free(spool->path);
	free(spool);
}

void spool_file_name(char text[SPOOL_FILE_NAME], uint64_t id, uint64_t version)
{
	if (version)
		snprintf(text, SPOOL_FILE_NAME, "%" PRIu64 ".%" PRIu64, id, version);
	else
		snprintf(text, SPOOL_FILE_NAME, "%" PRIu64, id);
}

int spool_data_open(struct spool *spool, uint64_t id, uint64_t version, int flags)
{
	char name[SPOOL_FILE_NAME];
	struct stat st;

	spool_file_name(name, id, version);
	int fd = open_below(spool->data, name, flags | O_NONBLOCK, 0600);

	/* Opening a FIFO could wait, and opening a device could do anything. */
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		return -EUCLEAN;
	}
	return fd;
}

/* The names in data/ become durable first, because the record refers to them. */
static int record_replace(struct spool *spool, const char *name, const char *text, size_t length,
			  bool *placed)
{
	char temporary_name[SPOOL_FILE_NAME + 8];

	snprintf(temporary_name, sizeof(temporary_name), "%s.tmp", name);
	AUTO_CLOSE int fd =
	    open_below(spool->records, temporary_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int rc = fd < 0 ? fd : io_write_at(fd, text, length, 0, NULL);

	if (rc == 0 && fsync(fd))
		rc = -errno;
	spool_step(spool);
	if (rc == 0 && fsync(spool->data))
		rc = -errno;
	if (rc == 0 && renameat(spool->records, temporary_name, spool->records, name))
		rc = -errno;
	spool_step(spool);
	if (rc) {
		unlinkat(spool->records, temporary_name, 0);
		return rc;
	}
	*placed = true;
	return fsync(spool->records) ? -errno : 0;
}

int spool_record_put(struct spool *spool, const struct spool_record *record, bool *placed)
{
	AUTO_FREE char *text = NULL;
	char name[SPOOL_FILE_NAME];
	ssize_t length = spool_record_write(record, &text);

	*placed = false;
	spool_file_name(name, record->id, 0);
	return length < 0 ? (int)length : record_replace(spool, name, text, (size_t)length, placed);
}

ssize_t spool_record_get(struct spool *spool, const char *name, char **text)
{
	AUTO_CLOSE int fd = open_below(spool->records, name, O_RDONLY | O_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > RECORD_BYTES_MAX)
		return -EUCLEAN;
	AUTO_FREE char *memory = malloc((size_t)st.st_size + 1);

	if (!memory)
		return -ENOMEM;
	uint64_t length = 0;
	int rc = io_read_at(fd, memory, (uint64_t)st.st_size, 0, &length);

	if (rc < 0)
		return rc;
	*text = memory;
	memory = NULL;
	return (ssize_t)length;
}

static int unlink_quietly(int dir, const char *name)
{
	return unlinkat(dir, name, 0) && errno != ENOENT ? -errno : 0;
}

/* The record is renamed first, so that a crash in between does not look like damage. */
int spool_remove(struct spool *spool, uint64_t id)
{
	char name[SPOOL_FILE_NAME], gone_name[SPOOL_FILE_NAME + 8];

	spool_file_name(name, id, 0);
	snprintf(gone_name, sizeof(gone_name), "%s.gone", name);
	if (renameat(spool->records, name, spool->records, gone_name) && errno != ENOENT)
		return -errno;
	if (fsync(spool->records))
		return -errno;
	spool_step(spool);
	int rc = unlink_quietly(spool->data, name);

	spool_step(spool);

	if (rc == 0 && fsync(spool->data))
		rc = -errno;
	return rc ? rc : unlink_quietly(spool->records, gone_name);
}
