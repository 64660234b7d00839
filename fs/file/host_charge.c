/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The charge of files in host/: the blocks of the object, or the file's size while programs may
 * store without the daemon, because the kernel does not report when a store allocates a page. */
#include <errno.h>
#include <sys/stat.h>

#include "fs/file/host.h"

static bool host_is_promised(const struct file *file)
{
	return atomic_load(&file->leases) > 0 || atomic_load(&file->mapped) > 0;
}

/* The most memory that mappings of a file of this size can allocate: the object's mount is
 * bounded. */
static uint64_t object_bytes_most(const struct file *file, uint64_t size)
{
	uint64_t whole = align_up(size, 1ULL << atomic_load(&file->object_shift));
	uint64_t most = system_bytes(atomic_load(&file->volume)->system);

	return whole < most ? whole : most;
}

/* A mapping outlives its handle, and a process that was given a descriptor may keep the descriptor
 * after the lease. */
bool host_is_out(struct file *file, int fd)
{
	struct volume *volume = atomic_load(&file->volume);

	if (!atomic_load(&file->handed_out))
		return false;
	if (host_is_promised(file) || system_object_is_held(volume->system, fd))
		return true;
	atomic_store(&file->handed_out, false);
	/* Another thread may have made a promise in between. */
	if (host_is_promised(file))
		atomic_store(&file->handed_out, true);
	return host_is_promised(file);
}

uint64_t host_due(struct file *file, int fd)
{
	uint64_t allocated = object_taken(fd), most;

	if (!host_is_out(file, fd))
		return allocated;
	most = object_bytes_most(file, object_size(fd));
	return allocated > most ? allocated : most;
}

/* For a file that is charged by its size. */
static int64_t host_precharge_growth(struct file *file, const struct file_call *call, uint64_t size)
{
	int64_t more = (int64_t)(object_bytes_most(file, size) - atomic_load(&file->allocated));
	int rc = more > 0 ? host_charge(atomic_load(&file->volume), call, more) : 0;

	return rc < 0 ? rc : more > 0 ? more : 0;
}

/* Charge before promising: otherwise a concurrent host_update_accounting could add the charge
 * without regard to the quota. */
int host_promise(struct file *file, const struct file_call *call, _Atomic uint32_t *promises)
{
	int fd = atomic_load(&file->fd);
	int64_t paid = fd < 0 ? 0 : host_precharge_growth(file, call, object_size(fd));

	if (paid < 0)
		return (int)paid;
	if (promises)
		atomic_fetch_add(promises, 1);
	atomic_store(&file->handed_out, true);
	if (fd >= 0)
		host_update_accounting(file, call, paid);
	return 0;
}

int host_charge(struct volume *volume, const struct file_call *call, int64_t bytes)
{
	int rc = system_account(volume->system, bytes);

	if (rc < 0)
		return rc;
	rc = file_charge(call, bytes);
	if (rc < 0)
		system_account(volume->system, -bytes);
	return rc;
}

int64_t host_precharge(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	struct volume *volume = atomic_load(&file->volume);
	int fd = atomic_load(&file->fd);
	uint64_t page = 1ULL << atomic_load(&file->object_shift);

	from = align_down(from, page);
	to = align_up(to, page);

	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (to <= (uint64_t)st.st_size && host_has_no_holes(file, &st))
		return 0; /* no memory is allocated inside the file */
	if (host_is_out(file, fd))
		return host_precharge_growth(file, call,
					     to > (uint64_t)st.st_size ? to : (uint64_t)st.st_size);

	/* A search for holes costs more than assuming a hole, so search only near the limit. */
	int64_t bytes = (int64_t)(to - from);
	int rc = host_charge(volume, call, bytes);

	if (rc == -EDQUOT || rc == -ENOSPC) {
		bytes = (int64_t)object_hole_bytes(fd, from, to);
		rc = host_charge(volume, call, bytes);
	}
	return rc < 0 ? rc : bytes;
}

void host_update_accounting(struct file *file, const struct file_call *call, int64_t precharged)
{
	struct volume *volume = atomic_load(&file->volume);
	int fd = atomic_load(&file->fd);
	uint64_t now;

	/* Other writers update the charge at the same time: each thread charges the difference to
	 * the last value, and repeats until the value is current. */
	do {
		now = host_due(file, fd);

		int64_t more = (int64_t)(now - atomic_exchange(&file->allocated, now));

		if (more == 0 && precharged == 0)
			return;
		/* The current value includes memory that other writers precharged and will settle.
		 * The charge made here stays, because the memory is allocated. */
		if (host_charge(volume, call, more - precharged) < 0)
			atomic_fetch_sub(&file->allocated, (uint64_t)(more - precharged));
		precharged = 0;
	} while (host_due(file, fd) != now);
}
