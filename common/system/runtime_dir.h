/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sockets in a directory that a single user can write: /run/gpumemfs for root, else
 * $XDG_RUNTIME_DIR/gpumemfs, /run/user/UID/gpumemfs or, with a random name,
 * /tmp/gpumemfs-UID-XXXXXX. So a socket found there was made by the user, and other users cannot
 * take the name first. */
#ifndef COMMON_SYSTEM_RUNTIME_DIR_H
#define COMMON_SYSTEM_RUNTIME_DIR_H

#include <stdbool.h>
#include <sys/types.h>

struct ucred;

#define RUNTIME_PATH_MAX   1024
#define RUNTIME_NAME_MAX   40
#define RUNTIME_REASON_MAX (RUNTIME_PATH_MAX + 200)

/* The n-th directory that may have a user's sockets; false past the last. Those in /tmp are the
 * directories that exist, belong to the user, and are writable for no other user. */
bool runtime_dir_path(uid_t owner, unsigned n, char path[RUNTIME_PATH_MAX]);

/* Opens the directory: a descriptor (the caller's), -ENOENT: no such directory, or another -errno
 * with a reason naming the directory: the directory is another user's, writable for other users, or
 * a symbolic link. */
int runtime_dir_open(const char *path, uid_t owner, char reason[RUNTIME_REASON_MAX]);

/* A listening SOCK_SEQPACKET socket in the directory of the process's own user. */
struct runtime_socket {
	int dir, fd; /* -1: none */
	ino_t inode; /* of the socket's file */
	char name[RUNTIME_NAME_MAX];
};

/* The name of a mount's socket: "KIND-MAJOR:MINOR", by the mount's device number. */
void runtime_socket_name(const char *kind, dev_t device, char name[RUNTIME_NAME_MAX]);

/* Makes the directory and the socket, replaces a socket of the name, and removes the sockets of
 * ended processes. 0, or -errno with a reason; then dir and fd are -1. */
int runtime_socket_open(struct runtime_socket *listener, const char *kind, dev_t device,
			char reason[RUNTIME_REASON_MAX]);

/* Takes over a socket that an earlier process made. dir and fd become the struct's. */
void runtime_socket_adopt(struct runtime_socket *listener, int dir, int fd, const char *kind,
			  dev_t device);

/* Removes the socket's file, unless another socket has the name by now, and closes both
 * descriptors. */
void runtime_socket_close(struct runtime_socket *listener);

/* Connects to the SOCK_SEQPACKET socket of that name in dir, with further flags for socket(2): the
 * descriptor, or -errno. */
int runtime_connect(int dir, const char *name, int flags);

/* Removes the socket's file if no process listens. */
void runtime_socket_remove_dead(int dir, const char *kind, dev_t device);

/* Connects as runtime_connect does; -EPERM: the listening process is another user's. */
int runtime_socket_connect(int dir, const char *name, uid_t owner);

/* The process that made the other end of a connection, and its user: 0 or -errno. */
int runtime_peer(int fd, struct ucred *peer);

#endif
