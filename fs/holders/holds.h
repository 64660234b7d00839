/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which processes received descriptors of chunks, and the charges of chunks that files gave up.
 *
 * A process can keep the memory after its lease and the file have ended, and nothing tells that the
 * process has given the memory up, but its end. So a chunk that a file gives up stays charged to
 * the owner, to the directory's quotas and to the volume as long as a process lives that had
 * received descriptors of the file's chunks before. The memory itself goes back to the driver, or
 * waits for the next file of the owner: on the shelf are chunks that only processes of the owner
 * received, and whose leases all ended by a release.
 *
 * A receiver is the process that made a connection, by its pidfd. The kernel may not know this
 * process any more: then the receiver ends with the connection. All is stored for the next daemon
 * before a descriptor is sent and before memory is freed (held_store.h), so that a crash leaves too
 * large a charge at worst. */
#ifndef FS_HOLDERS_HOLDS_H
#define FS_HOLDERS_HOLDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fs;
struct inode;
struct receiver;
struct volume;

/* Reads what an earlier daemon stored: 0 or -errno. */
int holds_open(struct fs *fs);
/* Ends all charges in this daemon, before the tree is destroyed. */
void holds_end(struct fs *fs);
void holds_close(struct fs *fs);
/* For recovery, once the files have their chunks: charges for the chunks that no file uses. 0 or
 * -ENOMEM. */
int holds_restore(struct fs *fs, bool (*is_used)(void *context, uint64_t chunk), void *context);

/* The process at the other end of a connection: 0, -EMFILE (the limit of the user), -ENOSPC or
 * -ENOMEM. The caller gives the receiver back with the end of the connection. */
int receiver_get(struct fs *fs, int connection, pid_t pid, uid_t uid, struct receiver **receiver);
void receiver_put(struct fs *fs, struct receiver *receiver);
/* Before descriptors of the file's chunks are sent: 0, -EMFILE, -ENOSPC or -ENOMEM. */
int receiver_note(struct fs *fs, struct receiver *receiver, uint64_t ino);

/* Polls POLLIN when a process has ended; then call holds_collect, under no lock. */
int holds_fd(const struct fs *fs);
void holds_collect(struct fs *fs);

/* Bytes of chunks on the shelf for the next file of the user in this volume. */
uint64_t holds_shelved(struct fs *fs, uid_t uid, const struct volume *volume);

#endif
