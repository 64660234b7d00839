/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The bytes of a single write to .gpumem/params: the daemon accepts all of the bytes, or refuses
 * the write and changes nothing. An accepted write names only existing GPUs and sensible amounts.
 */
#include <stdlib.h>
#include <string.h>

#include "fs/control/params.h"

static params_gpus gpus = {[0] = "gpu0", [3] = "gpu3", [63] = "gpu0.mig63"};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void require_amount(const struct params_limit *limit, uint64_t least)
{
	if (!limit->changes || !limit->amount.given)
		return;
	require(limit->amount.value >= least);
	require(!limit->amount.percent || limit->amount.value <= 100);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	/* Log lines are formatted, then discarded. */
	log_setup(LOG_LEVEL_DEBUG, 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct params before;
	struct params after = before;

	if (params_parse((const char *)data, size, gpus, &after) < 0) {
		require(memcmp(&after, &before, sizeof(after)) == 0);
		return 0;
	}
	require(size <= PARAMS_BYTES_MAX);
	for (unsigned gpu = 0; gpu < BACKEND_DEVICES_MAX; gpu++) {
		require(gpus[gpu] || !(after.size[gpu].changes || after.reserve[gpu].changes));
		require_amount(&after.size[gpu], 1);
		require_amount(&after.reserve[gpu], 0);
		require(!after.reserve[gpu].changes || after.reserve[gpu].amount.given);
	}
	require(!after.level_changes || log_level_name(after.level)[0] != 'u');
	return 0;
}
