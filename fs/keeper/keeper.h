/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The keeper: a process that holds the file descriptors which must outlive a daemon (the mount's,
 * the journal's, the memory's), starts the daemon, and another one when it dies. It never touches
 * the mount, which may have nobody to answer, calls no driver and has no threads. */
#ifndef FS_KEEPER_KEEPER_H
#define FS_KEEPER_KEEPER_H

#include "common/daemonize.h"
#include "fs/core/options.h"

/* Serves the mount by a daemon of its own, from here to the mount's end: the exit status. argv is
 * the command line, with the mountpoint, absolute, last. */
int keeper_run(const struct options *options, int argc, char **argv, struct daemon *daemon);

/* The same with a daemon that runs already and had a keeper before, at the other end of the line;
 * argv[1] is taken out for it. */
int keeper_adopt(const struct options *options, int argc, char **argv, int ipc);

#endif
