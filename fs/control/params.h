/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What is written to .gpumem/params: "NAME VALUE" lines that change limits, logging and the trace
 * while the mount is in use. A write is taken as a whole or not at all. */
#ifndef FS_CONTROL_PARAMS_H
#define FS_CONTROL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "common/log.h"
#include "fs/core/options.h"

/* More than this in one write is refused. */
#define PARAMS_BYTES_MAX 4096

/* A limit of one GPU. An amount that is not given stands for no bound. */
struct params_limit {
	bool changes;
	struct amount amount;
};

struct params {
	struct params_limit size[BACKEND_DEVICES_MAX], reserve[BACKEND_DEVICES_MAX]; /* by GPU */
	bool level_changes;
	enum log_level level;
	bool trace_changes, trace;
};

/* gpus: a bit for each GPU that there is. 0, or -EINVAL after one line in the log that names the
 * malformed line; *params is then as it was. */
int params_parse(const char *text, size_t bytes, uint64_t gpus, struct params *params);

struct fs;

/* Parses and applies. 0, or -EINVAL or -ENOMEM, and nothing has changed. */
int control_params_set(struct fs *fs, const char *text, size_t bytes);

#endif
