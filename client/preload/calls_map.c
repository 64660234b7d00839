/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* mmap and calls on mappings. */
#include <stdarg.h>
#include <sys/mman.h>

#include "client/preload/copy/source.h"
#include "client/preload/core/calls.h"
#include "client/preload/core/fill.h"
#include "client/preload/mapping.h"

static void addresses_change(void *at, size_t bytes)
{
	source_forget(at, bytes);
	fill_end(at, bytes);
}

CALL("mmap64", void *, call_mmap, void *at, size_t bytes, int protection, int flags, int fd,
     off_t offset)
{
	const struct mapping_request request = {at, bytes, protection, flags, fd, offset};
	void *address;

	real_need();
	if (flags & MAP_FIXED)
		addresses_change(at, bytes);
	enum mapping_by maker = mapping_map(&request, &address);
	if (maker == MAPPING_SERVED) {
		source_forget(address, bytes);
		return address;
	}
	bool fills = maker != MAPPING_BY_KERNEL && flags & MAP_POPULATE;
	int kernel_flags = fills ? flags & ~MAP_POPULATE : flags;
	if (maker != MAPPING_CACHED && flags & MAP_FIXED && mapping_touches(at, bytes))
		address = mapping_map_over(&request, kernel_flags);
	else if (maker != MAPPING_CACHED)
		address = real.mmap64(at, bytes, protection, kernel_flags, fd, offset);
	source_forget(address, bytes);
	mapping_was_left(&request, maker, address);
	if (fills && address != MAP_FAILED)
		fill_begin(address, bytes);
	return address;
}
CALL_ALSO("mmap", "mmap64")

CALL("munmap", int, call_munmap, void *at, size_t bytes)
{
	real_need();
	addresses_change(at, bytes);
	return mapping_touches(at, bytes) ? mapping_unmap(at, bytes) : real.munmap(at, bytes);
}

CALL("mprotect", int, call_mprotect, void *at, size_t bytes, int protection)
{
	real_need();
	if (protection & PROT_WRITE)
		source_stores(at, bytes);
	return mapping_touches(at, bytes) ? mapping_protect(at, bytes, protection)
					  : real.mprotect(at, bytes, protection);
}

CALL("msync", int, call_msync, void *at, size_t bytes, int flags)
{
	real_need();
	return mapping_touches(at, bytes) ? mapping_sync(at, bytes, flags)
					  : real.msync(at, bytes, flags);
}

CALL("mremap", void *, call_mremap, void *old, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	void *target = NULL, *address;
	va_list arguments;

	va_start(arguments, flags);
	if (flags & ~MREMAP_MAYMOVE)
		target = va_arg(arguments, void *);
	va_end(arguments);
	real_need();
	addresses_change(old, old_bytes);
	if (flags & MREMAP_FIXED)
		addresses_change(target, new_bytes);
	const struct mapping_remap remap = {old, old_bytes, new_bytes, flags, target};
	if ((mapping_touches(old, old_bytes) ||
	     (flags & MREMAP_FIXED && mapping_touches(target, new_bytes))) &&
	    mapping_remap(&remap, &address))
		return address;
	return real.mremap(old, old_bytes, new_bytes, flags, target);
}
