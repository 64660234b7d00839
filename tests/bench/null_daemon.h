/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The null FUSE daemon: files in plain memory, a single flat directory, the least work for a
 * request. The daemon runs on gpumemfs's own session, transport and threads, whose lower bound the
 * daemon measures. */
#ifndef TESTS_BENCH_NULL_DAEMON_H
#define TESTS_BENCH_NULL_DAEMON_H

/* Serves the mount until it is unmounted; returns the exit status. Takes gpumemfs's arguments. */
int null_daemon_main(int argc, char **argv);

#endif
