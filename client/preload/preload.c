/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem-preload.so: lets unmodified programs use the file's memory directly. This file has the
 * start and the end of the process, and its forks. */
#include <stdatomic.h>

#include "client/core/process.h"
#include "client/preload/copy/source.h"
#include "client/preload/core/calls.h"
#include "client/preload/core/fill.h"
#include "client/preload/mapping.h"
#include "client/preload/readers.h"
#include "client/preload/recall.h"
#include "client/preload/slot.h"
#include "client/preload/stage.h"
#include "client/preload/window.h"

static _Thread_local bool forked_inside __attribute__((tls_model("initial-exec")));

/* A signal's handler may fork while this thread holds locks that the handlers of fork would wait
 * for: the child of such a fork may only call exec. */
static void process_before_fork(void)
{
	forked_inside = own_inside++ > 0;
	if (forked_inside)
		return;
	source_before_fork();
	mapping_before_fork();
	slots_lock();
}

static void process_in_parent(void)
{
	if (!forked_inside) {
		slots_unlock();
		mapping_after_fork();
		source_after_fork();
	}
	own_inside--;
}

static void process_in_child(void)
{
	if (!forked_inside) {
		own_process_is_this();
		stats_forked();
		slots_forked();
		stage_forked();
		fill_forked();
		recall_forked();
		mapping_forked();
		source_forked();
	}
	own_inside--;
}

/* Ending the leases lets the daemon free memory that was allocated ahead of a file's end, once the
 * file is closed. */
static void process_end(void)
{
	static atomic_bool ended;

	if (own_inside || !own_process() || atomic_exchange(&ended, true))
		return;
	INSIDE();
	slots_yield(NULL);
	stats_print();
}

static const struct client_fork_calls fork_calls = {
    .before = process_before_fork,
    .in_parent = process_in_parent,
    .in_child = process_in_child,
};

__attribute__((constructor)) static void process_start(void)
{
	real_need();
	INSIDE();
	own_process_is_this();
	slots_start();
	mapping_start();
	source_start();
	window_start();
	readers_start();
	stats_start();
	client_fork_surround(&fork_calls);
}

__attribute__((destructor)) static void process_finish(void)
{
	process_end();
}

CALL("_exit", void, call__exit, int status)
{
	real_need();
	process_end();
	real._exit(status);
	__builtin_unreachable();
}
CALL_ALSO("_Exit", "_exit")
