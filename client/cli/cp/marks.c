/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the ends, marks and sums of a file's parts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cp/cp.h"

uint64_t cp_part_end(const struct cp_file *file, uint64_t part, uint64_t bytes)
{
	uint64_t end = (part + 1) * bytes;

	return end < file->size ? end : file->size;
}

uint64_t cp_part_bytes(const struct cp_file *file, uint64_t part)
{
	return cp_part_end(file, part, file->part_bytes) - part * file->part_bytes;
}

int cp_marks_reserve(struct cp_file *file, uint64_t parts, bool sums)
{
	uint64_t room = file->marks_room ? file->marks_room : 64;

	if (parts <= file->marks_room)
		return 0;
	while (room < parts)
		room *= 2;
	_Atomic unsigned char *marks = realloc(file->marks, room);

	if (!marks)
		return ENOMEM;
	memset((void *)(marks + file->marks_room), CP_TODO, room - file->marks_room);
	file->marks = marks;
	if (sums) {
		uint64_t *new_sums = reallocarray(file->sums, room, sizeof(*new_sums));

		if (!new_sums)
			return ENOMEM;
		file->sums = new_sums;
	}
	file->marks_room = room;
	return 0;
}

uint64_t cp_marks_prefix(const struct cp_file *file)
{
	uint64_t part = 0, parts = atomic_load(&file->parts);

	while (part < parts && part < file->marks_room &&
	       atomic_load(&file->marks[part]) != CP_TODO)
		part++;
	return part * file->part_bytes < file->size ? part * file->part_bytes : file->size;
}
