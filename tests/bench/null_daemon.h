/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Daemons with null_operations: the time of a request there is FUSE's part of the time of a request
 * to gpumemfs. Each serves its mount until it is unmounted, and returns the exit status. */
#ifndef TESTS_BENCH_NULL_DAEMON_H
#define TESTS_BENCH_NULL_DAEMON_H

#define STOCK_THREADS_MAX 256

/* On gpumemfs's own session, transport and threads. Takes gpumemfs's arguments. */
int null_daemon_main(int argc, char **argv);

/* On libfuse's own loop, with a /dev/fuse for each thread and libfuse's defaults otherwise. Takes
 * THREADS (the most of them) OPTIONS (of the mount) MOUNTPOINT. */
int stock_daemon_main(int argc, char **argv);

#endif
