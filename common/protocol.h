/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How a process comes by the memory of a file: what fs/ and client/ have in common.
 * gpumem-protocol(7) is the text for those who write a client in another language.
 *
 *  1. GPUMEM_IOC_TOKEN on the opened file yields a token: the right to share is the right to open.
 *  2. On a SOCK_SEQPACKET connection to MOUNT/.gpumem/socket the token is turned into a lease
 *     (GPUMEM_MSG_LEASE). The answer is one or more GPUMEM_MSG_LAYOUT messages; their chunks' file
 *     descriptors come with them (SCM_RIGHTS), in order.
 *     A daemon without privileges has its socket elsewhere: GPUMEM_IOC_SOCKET says where.
 *  3. The lease lasts until GPUMEM_MSG_RELEASE or the end of the connection, however it comes.
 *
 * A client that has its connection already saves the turn over the socket: it asks once for the
 * connection's key (GPUMEM_MSG_HELLO), and GPUMEM_IOC_LEASE on an opened file has the answer sent
 * over that connection before the ioctl returns.
 *
 * One message is one packet. All integers are in the byte order of the machine: both ends are on
 * it. A message that is not exactly as said here costs its sender the connection. */
#ifndef COMMON_PROTOCOL_H
#define COMMON_PROTOCOL_H

#include <linux/ioctl.h>
#include <stdint.h>

#define GPUMEM_PROTOCOL_VERSION 1
#define GPUMEM_SOCKET_NAME	".gpumem/socket" /* below the mount */

#define GPUMEM_TOKEN_BYTES 32
#define GPUMEM_KEY_BYTES   32
#define GPUMEM_TOKEN_SECONDS                                                                       \
	10 /* for which a token may be used, once, by the uid that asked for it */

/* At most so many fds travel with one packet: below the kernel's SCM_MAX_FD (253). */
#define GPUMEM_FDS_MAX 128
/* A layout is sent in packets of at most so many chunks. */
#define GPUMEM_CHUNKS_PER_MESSAGE GPUMEM_FDS_MAX
/* Leases of one connection, and connections of one uid. */
#define GPUMEM_LEASES_MAX      65536
#define GPUMEM_CONNECTIONS_MAX 4096

enum gpumem_access {
	GPUMEM_ACCESS_READ = 1,
	GPUMEM_ACCESS_WRITE = 2, /* implies reading */
};

/* What GPUMEM_IOC_TOKEN writes. EACCES from it, and from GPUMEM_IOC_LEASE: the file is not open for
 * reading. */
struct gpumem_token {
	uint32_t version; /* GPUMEM_PROTOCOL_VERSION of the daemon */
	uint32_t access;  /* enum gpumem_access, from the flags of the open */
	uint8_t token[GPUMEM_TOKEN_BYTES];
};

#define GPUMEM_IOC_TOKEN _IOR('g', 0x47, struct gpumem_token)

/* What GPUMEM_IOC_LEASE reads. After 0 one GPUMEM_MSG_LAYOUT without GPUMEM_LAYOUT_MORE is on the
 * connection; after an error nothing is. EAGAIN: a token is the way for this file (it needs a
 * private copy or more than one packet, or is refused); ESTALE: no connection of this user's has
 * the key; EOPNOTSUPP: tokens are the way for all files of this mount (its daemon can be replaced).
 */
struct gpumem_lease_ask {
	uint32_t version; /* GPUMEM_PROTOCOL_VERSION of the client */
	uint32_t request; /* for the answer's header */
	uint8_t key[GPUMEM_KEY_BYTES];
};

#define GPUMEM_IOC_LEASE _IOW('g', 0x48, struct gpumem_lease_ask)

#define GPUMEM_SOCKET_TEXT 1020

/* What GPUMEM_IOC_SOCKET writes: where the file's mount shares its files, on a regular file however
 * it was opened. */
struct gpumem_socket {
	uint32_t where; /* enum gpumem_socket_where */
	/* Ends with a NUL. IN_DIRECTORY: the directory, and the socket is named by the mount's
	 * device number (GPUMEM_SOCKET_KIND-MAJOR:MINOR). The daemon serves connections of its own
	 * user there, and a client is to check that the directory and the process at the other end
	 * are of its own user. NOWHERE: why. */
	char text[GPUMEM_SOCKET_TEXT];
};

enum gpumem_socket_where {
	GPUMEM_SOCKET_NOWHERE = 0,
	GPUMEM_SOCKET_IN_MOUNT = 1, /* GPUMEM_SOCKET_NAME */
	GPUMEM_SOCKET_IN_DIRECTORY = 2,
};

#define GPUMEM_SOCKET_KIND "share"
#define GPUMEM_IOC_SOCKET  _IOR('g', 0x4b, struct gpumem_socket)

/* What GPUMEM_IOC_COPY reads. Memory leased over a connection, which some engine reaches without a
 * copy by a CPU, goes into the opened file. It returns how many bytes, at most GPUMEM_COPY_MAX and
 * fewer at the end of either file. Any number of these are under way into one file, where the
 * kernel lets one copy_file_range(2) at a time; on the other hand the file never becomes longer,
 * and what a plain mmap(2) of it has in the page cache stays as it was. EBADF: not open for
 * writing; ENOENT: no such lease; ESTALE: no connection of this user's has the key; EOPNOTSUPP:
 * copy_file_range is the way (into a file of host/, another version, or the mount caches). */
struct gpumem_copy_ask {
	uint32_t version;  /* GPUMEM_PROTOCOL_VERSION of the client */
	uint32_t reserved; /* 0 */
	uint8_t key[GPUMEM_KEY_BYTES];
	uint64_t lease;
	uint64_t from, to; /* offsets in the leased file and in the opened one */
	uint64_t bytes;
};

#define GPUMEM_IOC_COPY _IOW('g', 0x4a, struct gpumem_copy_ask)
#define GPUMEM_COPY_MAX (1u << 30)

#define GPUMEM_SAVED_FIRST 992

/* What GPUMEM_IOC_SAVE writes: what of the file, or of all below the directory, had to be written
 * to the mount's spool. ENOTSUP: it has none. */
struct gpumem_saved {
	uint64_t files, bytes; /* written */
	uint64_t failed;       /* files that could not be saved */
	int32_t error;	       /* errno of the first of them; 0 */
	uint32_t reserved;     /* 0 */
	/* The first of them by its path in the mount, "/gpu0/weights"; "inode N" where the caller
	 * may not see the path or it is longer. Ends with a NUL. */
	char first[GPUMEM_SAVED_FIRST];
};

#define GPUMEM_IOC_SAVE _IOR('g', 0x49, struct gpumem_saved)

/* Drops all leases of the opened file, for its owner and for root: whatever was EBUSY because of
 * them is not any more. Their holders keep what they have mapped, which the file has in common with
 * them until it gets other memory; to extend such a lease is ENOENT. Private copies stay. It writes
 * how many leases there were. EPERM: the caller is not the file's owner. */
struct gpumem_dropped {
	uint64_t leases;
};

#define GPUMEM_IOC_DROP _IOR('g', 0x4c, struct gpumem_dropped)

enum gpumem_message_type {
	GPUMEM_MSG_LEASE = 1,	/* client: struct gpumem_msg_lease */
	GPUMEM_MSG_EXTEND = 2,	/* client: struct gpumem_msg_extend */
	GPUMEM_MSG_RELEASE = 3, /* client: struct gpumem_msg_release */
	GPUMEM_MSG_HELLO = 4,	/* client: struct gpumem_msg_header alone */
	GPUMEM_MSG_LAYOUT = 16, /* daemon: struct gpumem_msg_layout, chunks, fds */
	GPUMEM_MSG_DONE = 17,	/* daemon: struct gpumem_msg_header alone */
	GPUMEM_MSG_ERROR = 18,	/* daemon: struct gpumem_msg_error */
	GPUMEM_MSG_KEY = 19,	/* daemon: struct gpumem_msg_key */
};

#define GPUMEM_MAGIC 0x4d465047u /* "GPFM" */

struct gpumem_msg_header {
	uint32_t magic;
	uint16_t version; /* GPUMEM_PROTOCOL_VERSION */
	uint16_t type;	  /* enum gpumem_message_type */
	uint32_t bytes;	  /* of the whole message, header included: what recvmsg returned */
	uint32_t request; /* chosen by the client, the same in the answer */
};

struct gpumem_msg_lease {
	struct gpumem_msg_header header;
	uint8_t token[GPUMEM_TOKEN_BYTES];
};

/* After the file grew: the chunks from first_chunk on, and the size as it is now. */
struct gpumem_msg_extend {
	struct gpumem_msg_header header;
	uint64_t lease;
	uint64_t first_chunk; /* how many the client has */
};

struct gpumem_msg_release {
	struct gpumem_msg_header header;
	uint64_t lease;
};

enum gpumem_layout_kind {
	GPUMEM_KIND_DEVICE =
	    1,		       /* chunks are CUDA VMM allocations: cuMemImportFromShareableHandle */
	GPUMEM_KIND_HOST = 2,  /* one chunk: a shared-memory object to mmap from offset 0 */
	GPUMEM_KIND_MEMFD = 3, /* chunks are memfds: a GPU that the host backend plays */
};

enum gpumem_layout_flags {
	GPUMEM_LAYOUT_MORE = 1, /* another packet of this answer follows */
	GPUMEM_LAYOUT_PRIVATE =
	    2, /* a copy made for this lease: writes reach nobody, nor do others' */
	GPUMEM_LAYOUT_READ_ONLY = 4, /* the file is not to be written: mind it, nothing else does */
};

struct gpumem_chunk {
	uint64_t offset; /* in the file; the chunks follow each other without gaps from 0 */
	uint64_t bytes;	 /* for KIND_DEVICE and KIND_MEMFD a multiple of 2 MiB */
};

struct gpumem_msg_layout {
	struct gpumem_msg_header header;
	uint64_t lease;
	uint64_t size;	      /* of the file, in bytes */
	uint32_t kind;	      /* enum gpumem_layout_kind */
	uint32_t flags;	      /* enum gpumem_layout_flags */
	uint8_t uuid[16];     /* of the GPU; zero for KIND_HOST */
	uint32_t device;      /* the N of gpuN */
	uint32_t first_chunk; /* number of the first one here */
	uint32_t n_chunks;    /* in this packet, and as many fds */
	uint32_t reserved;    /* 0 */
	struct gpumem_chunk chunks[];
};

/* The connection's key, the same whenever it is asked for. */
struct gpumem_msg_key {
	struct gpumem_msg_header header;
	uint8_t key[GPUMEM_KEY_BYTES];
};

struct gpumem_msg_error {
	struct gpumem_msg_header header;
	int32_t
	    error; /* errno: EACCES, EBADMSG, ENOENT (no such lease), ENOSPC, EDQUOT, EIO, EMFILE */
	uint32_t reserved; /* 0 */
};

#endif
