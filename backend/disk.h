/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks of PLACE_DISK: each is a file without a name, so that nothing is left behind when the last
 * process that has the file ends. Only the CPU reads and writes these chunks, and a device that
 * fails does not affect them. For backend/ only, except disk_dir_open and disk_dir_free_bytes. */
#ifndef BACKEND_DISK_H
#define BACKEND_DISK_H

#include <stddef.h>
#include <stdint.h>

struct backend;
struct chunk;
struct copier;
struct device;
struct span;

/* The directory of all chunks made from here on, which the backend keeps open until its end. 0, or
 * -errno after a log line; -ENOTSUP: its file system has no files without names. */
int disk_dir_open(struct backend *backend, const char *path);
/* total: of the file system; free: what is left there for this process. */
struct device_memory;
int disk_dir_memory(const struct backend *backend, struct device_memory *memory);

/* As the functions of struct backend_ops. The room on the disk is allocated with the chunk. */
int disk_chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk);
int disk_chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);
int disk_chunk_export(struct chunk *chunk, int *fd);
void disk_chunk_free(struct chunk *chunk);

/* Complete on return. An error of the disk is the result of the write that met the error: a write
 * returns when the disk has the bytes. */
int disk_write(const struct span *to, uint64_t offset, const void *from, size_t bytes);
int disk_read(const struct span *from, uint64_t offset, void *to, size_t bytes);
int disk_zero(const struct span *to, uint64_t offset, uint64_t bytes);

/* The size of a copier's buffer for copies between a disk and other memory. */
#define DISK_BUFFER_BYTES (4ULL << 20)

#endif
