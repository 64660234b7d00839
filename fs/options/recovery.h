/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Decides what recovery=auto means on this machine: recovery=transparent where possible at no cost,
 * else recovery=off. */
#ifndef FS_OPTIONS_RECOVERY_H
#define FS_OPTIONS_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/options/options.h"

struct recovery_facts {
	bool root;
	const char *kernel;  /* the kernel's version */
	uint64_t open_files; /* the limit for a process */
};

/* Replaces RECOVERY_AUTO by the decision and records the reason. Other values stay as given. */
void recovery_decide_by(const struct recovery_facts *facts, struct options *options);
/* As recovery_decide_by, with the facts of this process and machine. */
void recovery_decide(struct options *options);

#endif
