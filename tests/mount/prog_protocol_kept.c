/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* mount: recovery=transparent
 * kills: no
 * backends: host standin cuda
 * The sharing protocol where a daemon can be replaced: the next daemon must know all answers, so
 * that nothing is leased over an ioctl, and a client is told once and for all. */
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
