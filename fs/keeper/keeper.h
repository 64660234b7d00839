/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The keeper: the process that holds the file descriptors of mount, journal and memory for the next
 * daemon, starts the daemon, and starts another when the daemon dies. The keeper makes no request
 * to the mount, which may have no daemon to answer, calls no GPU driver and has a single thread. */
#ifndef FS_KEEPER_KEEPER_H
#define FS_KEEPER_KEEPER_H

#include "fs/keeper/daemonize.h"
#include "fs/options/options.h"

/* Starts daemons for the mount until the mount's end, and returns the exit status. argv is the
 * command line; its last argument is the absolute mountpoint. */
int keeper_run(const struct options *options, int argc, char **argv, struct daemon *daemon);

/* Takes over a running daemon at the other end of ipc, whose keeper has ended, and goes on as
 * keeper_run. argv[1], the option for ipc, is removed from the command line. */
int keeper_adopt(const struct options *options, int argc, char **argv, int ipc);

#endif
