/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parser of packets from the sharing socket. */
#include <stdlib.h>
#include <string.h>

#include "fs/share/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct share_request request;
	struct gpumem_msg_pieces pieces;
	/* The copy has exactly the packet's size, so that the sanitizer detects a read past the
	 * end. */
	void *packet = malloc(size ? size : 1);

	if (!packet)
		return 0;
	memcpy(packet, data, size);
	if (share_request_parse(packet, size, &request) == 0 &&
	    (size > SHARE_REQUEST_MAX || request.first_chunk > UINT32_MAX || request.error < 0 ||
	     request.flags > (GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_MEMORY | GPUMEM_LISTEN_RECALL |
			      GPUMEM_LISTEN_END)))
		abort();
	if (share_pieces_parse(packet, size, &pieces) == 0 &&
	    (pieces.n_pieces > GPUMEM_FDS_MAX ||
	     size != sizeof(pieces) + pieces.n_pieces * sizeof(uint64_t)))
		abort();
	free(packet);
	return 0;
}
