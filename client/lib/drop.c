/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/drop.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/core/error.h"
#include "common/protocol.h"

int client_drop_leases(int fd, uint64_t *leases)
{
	struct gpumem_dropped dropped;

	if (ioctl(fd, GPUMEM_IOC_DROP, &dropped) == 0) {
		*leases = dropped.leases;
		return 0;
	}
	if (errno == EPERM)
		return client_fail(EPERM, "only the file's owner and root end leases of others");
	if (errno == ENOTTY)
		return client_fail(ENOTSUP, "the file is not on gpumemfs, or not shared there");
	return client_fail(errno, "%s", strerror(errno));
}
