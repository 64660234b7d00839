/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/hash.h"

#include <sys/random.h>

uint64_t hash_seed;

void hash_seed_init(void)
{
	if (getrandom(&hash_seed, sizeof(hash_seed), 0) != sizeof(hash_seed))
		hash_seed = (uint64_t)(uintptr_t)&hash_seed;
}
