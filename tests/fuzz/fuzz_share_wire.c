/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parser of what comes over the sharing socket. */
#include <stdlib.h>
#include <string.h>

#include "fs/share/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct share_request request;
	/* A copy of exactly this size, so that reading past it is seen. */
	void *packet = malloc(size ? size : 1);

	if (!packet)
		return 0;
	memcpy(packet, data, size);
	if (share_request_parse(packet, size, &request) == 0 &&
	    (size > SHARE_REQUEST_MAX || request.first_chunk > UINT32_MAX))
		abort();
	free(packet);
	return 0;
}
