/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of the daemon for memory: the backend, and the volumes with their places. */
#ifndef FS_DAEMON_VOLUMES_H
#define FS_DAEMON_VOLUMES_H

struct fs;

/* The backend that the options name, or that has the files of an earlier daemon: 0 or -errno. */
int backend_part_open(struct fs *fs);
void backend_part_close(struct fs *fs);
/* gpuN/ and host/, with the places of spill=: 0 or -errno after a line in the log. */
int volumes_open(struct fs *fs);
void volumes_close(struct fs *fs);

#endif
