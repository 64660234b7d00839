/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sockets in a directory that only one user can write: /run/gpumemfs for root, else
 * $XDG_RUNTIME_DIR/gpumemfs, /run/user/UID/gpumemfs or /tmp/gpumemfs-UID. A socket found there was
 * made by that user, and no other user can take its name first. */
#ifndef COMMON_RUNTIME_DIR_H
#define COMMON_RUNTIME_DIR_H

#include <stdbool.h>
#include <sys/types.h>

struct ucred;

#define RUNTIME_PATH_MAX   1024
#define RUNTIME_NAME_MAX   40
#define RUNTIME_REASON_MAX (RUNTIME_PATH_MAX + 200)

/* The n-th directory in which to look for a user's sockets; false past the last one. */
bool runtime_dir_path(uid_t owner, unsigned n, char path[RUNTIME_PATH_MAX]);

/* The directory's descriptor (the caller's), or -ENOENT where there is none, or another -errno with
 * a reason that names the directory: it belongs to another user, others may write to it, it is a
 * symbolic link. */
int runtime_dir_open(const char *path, uid_t owner, char reason[RUNTIME_REASON_MAX]);

/* A listening SOCK_SEQPACKET socket in the directory of the process's own user. */
struct runtime_socket {
	int dir, fd; /* -1: none */
	ino_t inode; /* of the name */
	char name[RUNTIME_NAME_MAX];
};

/* The name of a mount's socket: "KIND-MAJOR:MINOR", by the mount's device number. */
void runtime_socket_name(const char *kind, dev_t device, char name[RUNTIME_NAME_MAX]);

/* Makes the directory and the socket; takes the place of a socket of that name, and removes those
 * of processes that have ended. 0, or -errno with a reason, and dir and fd are -1. */
int runtime_socket_open(struct runtime_socket *made, const char *kind, dev_t device,
			char reason[RUNTIME_REASON_MAX]);

/* The same of a socket that another process made: dir and fd are the new struct's. */
void runtime_socket_adopt(struct runtime_socket *made, int dir, int fd, const char *kind,
			  dev_t device);

/* Removes the name, unless another socket has it by now, and closes both. */
void runtime_socket_close(struct runtime_socket *made);

/* Connects to the SOCK_SEQPACKET socket of that name below the directory, with further flags of
 * socket(2): the descriptor, or -errno. */
int runtime_connect(int dir, const char *name, int flags);

/* Removes the name from the directory if no process listens at it. */
void runtime_socket_remove_dead(int dir, const char *kind, dev_t device);

/* Connects to a socket in the directory: the descriptor, or -errno; -EPERM: the process that
 * listens is not owner's. */
int runtime_socket_connect(int dir, const char *name, uid_t owner);

/* The process that made the other end of a connection, and its user: 0 or -errno. */
int runtime_peer(int fd, struct ucred *peer);

#endif
