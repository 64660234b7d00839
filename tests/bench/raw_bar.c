/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stores and streaming loads through the BAR or the simulated BAR. */
#include "backend/stream/stream.h"
#include "tests/bench/raw.h"

ssize_t raw_bar_read(struct target *target, unsigned lane, void *to, size_t bytes, uint64_t offset)
{
	(void)lane;
	stream_load(to, target->raw->bar + offset, bytes);
	return (ssize_t)bytes;
}

ssize_t raw_bar_write(struct target *target, unsigned lane, const void *from, size_t bytes,
		      uint64_t offset)
{
	(void)lane;
	stream_store(target->raw->bar + offset, from, bytes);
	stream_fence();
	return (ssize_t)bytes;
}
