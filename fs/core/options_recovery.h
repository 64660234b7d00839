/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* recovery=auto: transparent where it is possible and costs nobody anything. */
#ifndef FS_CORE_OPTIONS_RECOVERY_H
#define FS_CORE_OPTIONS_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/core/options.h"

struct recovery_facts {
	bool root;
	const char *kernel;  /* its version */
	uint64_t open_files; /* at most, of a process */
};

/* Replaces RECOVERY_AUTO by what it means, and notes why. All other values stay. */
void recovery_decide_by(const struct recovery_facts *facts, struct options *options);
/* The same by the facts of this process and machine. */
void recovery_decide(struct options *options);

#endif
