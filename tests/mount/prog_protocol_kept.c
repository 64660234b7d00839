/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* mount: recovery=transparent
 * kills: no
 * backends: host standin cuda
 * The sharing protocol in a mount whose daemon can be replaced: the next daemon has to know every
 * answer that was sent. A lease over an ioctl would not be known, so the daemon refuses the ioctl
 * with EOPNOTSUPP, and a client does not ask again. */
#include "tests/mount/protocol.h"

static void tokens_are_the_way(void)
{
	int fd = filled_file("file", 0600), connection = dial();
	struct gpumem_lease_ask ask = key_of(connection);
	struct gpumem_token token = token_of(fd);

	FAILS(EOPNOTSUPP, ioctl(fd, GPUMEM_IOC_LEASE, &ask));
	EQUAL(leases_of(fd), 0);
	show(connection, &token);
	struct answer answer = hear_layout(connection);

	drop(&answer);
	EQUAL(leases_of(fd), 1);
	OK(close(connection));
	expect_leases(fd, 0);
}

PROG(TEST(tokens_are_the_way))
