/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/journal_holder.h"

static int hold(void *of, uint64_t id, int fd)
{
	return keep_hold(of, id, fd);
}

static void drop(void *of, uint64_t id)
{
	keep_drop(of, id);
}

static int take(void *of, uint64_t id)
{
	return keep_take(of, id);
}

static int walk(void *of, int (*each)(uint64_t id, int fd, void *arg), void *arg)
{
	return keep_each(of, each, arg);
}

struct journal_holder keep_holder(struct keep *keep)
{
	return (struct journal_holder){
	    .of = keep, .hold = hold, .drop = drop, .take = take, .each = walk};
}
