/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared-memory objects: the descriptors that hold the bytes of files in host/. Programs may write
 * to an object without the daemon (passthrough, mappings), so nothing is cached. Functions return 0
 * or -errno. */
#ifndef FS_OBJECT_OBJECT_H
#define FS_OBJECT_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

/* A range of a file that is all data, or a hole. */
struct data_run {
	uint64_t from, to;
	bool data;
};

/* What stat(2) says of an object; all 0 for a descriptor without an object. */
struct object_stat {
	uint64_t size;
	uint64_t allocated; /* bytes of memory */
	uint64_t mtime;	    /* nanoseconds */
};
struct object_stat object_stat(int fd);
uint64_t object_size(int fd);
uint64_t object_taken(int fd);
uint64_t object_mtime(int fd);

/* The run that begins at offset, at most to end; false at the end. fd < 0: all is a hole. */
bool object_next_run(int fd, uint64_t offset, uint64_t end, struct data_run *run);
uint64_t object_hole_bytes(int fd, uint64_t from, uint64_t to);

/* As fallocate(2). */
int object_allocate(int fd, int mode, uint64_t from, uint64_t to);
int object_punch(int fd, uint64_t from, uint64_t to);
/* Zeroes the bytes behind the end in the last page of 1 << shift bytes: programs store there
 * through mappings, and tmpfs shows the bytes when the object grows. */
int object_zero_end(int fd, uint8_t shift);
/* tmpfs has no FALLOC_FL_ZERO_RANGE. Pages that fallocate made and no write touched count as holes
 * here. */
int object_zero(int fd, uint64_t from, uint64_t to);
/* Adds the bytes copied to *written, also on failure. If a program shortens the source meanwhile,
 * the copy ends early without an error. */
int object_copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t bytes,
		uint64_t *written);

#endif
