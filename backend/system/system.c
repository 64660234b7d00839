/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Two tmpfs mounts, because whether an object gets huge pages when written is a property of its
 * mount (huge=advise covers only page faults of mappings with MADV_HUGEPAGE). The two share a
 * limit, from which the charges of objects with a tmpfs of their own are subtracted: each may have
 * the other's rest. The sizes are set again whenever an object is made, the usage is read, or these
 * charges have changed by more than a share of the limit; in between, all together may exceed the
 * limit. */
#include "backend/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/system/bounded.h"
#include "backend/system/tmpfs.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/descriptors.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

/* size=0 means no limit to tmpfs. */
#define BYTES_MIN 4096ULL

/* The share of the limit that is not worth the system calls. */
#define DRIFT_SHARE 64

struct system_memory {
	uint64_t bytes;
	_Atomic uint64_t counted; /* by system_account */
	atomic_bool said_no_fds, said_no_huge;
	atomic_bool no_own;	  /* objects cannot have a tmpfs of their own; logged */
	pthread_mutex_t lock;	  /* the mounts and their sizes, and limits of objects */
	uint64_t own_bytes;	  /* charges of objects with their own tmpfs */
	uint64_t own_shared;	  /* of own_bytes: in bounds already */
	int mounts[SYSTEM_KINDS]; /* -1: not made; small -1: memfds */
	uint64_t bounds[SYSTEM_KINDS];
	atomic_bool has_huge; /* the mount for huge pages may have objects */
};

/* lock held. While no object has huge pages or a tmpfs of its own, the whole limit belongs to the
 * mount for small pages: creating an object then takes no system call here. */
static void mounts_share_limit(struct system_memory *memory)
{
	bool has_huge = memory->mounts[SYSTEM_PAGES_HUGE] >= 0 && atomic_load(&memory->has_huge);

	if (!has_huge && !memory->own_bytes && !memory->own_shared)
		return;
	memory->own_shared = memory->own_bytes;
	for (int kind = 0; kind < SYSTEM_KINDS && memory->mounts[kind] >= 0; kind++) {
		uint64_t other_bytes = tmpfs_used(memory->mounts[!kind]) + memory->own_bytes;
		uint64_t bound = memory->bytes > other_bytes ? memory->bytes - other_bytes : 0;

		if (bound < BYTES_MIN)
			bound = BYTES_MIN;
		if (bound != memory->bounds[kind])
			/* Refused while the mount holds more; the next call tries again. */
			tmpfs_resize(memory->mounts[kind], bound);
		memory->bounds[kind] = bound;
	}
}

int system_memory_open(uint64_t bytes, struct system_memory **memory)
{
	struct system_memory *new_memory = calloc(1, sizeof(*new_memory));

	if (!new_memory)
		return -ENOMEM;
	descriptors_raise();
	pthread_mutex_init(&new_memory->lock, NULL);
	new_memory->bytes = bytes < BYTES_MIN ? BYTES_MIN : bytes;
	new_memory->bounds[SYSTEM_PAGES_SMALL] = new_memory->bytes;
	new_memory->mounts[SYSTEM_PAGES_HUGE] = -1;
	new_memory->mounts[SYSTEM_PAGES_SMALL] = tmpfs_new(new_memory->bytes, "advise");
	if (new_memory->mounts[SYSTEM_PAGES_SMALL] < 0)
		log_info("host: no tmpfs of its own (%s): plain memfds, whose mappings can pass "
			 "host_size",
			 strerror(-new_memory->mounts[SYSTEM_PAGES_SMALL]));
	*memory = new_memory;
	return 0;
}

void system_memory_close(struct system_memory *memory)
{
	for (int kind = 0; kind < SYSTEM_KINDS; kind++) {
		if (memory->mounts[kind] >= 0)
			close(memory->mounts[kind]);
	}
	pthread_mutex_destroy(&memory->lock);
	free(memory);
}

/* Like an object of a tmpfs: only its owner can open the memfd again, and a client cannot seal the
 * memfd against changes by other processes. */
static int memfd_new(void)
{
	int fd = memfd_create("gpumemfs", MFD_CLOEXEC | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create("gpumemfs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fd;
	if (fchmod(fd, 0600) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0)
		return fd;

	int error = errno;

	close(fd);
	errno = error;
	return -1;
}

static void log_no_huge(struct system_memory *memory, int error)
{
	if (!atomic_exchange(&memory->said_no_huge, true))
		log_warn("host: page_size=2M without huge pages: %s", strerror(error));
}

/* The mount for objects of this kind, or the mount for small pages if huge pages are not available.
 */
static int mount_of_kind(struct system_memory *memory, enum system_pages pages)
{
	scoped_lock(&memory->lock);
	int *huge = &memory->mounts[SYSTEM_PAGES_HUGE];

	if (pages == SYSTEM_PAGES_HUGE && *huge < 0) {
		*huge = tmpfs_new(memory->bytes, "always");
		if (*huge < 0)
			log_no_huge(memory, -*huge);
	}
	mounts_share_limit(memory);
	return *huge >= 0 ? memory->mounts[pages] : memory->mounts[SYSTEM_PAGES_SMALL];
}

int system_memory_mount(struct system_memory *memory, enum system_pages pages)
{
	if (memory->mounts[SYSTEM_PAGES_SMALL] < 0)
		return -1;
	mount_of_kind(memory, pages);
	return memory->mounts[pages];
}

void system_memory_adopt(struct system_memory *memory, enum system_pages pages, int fd)
{
	scoped_lock(&memory->lock);
	if (memory->mounts[pages] >= 0)
		close(memory->mounts[pages]);
	memory->mounts[pages] = fd;
	memory->bounds[pages] = 0; /* unknown: set at the next look */
	atomic_store(&memory->has_huge, true);
}

bool system_has_own_tmpfs(const struct system_memory *memory)
{
	return memory->mounts[SYSTEM_PAGES_SMALL] >= 0 && !atomic_load(&memory->no_own);
}

/* -1 if objects cannot have a tmpfs of their own, and for good; else as open(2). */
static int object_new_own(struct system_memory *memory, enum system_pages pages)
{
	int fd = bounded_new(pages == SYSTEM_PAGES_HUGE ? "always" : "advise");
	bool transient = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOSPC;

	if (fd < 0 && !transient && !atomic_exchange(&memory->no_own, true))
		log_info("host: no tmpfs for a single file (%s): a process with a lease can pass "
			 "a quota until the next check",
			 strerror(errno));
	return fd;
}

/* As open(2). */
static int object_new_shared(struct system_memory *memory, enum system_pages pages)
{
	if (pages == SYSTEM_PAGES_HUGE)
		atomic_store(&memory->has_huge, true);
	if (memory->mounts[SYSTEM_PAGES_SMALL] >= 0)
		return tmpfs_object(mount_of_kind(memory, pages));
	if (pages == SYSTEM_PAGES_HUGE)
		log_no_huge(memory, EPERM);
	return memfd_new();
}

int system_object_new(struct system_memory *memory, enum system_pages pages,
		      enum system_tmpfs tmpfs, int *fd)
{
	bool use_own = tmpfs == SYSTEM_TMPFS_OWN && system_has_own_tmpfs(memory);
	int new_fd = use_own ? object_new_own(memory, pages) : -1;

	if (new_fd < 0 && (!use_own || !system_has_own_tmpfs(memory)))
		new_fd = object_new_shared(memory, pages);
	new_fd = descriptor_unreserved(DESCRIPTOR_MEMORY, new_fd);
	if (new_fd >= 0) {
		*fd = new_fd;
		return 0;
	}

	int error = errno;

	if (error != EMFILE && error != ENFILE)
		return -error;
	if (!atomic_exchange(&memory->said_no_fds, true))
		log_error("host: cannot make a file: %s; raise the daemon's limit of open files "
			  "(ulimit -Hn, LimitNOFILE=)",
			  strerror(error));
	return -ENOSPC;
}

enum system_tmpfs system_object_tmpfs(int fd)
{
	return bounded_is(fd) ? SYSTEM_TMPFS_OWN : SYSTEM_TMPFS_SHARED;
}

uint64_t system_object_limit(int fd)
{
	return bounded_limit(fd);
}

int system_object_set_limit(struct system_memory *memory, int fd, uint64_t bytes)
{
	scoped_lock(&memory->lock);
	return bounded_set_limit(fd, bytes);
}

int system_object_raise_limit(struct system_memory *memory, int fd, uint64_t bytes)
{
	scoped_lock(&memory->lock);
	uint64_t limit = bounded_limit(fd);

	return limit >= SYSTEM_UNLIMITED || limit < bytes ? bounded_set_limit(fd, bytes) : 0;
}

/* A write lease is granted only while no other open file of the object exists; duplicated
 * descriptors count once. A process that opens the object at this moment waits until the lease is
 * released. */
bool system_object_is_held(const struct system_memory *memory, int fd)
{
	if (memory->mounts[SYSTEM_PAGES_SMALL] < 0)
		return false;
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

uint64_t system_bytes(const struct system_memory *memory)
{
	return memory->bytes;
}

static uint64_t mounts_used(const struct system_memory *memory)
{
	return tmpfs_used(memory->mounts[SYSTEM_PAGES_SMALL]) +
	       tmpfs_used(memory->mounts[SYSTEM_PAGES_HUGE]);
}

/* lock held. */
static void account_own_add(struct system_memory *memory, int64_t bytes)
{
	memory->own_bytes += (uint64_t)bytes;

	uint64_t drift = memory->own_bytes > memory->own_shared
			     ? memory->own_bytes - memory->own_shared
			     : memory->own_shared - memory->own_bytes;

	if (drift > memory->bytes / DRIFT_SHARE)
		mounts_share_limit(memory);
}

static int account_own(struct system_memory *memory, int64_t bytes)
{
	scoped_lock(&memory->lock);
	if (bytes > 0 && memory->own_bytes + (uint64_t)bytes + mounts_used(memory) > memory->bytes)
		return -ENOSPC;
	account_own_add(memory, bytes);
	return 0;
}

static int account_shared(struct system_memory *memory, int64_t bytes)
{
	bool bounded = memory->mounts[SYSTEM_PAGES_SMALL] >= 0;
	uint64_t now = atomic_load(&memory->counted), next;

	do {
		next = now + (uint64_t)bytes;
		if (bytes > 0 && !bounded && next > memory->bytes)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&memory->counted, &now, next));
	return 0;
}

int system_account(struct system_memory *memory, enum system_tmpfs tmpfs, int64_t bytes)
{
	return tmpfs == SYSTEM_TMPFS_OWN ? account_own(memory, bytes)
					 : account_shared(memory, bytes);
}

void system_account_force(struct system_memory *memory, enum system_tmpfs tmpfs, int64_t bytes)
{
	if (tmpfs == SYSTEM_TMPFS_OWN) {
		scoped_lock(&memory->lock);
		account_own_add(memory, bytes);
	} else {
		atomic_fetch_add(&memory->counted, (uint64_t)bytes);
	}
}

int system_usage(struct system_memory *memory, struct system_usage *usage)
{
	bool bounded = memory->mounts[SYSTEM_PAGES_SMALL] >= 0;
	uint64_t used = atomic_load(&memory->counted);

	if (bounded) {
		scoped_lock(&memory->lock);
		mounts_share_limit(memory);
		used = memory->own_bytes + mounts_used(memory);
	}
	*usage = (struct system_usage){
	    .total = memory->bytes,
	    .free = memory->bytes > used ? memory->bytes - used : 0,
	    .bounded_by_kernel = bounded,
	};
	return 0;
}
