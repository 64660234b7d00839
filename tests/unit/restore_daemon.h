/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The setup and teardown of each test: a daemon with a journal, and the held descriptors of the
 * daemon. */
#ifndef TESTS_UNIT_RESTORE_DAEMON_H
#define TESTS_UNIT_RESTORE_DAEMON_H

#include "tests/unit/journal_fixture.h"
#include "tests/unit/unit.h"

static struct held held;
static struct fdstore_ops fdstore;

static void up(void)
{
	held_init(&held);
	fdstore = held_ops(&held);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
}

static void down(void)
{
	daemon_down(&fixture);
	ck_assert_uint_eq(held.n, 0);
	held_free(&held);
}

#endif
