/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by the stand-ins beside libcuda.so.1: access to the state of the stand-in libcuda.so.1. */
#ifndef DRIVER_OTHER_H
#define DRIVER_OTHER_H

#include <stdbool.h>

#include "tests/driver/helpers.h"

/* The helpers of the stand-in libcuda.so.1 of the process. The first call loads the library if
 * necessary. A libcuda.so.1 that is no stand-in ends the process. */
struct helpers {
	int (*gpu_info)(unsigned gpu, struct standin_gpu *info);
	int (*bar_take)(unsigned gpu, int64_t bytes);
	int (*range_fd)(uint64_t address, uint64_t size, uint64_t *offset, unsigned *gpu);
	int (*reopen)(int fd, unsigned *gpu, uint64_t *size);
};
const struct helpers *other_helpers(void);
unsigned other_gpus(void);
bool other_setting_is(const char *name, const char *value);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or "MIG-..." for a MIG instance. */
#define UUID_TEXT_MAX 41
void other_uuid_text(unsigned gpu, const uint8_t uuid[16], char text[UUID_TEXT_MAX]);

/* Appends a line to the leak check's file, at the end of the process. */
void other_leak_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
