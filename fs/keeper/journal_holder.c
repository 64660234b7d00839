/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/journal_holder.h"

static int hold(void *of, uint64_t id, int fd)
{
	return fdstore_hold(of, id, fd);
}

static void drop(void *of, uint64_t id)
{
	fdstore_drop(of, id);
}

static int take(void *of, uint64_t id)
{
	return fdstore_take(of, id);
}

static int walk(void *of, int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	return fdstore_each(of, each, arg);
}

struct journal_holder fdstore_journal_holder(struct fdstore *fdstore)
{
	return (struct journal_holder){
	    .of = fdstore, .hold = hold, .drop = drop, .take = take, .each = walk};
}
