/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Child processes: daemons with their mounts, and tools. */
#ifndef TESTS_BENCH_PROCESS_H
#define TESTS_BENCH_PROCESS_H

#include <sys/types.h>

/* Starts a daemon that mounts on mountpoint and stays in the foreground; returns when the mount is
 * there: its pid, or -errno (-ECHILD: it ended at once; it said why). It ends with this process,
 * whatever becomes of it. Before CUDA is initialised. */
pid_t process_mount(char *const arguments[], const char *mountpoint);

/* Unmounts by asking the daemon to end, and waits. */
void process_unmount(pid_t daemon, const char *mountpoint);

/* Runs a program of PATH with its output going to the file out (NULL: /dev/null) and waits: the
 * exit status, or -errno. */
int process_run(char *const arguments[], const char *out);

/* Resident memory of a process and of its children, as a keeper's daemon is one, in bytes, with
 * what they share (memfds); 0: not known. */
unsigned long long process_memory(pid_t pid);

#endif
