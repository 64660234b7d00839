/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Parses and applies the text that a user writes to .gpumem/params: lines "NAME VALUE" that change
 * limits, logging and the trace of a running mount. A write is applied as a whole or not at all. */
#ifndef FS_CONTROL_PARAMS_H
#define FS_CONTROL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "common/log.h"
#include "fs/options/options.h"

/* A longer write is refused. */
#define PARAMS_BYTES_MAX 4096

/* A limit of a GPU. An amount with given == false means no bound. */
struct params_limit {
	bool changes;
	struct amount amount;
};

struct params {
	struct params_limit size[BACKEND_DEVICES_MAX], reserve[BACKEND_DEVICES_MAX]; /* by slot */
	/* Not a limit but done at once: files leave until so much is free. */
	struct params_limit evict[BACKEND_DEVICES_MAX];
	bool level_changes;
	enum log_level level;
	bool trace_changes, trace;
};

/* The names of the mount's GPUs, by slot; NULL: there is no such GPU. */
typedef const char *params_gpus[BACKEND_DEVICES_MAX];

/* 0, or -EINVAL after a line in the log that names the malformed line; *params is then unchanged.
 */
int params_parse(const char *text, size_t bytes, params_gpus gpus, struct params *params);

struct fs;

/* Parses and applies the text. 0, or -EINVAL or -ENOMEM without a change; -ENOSPC or -ENOTSUP: the
 * rest was applied, and files could not leave a GPU. */
int control_params_set(struct fs *fs, const char *text, size_t bytes);

#endif
