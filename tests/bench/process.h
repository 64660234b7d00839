/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Child processes: daemons with their mounts, and tools. */
#ifndef TESTS_BENCH_PROCESS_H
#define TESTS_BENCH_PROCESS_H

#include <sys/types.h>

/* Starts a daemon that mounts on mountpoint and stays in the foreground. Returns when the mount is
 * there: the daemon's pid, or -errno (-ECHILD: the daemon ended at once and printed the reason).
 * The daemon ends with this process, also when this process is killed. Before CUDA is initialised.
 */
pid_t process_mount(char *const arguments[], const char *mountpoint);

/* Unmounts by terminating the daemon, and waits for the daemon's end. */
void process_unmount(pid_t daemon, const char *mountpoint);

/* Runs a program from PATH with its output redirected to the file out (NULL: /dev/null) and waits.
 * Returns the exit status, or -errno. */
int process_run(char *const arguments[], const char *out);

/* What a process and its children (a daemon is the child of its keeper) use; 0: not known. */
struct process_use {
	unsigned long long memory; /* resident bytes, including shared memory (memfds) */
	double seconds;		   /* of processors, from the start of each */
};
struct process_use process_use(pid_t pid);

#endif
