/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The charge of files in host/: the blocks of the object, or the file's size while programs may
 * store without the daemon, because the kernel does not report when a store allocates a page.
 *
 * A program with a lease for writing can also change the size. Below a quota the object has a tmpfs
 * of its own (bounded.h): while programs have the object, the file is charged by the limit of this
 * tmpfs, and the limit is raised only after the charge. While only the daemon has the object, there
 * is no limit. */
#include <errno.h>
#include <sys/stat.h>

#include "fs/file/host/host.h"

/* Blocks beyond the end, reserved or from a huge page, could hide a hole. */
bool host_has_no_holes(const struct file *file, const struct stat *st)
{
	uint64_t page = 1ULL << atomic_load(&file->object.shift);

	return (page == POOL_BLOCK_MIN || (uint64_t)st->st_size % page == 0) &&
	       atomic_load(&file->fields->reserved) <= (uint64_t)st->st_size &&
	       (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
}

static bool host_is_promised(const struct file *file)
{
	return atomic_load(&file->leases.count) > 0 || atomic_load(&file->object.mapped) > 0;
}

/* The most memory that mappings of a file of this size can allocate: the object's mount is
 * bounded. */
static uint64_t object_bytes_most(const struct file *file, uint64_t size)
{
	uint64_t whole = align_up(size, 1ULL << atomic_load(&file->object.shift));
	uint64_t limit = system_bytes(atomic_load(&file->volume)->system);

	return whole < limit ? whole : limit;
}

/* A mapping outlives its handle, and a process that was given a descriptor may keep the descriptor
 * after the lease. */
bool host_is_out(struct file *file, int fd)
{
	struct volume *volume = atomic_load(&file->volume);

	if (!atomic_load(&file->object.handed_out))
		return false;
	if (host_is_promised(file) || system_object_is_held(volume->system, fd))
		return true;
	atomic_store(&file->object.handed_out, false);
	/* Another thread may have made a promise in between. */
	if (host_is_promised(file))
		atomic_store(&file->object.handed_out, true);
	return host_is_promised(file);
}

static bool object_is_held(const struct file *file)
{
	return atomic_load(&file->object.handed_out) &&
	       system_object_is_held(atomic_load(&file->volume)->system,
				     atomic_load(&file->object.fd));
}

bool host_has_descriptors(const struct file *file)
{
	return !host_is_promised(file) && object_is_held(file);
}

bool host_is_shared(const struct file *file)
{
	return atomic_load(&file->leases.count) > 1 || atomic_load(&file->object.mapped) > 0 ||
	       object_is_held(file);
}

static bool object_is_limited(const struct file *file, int fd)
{
	return atomic_load(&file->object.bounded) && system_object_limit(fd) < SYSTEM_UNLIMITED;
}

/* The bytes to charge for a file of this size that programs have. */
static uint64_t host_due_out(const struct file *file, int fd, uint64_t size)
{
	uint64_t allocated = object_taken(fd), limit = object_bytes_most(file, size);

	/* The least limit that a tmpfs can have. */
	if (atomic_load(&file->object.bounded) && limit < POOL_BLOCK_MIN)
		limit = POOL_BLOCK_MIN;
	return allocated > limit ? allocated : limit;
}

uint64_t host_due(struct file *file, int fd)
{
	if (!host_is_out(file, fd))
		return object_taken(fd);
	if (object_is_limited(file, fd))
		return system_object_limit(fd);
	return host_due_out(file, fd, object_size(fd));
}

/* For a file that programs have. */
static int64_t host_precharge_growth(struct file *file, const struct file_call *call, uint64_t size)
{
	struct volume *volume = atomic_load(&file->volume);
	int fd = atomic_load(&file->object.fd);
	uint64_t due = host_due_out(file, fd, size);
	int64_t growth = (int64_t)(due - atomic_load(&file->allocated));
	int rc = growth > 0 ? host_charge(file, call, growth) : 0;

	if (rc == 0 && atomic_load(&file->object.bounded)) {
		rc = system_object_raise_limit(volume->system, fd, due);
		if (rc < 0 && growth > 0)
			host_charge(file, call, -growth);
	}
	return rc < 0 ? rc : growth > 0 ? growth : 0;
}

void host_lower_limit(struct file *file, uint64_t size)
{
	int fd = atomic_load(&file->object.fd);

	/* Refused if a program has filled the memory again. Then the charge stays too. */
	if (object_is_limited(file, fd))
		system_object_set_limit(atomic_load(&file->volume)->system, fd,
					host_due_out(file, fd, size));
}

/* Charge before promising: otherwise a concurrent host_update_accounting could add the charge
 * without regard to the quota. */
int host_promise(struct file *file, const struct file_call *call, _Atomic uint32_t *promises)
{
	int fd = atomic_load(&file->object.fd);
	int64_t paid = fd < 0 ? 0 : host_precharge_growth(file, call, object_size(fd));

	if (paid < 0)
		return (int)paid;
	if (promises)
		atomic_fetch_add(promises, 1);
	atomic_store(&file->object.handed_out, true);
	if (fd >= 0)
		host_update_accounting(file, call, paid);
	return 0;
}

int host_charge(struct file *file, const struct file_call *call, int64_t bytes)
{
	struct system_memory *system = atomic_load(&file->volume)->system;
	int rc = file_charge(call, bytes);

	if (rc < 0)
		return rc;
	rc = system_account(system, file_tmpfs(file), bytes);
	if (rc < 0)
		file_charge(call, -bytes);
	return rc;
}

int64_t host_precharge(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	struct volume *volume = atomic_load(&file->volume);
	int fd = atomic_load(&file->object.fd);
	uint64_t page = 1ULL << atomic_load(&file->object.shift);

	from = align_down(from, page);
	to = align_up(to, page);

	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (to <= (uint64_t)st.st_size && host_has_no_holes(file, &st))
		return 0; /* no memory is allocated inside the file */
	if (host_is_out(file, fd)) {
		bool by_size = to < (uint64_t)st.st_size && !object_is_limited(file, fd);

		return host_precharge_growth(file, call, by_size ? (uint64_t)st.st_size : to);
	}
	if (object_is_limited(file, fd))
		system_object_set_limit(volume->system, fd, SYSTEM_UNLIMITED);

	/* A search for holes costs more than assuming a hole, so search only near the limit. */
	int64_t bytes = (int64_t)(to - from);
	int rc = host_charge(file, call, bytes);

	if (rc == -EDQUOT || rc == -ENOSPC) {
		/* The page at the end of the file has memory as a whole. */
		bytes = (int64_t)align_down(object_hole_bytes(fd, from, to), POOL_BLOCK_MIN);
		rc = host_charge(file, call, bytes);
	}
	return rc < 0 ? rc : bytes;
}

void host_update_accounting(struct file *file, const struct file_call *call, int64_t precharged)
{
	int fd = atomic_load(&file->object.fd);
	uint64_t now;

	/* Other writers update the charge at the same time: each thread charges the difference to
	 * the last value, and repeats until the value is current. */
	do {
		now = host_due(file, fd);

		int64_t change = (int64_t)(now - atomic_exchange(&file->allocated, now));

		if (change == 0 && precharged == 0)
			return;
		/* The current value includes memory that other writers precharged and will settle.
		 * The charge made here stays, because the memory is allocated. */
		if (host_charge(file, call, change - precharged) < 0)
			atomic_fetch_sub(&file->allocated, (uint64_t)(change - precharged));
		precharged = 0;
	} while (host_due(file, fd) != now);
}

bool host_is_unbounded(const struct file *file)
{
	const struct volume *volume = file_volume(file);

	return volume->system && atomic_load(&file->object.fd) >= 0 &&
	       !atomic_load(&file->object.bounded) && system_has_own_tmpfs(volume->system);
}
