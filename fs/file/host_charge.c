/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What files of host/ are charged for: their blocks, or, while programs may store past the daemon,
 * their size, for nothing tells when a store takes a page. */
#include <errno.h>
#include <sys/stat.h>

#include "fs/file/host.h"

static bool host_is_promised(const struct file *file)
{
	return atomic_load(&file->leases) > 0 || atomic_load(&file->mapped) > 0;
}

/* What mappings of so long a file can take at most: the object's mount is bounded. */
static uint64_t object_bytes_most(const struct file *file, uint64_t size)
{
	uint64_t whole = align_up(size, 1ULL << atomic_load(&file->object_shift));
	uint64_t most = system_bytes(atomic_load(&file->volume)->system);

	return whole < most ? whole : most;
}

/* A mapping outlives its handle, and whoever was given a descriptor may keep it after the lease. */
bool host_is_out(struct file *file, int fd)
{
	struct volume *volume = atomic_load(&file->volume);

	if (!atomic_load(&file->handed_out))
		return false;
	if (host_is_promised(file) || system_object_is_held(volume->system, fd))
		return true;
	atomic_store(&file->handed_out, false);
	/* It may have been given out again in between. */
	if (host_is_promised(file))
		atomic_store(&file->handed_out, true);
	return host_is_promised(file);
}

uint64_t host_due(struct file *file, int fd)
{
	uint64_t allocated = host_object_taken(fd), most;

	if (!host_is_out(file, fd))
		return allocated;
	most = object_bytes_most(file, host_object_size(fd));
	return allocated > most ? allocated : most;
}

/* Of a file that is charged by its size. */
static int64_t host_precharge_growth(struct file *file, const struct file_call *call, uint64_t size)
{
	int64_t more = (int64_t)(object_bytes_most(file, size) - atomic_load(&file->allocated));
	int rc = more > 0 ? host_charge(atomic_load(&file->volume), call, more) : 0;

	return rc < 0 ? rc : more > 0 ? more : 0;
}

/* Paid before it is promised: a close that settles at this moment must not charge without regard to
 * the quota what is then refused. */
int host_promise(struct file *file, const struct file_call *call, _Atomic uint32_t *promises)
{
	int fd = atomic_load(&file->fd);
	int64_t paid = fd < 0 ? 0 : host_precharge_growth(file, call, host_object_size(fd));

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

static uint64_t object_hole_bytes(int fd, uint64_t from, uint64_t to)
{
	struct file_run run;
	uint64_t bytes = 0;

	for (; host_next_run(fd, from, to, &run); from = run.to)
		bytes += run.data ? 0 : run.to - run.from;
	return bytes;
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
		return 0; /* nothing can be taken inside it */
	if (host_is_out(file, fd))
		return host_precharge_growth(file, call,
					     to > (uint64_t)st.st_size ? to : (uint64_t)st.st_size);

	/* To look for holes costs more than to assume them, so only where the limit is near. */
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

	/* Other writers settle at the same time: each charges what it adds to the last figure, and
	 * goes on until that is the present one. */
	do {
		now = host_due(file, fd);

		int64_t more = (int64_t)(now - atomic_exchange(&file->allocated, now));

		if (more == 0 && precharged == 0)
			return;
		/* What other writers have precharged is in now as well: it is theirs to settle.
		 * What was paid here is not given back, for the memory is there. */
		if (host_charge(volume, call, more - precharged) < 0)
			atomic_fetch_sub(&file->allocated, (uint64_t)(more - precharged));
		precharged = 0;
	} while (host_due(file, fd) != now);
}
