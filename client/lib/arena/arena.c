/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/arena/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/process.h"
#include "client/lib/arena/ranges.h"
#include "client/lib/create.h"
#include "client/lib/file.h"
#include "client/lib/listener.h"
#include "client/lib/park.h"
#include "client/lib/safe_point.h"
#include "common/cleanup.h"

/* A step costs a request to the daemon and a few calls of the driver, 300 to 600 us. Steps of the
 * file's own size are few, and the cap bounds the memory that lies idle. */
#define STEP_MIN      CLIENT_CHUNK_ALIGN
#define STEP_MAX      (1ULL << 30)
#define ALIGNMENT_MIN 512ULL
#define PERMISSIONS   (S_IRUSR | S_IWUSR)
#define REASON_MAX    256

struct gpumem_arena {
	struct gpumem_arena *next; /* under list_lock */
	pthread_mutex_t lock;	   /* of ranges; taken before the file's lock */
	struct gpumem *file;
	struct arena_ranges ranges;
	uint64_t base;	  /* device address of the file */
	uint64_t reserve; /* bytes of device addresses */
	pid_t owner;	  /* the process that allocates, and removes the file */
	char *path;	  /* absolute */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpumem_arena *arena_list; /* under list_lock */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* The attribute persist is the user's promise for the file, and may change at any time. */
static bool path_is_kept(const char *path)
{
	char value[16];
	ssize_t n = getxattr(path, "user.gpumem.persist", value, sizeof(value));

	return n > 0 && (n != 8 || memcmp(value, "volatile", 8) != 0);
}

/* By path, because a program may have closed descriptors that it does not own. A renamed file
 * stays. */
static void name_remove(const struct gpumem_arena *arena)
{
	if (arena->owner == getpid() && client_file_has_name(arena->file, arena->path) &&
	    !path_is_kept(arena->path))
		unlink(arena->path);
}

/* At the end of the process the memory goes with the lease, once the name is gone. */
__attribute__((destructor)) static void names_remove(void)
{
	scoped_lock(&list_lock);
	for (const struct gpumem_arena *at = arena_list; at; at = at->next)
		name_remove(at);
}

/* The kernel drops the lock of a killed process. Files of other users are not removed, not even by
 * root. */
void client_arena_sweep(int folder, const char *name)
{
	char path[BENEATH_THROUGH_MAX];
	AUTO_CLOSE int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
	    flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (!path_is_kept(beneath_through(fd, path)))
		unlinkat(folder, name, 0);
}

static void list_add(struct gpumem_arena *arena)
{
	scoped_lock(&list_lock);
	arena->next = arena_list;
	arena_list = arena;
}

static void list_remove(const struct gpumem_arena *arena)
{
	scoped_lock(&list_lock);
	struct gpumem_arena **at = &arena_list;

	while (*at != arena)
		at = &(*at)->next;
	*at = arena->next;
}

/* reserve 0: as much as the GPU has. */
static int reserve_choose(struct gpumem_arena *arena, size_t reserve)
{
	struct statvfs st;

	if (reserve > INT64_MAX)
		return client_fail(EINVAL, "%zu bytes are more than a file can have", reserve);
	if (!reserve) {
		if (fstatvfs(arena->file->fd, &st) < 0)
			return client_fail(errno, "statvfs: %s", strerror(errno));
		reserve = (size_t)st.f_blocks * st.f_frsize;
	}
	arena->reserve = round_up(reserve > STEP_MIN ? reserve : STEP_MIN, STEP_MIN);
	return 0;
}

static int file_map(struct gpumem_arena *arena)
{
	struct gpumem *file = arena->file;

	scoped_lock(&file->lock);
	file->device.room = arena->reserve;
	int rc = client_file_ops(file)->device_map(&file->device, &file->layout);
	if (rc == 0)
		rc = arena_ranges_grow(&arena->ranges, file->layout.size);
	arena->base = file->device.base;
	file->size_min = arena->ranges.end;
	return rc;
}

static int file_name(struct gpumem_arena *arena, const char *path)
{
	int rc = client_publish(arena->file);
	if (rc < 0)
		return rc;
	arena->path = realpath(path, NULL);
	return arena->path ? 0 : client_fail(errno, "%s: %s", path, strerror(errno));
}

static int arena_fill(struct gpumem_arena *arena, const char *path, size_t reserve, int flags)
{
	int rc = client_create(path, STEP_MIN, 0, PERMISSIONS, flags | GPUMEM_CREATE_PENDING,
			       &arena->file);

	if (rc < 0)
		return rc;
	rc = reserve_choose(arena, reserve);
	if (rc == 0)
		rc = file_map(arena);
	if (rc == 0 && flock(arena->file->fd, LOCK_SH | LOCK_NB) < 0)
		rc = client_fail(errno, "%s: flock: %s", path, strerror(errno));
	return rc < 0 ? rc : file_name(arena, path);
}

/* Gives the first error. */
static int arena_release(struct gpumem_arena *arena)
{
	if (arena->path)
		name_remove(arena);
	int rc = arena->file ? client_file_free(arena->file) : 0;
	pthread_mutex_destroy(&arena->lock);
	free(arena->ranges.ranges);
	free(arena->path);
	free(arena);
	return rc;
}

int client_arena_open(const char *path, size_t reserve, int flags, struct gpumem_arena **arena)
{
	if (flags & ~GPUMEM_CREATE_EXCL)
		return client_fail(EINVAL, "flags are 0 or GPUMEM_CREATE_EXCL");
	struct gpumem_arena *new_arena = calloc(1, sizeof(*new_arena));
	if (!new_arena)
		return client_fail(ENOMEM, "no memory");
	pthread_mutex_init(&new_arena->lock, NULL);
	new_arena->owner = getpid();
	int rc = arena_fill(new_arena, path, reserve, flags);
	if (rc < 0) {
		arena_release(new_arena);
		return rc;
	}
	list_add(new_arena);
	client_safe_points_begin();
	*arena = new_arena;
	return 0;
}

int client_arena_close(struct gpumem_arena *arena)
{
	list_remove(arena);
	return arena_release(arena);
}

static int owner_check(const struct gpumem_arena *arena)
{
	return arena->owner == getpid()
		   ? 0
		   : client_fail(EINVAL, "the arena belongs to the process that opened it, and "
					 "cannot be used after fork");
}

/* If the GPU has no room for the step, a step of the missing bytes alone is tried. */
static int file_grow(const struct gpumem_arena *arena, uint64_t missing)
{
	uint64_t size = arena->file->layout.size, remaining = arena->reserve - size;
	uint64_t step = size < STEP_MAX ? size : STEP_MAX;

	missing = round_up(missing, STEP_MIN);
	if (missing > remaining)
		return client_fail(ENOSPC, "%s: the arena's reserve of %llu bytes is used up",
				   arena->path, (unsigned long long)arena->reserve);
	step = step < missing ? missing : step;
	step = step < remaining ? step : remaining;
	while (fallocate(arena->file->fd, 0, (off_t)size, (off_t)step) < 0) {
		if ((errno == ENOSPC || errno == EDQUOT) && step > missing)
			step = missing;
		else if (errno != EINTR)
			return client_fail(errno, "%s: no memory for %llu bytes more: %s",
					   arena->path, (unsigned long long)step, strerror(errno));
	}
	return 0;
}

/* After a step that could not be mapped the file is larger than the arena. */
static int arena_grow(struct gpumem_arena *arena, uint64_t missing)
{
	struct gpumem *file = arena->file;
	uint64_t unmapped = file->layout.size - arena->ranges.end;
	int rc = 0;

	if (unmapped < missing)
		rc = file_grow(arena, missing - unmapped);
	if (rc < 0)
		return rc;
	scoped_lock(&file->lock);
	rc = client_file_extend(file);
	if (rc == 0)
		rc = arena_ranges_grow(&arena->ranges, file->layout.size - arena->ranges.end);
	file->size_min = arena->ranges.end;
	return rc;
}

static int parked_check(const struct gpumem_arena *arena)
{
	scoped_lock(&arena->file->lock);
	return arena->file->parked ? client_fail(EBUSY, "%s: the arena is parked", arena->path) : 0;
}

int client_arena_alloc(struct gpumem_arena *arena, size_t bytes, size_t alignment,
		       unsigned long long *address)
{
	uint64_t offset = 0;

	if (!bytes || bytes > INT64_MAX / 2)
		return client_fail(EINVAL, "an allocation of %zu bytes", bytes);
	int rc = client_alignment_check(alignment);
	if (rc < 0)
		return rc;
	alignment = alignment > ALIGNMENT_MIN ? alignment : ALIGNMENT_MIN;
	bytes = round_up(bytes, ALIGNMENT_MIN);
	rc = owner_check(arena);
	if (rc < 0)
		return rc;
	scoped_lock(&arena->lock);
	rc = parked_check(arena);
	if (rc == 0)
		rc = arena_ranges_alloc(&arena->ranges, bytes, alignment, &offset);
	if (rc == -ENOSPC) {
		rc = arena_grow(arena, arena_ranges_missing(&arena->ranges, bytes, alignment));
		if (rc == 0)
			rc = arena_ranges_alloc(&arena->ranges, bytes, alignment, &offset);
	}
	if (rc == 0)
		*address = arena->base + offset;
	return rc;
}

int client_arena_free(struct gpumem_arena *arena, unsigned long long address)
{
	int rc = owner_check(arena);

	if (rc < 0)
		return rc;
	scoped_lock(&arena->lock);
	return arena_ranges_free(&arena->ranges, address - arena->base) < 0
		   ? client_fail(EINVAL, "no allocation of the arena begins at 0x%llx", address)
		   : 0;
}

int client_arena_park(struct gpumem_arena *arena)
{
	int rc = owner_check(arena);

	if (rc < 0)
		return rc;
	scoped_lock(&arena->lock);
	scoped_lock(&arena->file->lock);
	return client_park(arena->file);
}

/* The text names the file also if the file was changed, because the caller of a pool has no other
 * way to know which of its files was. */
int client_arena_unpark(struct gpumem_arena *arena)
{
	char reason[REASON_MAX] = "the file was changed while it was parked";
	int rc = owner_check(arena);

	if (rc < 0)
		return rc;
	scoped_lock(&arena->lock);
	scoped_lock(&arena->file->lock);
	rc = client_unpark(arena->file);
	if (rc < 0)
		snprintf(reason, sizeof(reason), "%s", client_error_text());
	if (rc)
		client_fail(EIO, "%s: %s", arena->path, reason);
	return rc;
}

gpumem_arena *gpumem_arena_open(const char *path, size_t reserve, int flags)
{
	struct gpumem_arena *arena = NULL;

	CLIENT_CALL();
	return client_errno_return(client_arena_open(path, reserve, flags, &arena)) < 0 ? NULL
											: arena;
}

int gpumem_arena_alloc(gpumem_arena *arena, size_t bytes, size_t alignment,
		       unsigned long long *address)
{
	CLIENT_CALL();
	return client_errno_return(client_arena_alloc(arena, bytes, alignment, address));
}

int gpumem_arena_free(gpumem_arena *arena, unsigned long long address)
{
	CLIENT_CALL();
	return client_errno_return(client_arena_free(arena, address));
}

int gpumem_arena_park(gpumem_arena *arena)
{
	CLIENT_CALL();
	return client_errno_return(client_arena_park(arena));
}

int gpumem_arena_unpark(gpumem_arena *arena)
{
	CLIENT_CALL();
	int rc = client_arena_unpark(arena);

	return rc > 0 ? rc : client_errno_return(rc);
}

/* Under list_lock: copies the path of the arena that has the address. */
static int arena_find(unsigned long long address, char *path, size_t bytes, uint64_t *offset)
{
	const struct gpumem_arena *at = arena_list;

	while (at &&
	       (at->owner != getpid() || address < at->base || address - at->base >= at->reserve))
		at = at->next;
	if (!at)
		return client_fail(ENOENT, "0x%llx is in no arena of this process", address);
	if (strlen(at->path) >= bytes)
		return client_fail(ERANGE, "%s: %zu bytes are too few for the path", at->path,
				   bytes);
	strcpy(path, at->path);
	*offset = address - at->base;
	return 0;
}

int gpumem_arena_find(unsigned long long address, char *path, size_t bytes, uint64_t *offset)
{
	CLIENT_CALL();
	scoped_lock(&list_lock);
	return client_errno_return(arena_find(address, path, bytes, offset));
}

int gpumem_arena_close(gpumem_arena *arena)
{
	CLIENT_CALL();
	return arena ? client_errno_return(client_arena_close(arena)) : 0;
}
