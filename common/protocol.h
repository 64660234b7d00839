/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The protocol by which a process shares the memory of a file with the daemon; used by fs/ and
 * client/. gpumem-protocol(7) describes it for authors of clients in other languages.
 *
 *  1. A process that can open a file may share the file. The process connects to the
 *     SOCK_SEQPACKET socket MOUNT/.gpumem/socket, and asks for the key of the connection
 *     (GPUMEM_MSG_HELLO). A daemon without privileges has its socket in another place, which
 *     GPUMEM_IOC_SOCKET returns.
 *  2. GPUMEM_IOC_LEASE on the open file, with the key, makes the daemon send a GPUMEM_MSG_LAYOUT
 *     message over the connection before the ioctl returns: the first chunks of the file, with
 *     their file descriptors (SCM_RIGHTS). GPUMEM_MSG_EXTEND requests further chunks.
 *  3. The lease lasts until GPUMEM_MSG_RELEASE or the end of the connection, for any reason.
 *
 * A message is a packet. Integers are in the machine's byte order, because both ends run on the
 * same machine. The daemon closes a connection on which a message of another form arrives. */
#ifndef COMMON_PROTOCOL_H
#define COMMON_PROTOCOL_H

#include <linux/ioctl.h>
#include <stdint.h>

#define GPUMEM_PROTOCOL_VERSION 2
#define GPUMEM_SOCKET_DIR	".gpumem" /* in each directory of the mount */
#define GPUMEM_SOCKET_LEAF	"socket"
#define GPUMEM_SOCKET_NAME	".gpumem/socket"

/* Inode numbers from here on are those of .gpumem and what it holds, never a user's file. */
#define GPUMEM_INODES_OF_DAEMON (1ULL << 62)

#define GPUMEM_KEY_BYTES 32
/* The daemon closes a connection that has had no lease for this long. */
#define GPUMEM_CONNECTION_SECONDS 10

/* Most descriptors in a packet: below the kernel's SCM_MAX_FD (253). */
#define GPUMEM_FDS_MAX 128
/* Most chunks in a packet. */
#define GPUMEM_CHUNKS_PER_MESSAGE GPUMEM_FDS_MAX
/* Leases of a connection, and connections of a user. */
#define GPUMEM_LEASES_MAX      65536
#define GPUMEM_CONNECTIONS_MAX 4096

enum gpumem_access {
	GPUMEM_ACCESS_READ = 1,
	GPUMEM_ACCESS_WRITE = 2, /* implies reading */
};

/* The result of GPUMEM_IOC_VERSION, for files of any kind. Clients of version 1 begin with this
 * call, and report that the versions differ. */
struct gpumem_version {
	uint32_t version; /* GPUMEM_PROTOCOL_VERSION of the daemon */
	uint8_t reserved[36];
};

#define GPUMEM_IOC_VERSION _IOR('g', 0x47, struct gpumem_version)

/* The result of GPUMEM_IOC_MOUNT, for files of any kind: what a process has to know that sees only
 * a directory of the mount, without .gpumem/params. ENOTTY: an earlier daemon. */
struct gpumem_mount {
	uint32_t flags; /* enum gpumem_mount_flags */
	uint8_t reserved[36];
};

enum gpumem_mount_flags {
	GPUMEM_MOUNT_CACHES = 1,    /* the page cache may keep bytes of GPUs' files */
	GPUMEM_MOUNT_SIMULATES = 2, /* GPUs are simulated in system memory */
};

#define GPUMEM_IOC_MOUNT _IOR('g', 0x51, struct gpumem_mount)

/* The argument of GPUMEM_IOC_LEASE. After 0 a GPUMEM_MSG_LAYOUT is on the connection; after an
 * error no message is. EACCES: the file is not open for reading; EBUSY: another request of the
 * connection has no answer yet; ESTALE: the user has no connection with the key; EINTR: ask again;
 * EOPNOTSUPP: another version of the protocol; EMFILE: a limit of leases; ENOSPC, EDQUOT: no room
 * for a private copy, or to fill holes; EIO.
 *
 * The daemon may be replaced while the ioctl waits. The next daemon finds the lease of the killed
 * daemon by the number of the request, and may send the answer again: a client uses each number
 * once for a connection, and ignores messages with earlier numbers. */
struct gpumem_lease_ask {
	uint32_t version; /* GPUMEM_PROTOCOL_VERSION of the client */
	uint32_t request; /* the number of the request, for the answer's header */
	uint8_t key[GPUMEM_KEY_BYTES];
};

#define GPUMEM_IOC_LEASE _IOW('g', 0x48, struct gpumem_lease_ask)

/* As GPUMEM_IOC_LEASE, for a process that stores nothing, or that makes the kernel move the file's
 * times by a write(2) after its stores. During other leases for writing the daemon cannot tell
 * whether the process has stored, so mtime and ctime move with every stat(2), and at the end of the
 * lease. They do so here too unless the caller is the file's owner or root, who may set the times
 * anyway. */
#define GPUMEM_IOC_LEASE_TIMED _IOW('g', 0x4f, struct gpumem_lease_ask)

/* As GPUMEM_IOC_LEASE_TIMED, for a process that stores nothing. If the process listens for
 * GPUMEM_NOTICE_RECALL, the lease may come with a read delegation: GPUMEM_LAYOUT_DELEGATED. */
#define GPUMEM_IOC_LEASE_LOADS _IOW('g', 0x50, struct gpumem_lease_ask)

/* The argument of GPUMEM_IOC_ADOPT: makes the memory of GPUMEM_MSG_PIECES the memory of the open
 * file, which must be an empty file in gpuN/ that the caller owns. Then as GPUMEM_IOC_LEASE. After
 * an error the pieces are forgotten. EPERM: another user's file; EBUSY: the file has bytes, or is
 * leased, or has a name and not GPUMEM_ADOPT_STAYS; EINVAL: a descriptor is no memory of the file's
 * GPU of its piece's size, or the pieces do not hold the bytes; ENOTSUP: the file is in host/, or
 * the mount's GPUs take no such memory; ESTALE: the daemon has not so many pieces, so send all of
 * them again; ENOSPC, EDQUOT. */
struct gpumem_adopt_ask {
	struct gpumem_lease_ask lease;
	uint64_t skip; /* bytes of the first piece before the file's bytes */
	uint64_t size; /* of the file; ends in the last piece */
	uint32_t n_pieces;
	uint32_t flags; /* enum gpumem_adopt_flags */
};

enum gpumem_adopt_flags {
	/* The file outlives the lease. Without the flag the file ends with the lease: its names are
	 * removed, and its memory is given up. */
	GPUMEM_ADOPT_STAYS = 1,
	/* The daemon may import the pieces when it first needs their bytes. If they are not what
	 * the client says, reads and writes fail with EIO then, and the call without EINVAL now. */
	GPUMEM_ADOPT_LATER = 2,
};

#define GPUMEM_IOC_ADOPT _IOW('g', 0x52, struct gpumem_adopt_ask)

#define GPUMEM_SOCKET_TEXT 1020

/* The result of GPUMEM_IOC_SOCKET: where the mount has its socket. For regular files, with any open
 * flags. */
struct gpumem_socket {
	uint32_t where; /* enum gpumem_socket_where */
	/* Ends with a NUL. IN_DIRECTORY: the directory of the socket, named after the mount's
	 * device number (GPUMEM_SOCKET_KIND-MAJOR:MINOR). There the daemon serves its own user; a
	 * client should check that directory and server belong to the same user. NOWHERE and
	 * NOT_YET: the reason. */
	char text[GPUMEM_SOCKET_TEXT];
};

enum gpumem_socket_where {
	GPUMEM_SOCKET_NOWHERE = 0,
	GPUMEM_SOCKET_IN_MOUNT = 1, /* GPUMEM_SOCKET_NAME */
	GPUMEM_SOCKET_IN_DIRECTORY = 2,
	/* The daemon answers requests before the socket is bound: ask again. */
	GPUMEM_SOCKET_NOT_YET = 3,
};

#define GPUMEM_SOCKET_KIND "share"
#define GPUMEM_IOC_SOCKET  _IOR('g', 0x4b, struct gpumem_socket)

/* The argument of GPUMEM_IOC_COPY: copies leased memory, which an engine can reach without a copy
 * by the CPU, into the open file. Returns the number of bytes: at most GPUMEM_COPY_MAX, and fewer
 * at the end of either file. Many such copies can run at once into the same file, where the kernel
 * serialises copy_file_range(2). The file does not become longer, and pages of the file that
 * mmap(2) has in the page cache stay as they are. EBADF: not open for writing; ENOENT: no such
 * lease; ESTALE: the user has no connection with the key; EOPNOTSUPP: use copy_file_range (the file
 * is in host/, the version differs, or the mount caches). */
struct gpumem_copy_ask {
	uint32_t version;  /* GPUMEM_PROTOCOL_VERSION of the client */
	uint32_t reserved; /* 0 */
	uint8_t key[GPUMEM_KEY_BYTES];
	uint64_t lease;
	uint64_t from, to; /* offsets in the leased file and in the open file */
	uint64_t bytes;
};

#define GPUMEM_IOC_COPY _IOW('g', 0x4a, struct gpumem_copy_ask)
#define GPUMEM_COPY_MAX (1u << 30)

#define GPUMEM_SAVED_FIRST 992

/* The result of GPUMEM_IOC_SAVE on a file, or on a directory for all files below, of the caller
 * alone unless root calls: the work done to write them to the mount's spool. ENOTSUP: the mount has
 * no spool. EINTR: a signal came, and some files may not be written. */
struct gpumem_saved {
	uint64_t files, bytes; /* written */
	uint64_t failed;       /* files that could not be saved */
	int32_t error;	       /* errno of the first failed file; 0 */
	uint32_t reserved;     /* 0 */
	/* The path of the first failed file in the mount, "/gpu0/weights"; "inode N" if the caller
	 * may not see the path or the path is too long. Ends with a NUL. */
	char first[GPUMEM_SAVED_FIRST];
};

#define GPUMEM_IOC_SAVE _IOR('g', 0x49, struct gpumem_saved)

/* The result of GPUMEM_IOC_DROP: the number of leases. Drops all leases of the open file, for its
 * owner and for root: operations refused with EBUSY because of the leases work again. Processes
 * keep their mappings, sharing memory with the file until the file gets other memory; extending a
 * dropped lease is ENOENT. Private copies stay. EPERM: the caller is not the file's owner. */
struct gpumem_dropped {
	uint64_t leases;
};

#define GPUMEM_IOC_DROP _IOR('g', 0x4c, struct gpumem_dropped)

/* What other processes and the daemon ask of a process that listens (GPUMEM_MSG_LISTEN). */
enum gpumem_notice {
	GPUMEM_NOTICE_PARK = 1,	  /* give the memory of files back for a while */
	GPUMEM_NOTICE_UNPARK = 2, /* map such files again */
	GPUMEM_NOTICE_MEMORY = 3, /* a GPU is full of leased files; by the daemon alone */
	/* The process's read delegations of the file end: another process may store into the file's
	 * memory when the notice is answered. By the daemon alone. */
	GPUMEM_NOTICE_RECALL = 4,
	/* The process that gave the file its memory by GPUMEM_IOC_ADOPT has ended. By the daemon
	 * alone, to processes that have leases of the file. */
	GPUMEM_NOTICE_END = 5,
};

enum gpumem_notice_flags {
	GPUMEM_NOTICE_NOW = 1, /* without waiting for a safe point of the program */
};

/* The argument of GPUMEM_IOC_NOTIFY: sends a notice about the open file, or for a directory about
 * all files of the mount, to the listening processes of the caller's user; root's callers reach the
 * processes of all users. ESRCH: no such process of these users listens; EINVAL: what, flags or
 * pid; EOPNOTSUPP: another version of the protocol. */
struct gpumem_notify {
	uint32_t version; /* GPUMEM_PROTOCOL_VERSION of the client */
	uint32_t what;	  /* GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_UNPARK */
	uint32_t flags;	  /* enum gpumem_notice_flags */
	int32_t pid;	  /* as the daemon numbers processes; 0: each */
	uint32_t number;  /* set: of the notice */
	uint32_t sent;	  /* set: to so many connections */
};

#define GPUMEM_IOC_NOTIFY _IOWR('g', 0x4d, struct gpumem_notify)

enum gpumem_notified_state {
	GPUMEM_NOTIFIED_END = 0,      /* no further process */
	GPUMEM_NOTIFIED_WAITS = 1,    /* has not answered yet */
	GPUMEM_NOTIFIED_ANSWERED = 2, /* error and files are set */
};

/* The argument of GPUMEM_IOC_NOTIFIED: the answer of the next process that was sent a notice. The
 * daemon remembers the last notices of each process. */
struct gpumem_notified {
	uint64_t cursor; /* 0 at first; set: the argument for the next process */
	uint32_t number; /* of the notice */
	uint32_t state;	 /* set: enum gpumem_notified_state, and the process: */
	int32_t pid;
	int32_t error;	/* errno of the first file that failed; 0: none */
	uint32_t files; /* that are parked, or mapped again; RECALL: 0 */
	uint32_t reserved;
};

#define GPUMEM_IOC_NOTIFIED _IOWR('g', 0x4e, struct gpumem_notified)

enum gpumem_message_type {
	GPUMEM_MSG_EXTEND = 2,	/* client: struct gpumem_msg_extend */
	GPUMEM_MSG_RELEASE = 3, /* client: struct gpumem_msg_release */
	GPUMEM_MSG_HELLO = 4,	/* client: struct gpumem_msg_header alone */
	GPUMEM_MSG_LISTEN = 5,	/* client: struct gpumem_msg_listen */
	GPUMEM_MSG_NOTICED = 6, /* client: struct gpumem_msg_noticed, without an answer */
	GPUMEM_MSG_PIECES = 7,	/* client: struct gpumem_msg_pieces, sizes, fds */
	GPUMEM_MSG_LAYOUT = 16, /* daemon: struct gpumem_msg_layout, chunks, fds */
	GPUMEM_MSG_DONE = 17,	/* daemon: struct gpumem_msg_header alone */
	GPUMEM_MSG_ERROR = 18,	/* daemon: struct gpumem_msg_error */
	GPUMEM_MSG_KEY = 19,	/* daemon: struct gpumem_msg_key */
	GPUMEM_MSG_NOTICE = 20, /* daemon, unasked: struct gpumem_msg_notice */
};

#define GPUMEM_MAGIC 0x4d465047u /* "GPFM" */

struct gpumem_msg_header {
	uint32_t magic;
	uint16_t version; /* GPUMEM_PROTOCOL_VERSION */
	uint16_t type;	  /* enum gpumem_message_type */
	uint32_t bytes;	  /* of the whole message with this header: the result of recvmsg */
	uint32_t request; /* chosen by the client, repeated in the answer */
};

/* Asks for the chunks from first_chunk on, and the present size: after GPUMEM_LAYOUT_MORE, and for
 * a file that grew. */
struct gpumem_msg_extend {
	struct gpumem_msg_header header;
	uint64_t lease;
	uint64_t first_chunk; /* how many chunks the client has */
};

struct gpumem_msg_release {
	struct gpumem_msg_header header;
	uint64_t lease;
};

/* Most pieces of a file. */
#define GPUMEM_PIECES_MAX 16384

/* Gives the daemon descriptors of memory that the client allocated, for GPUMEM_IOC_ADOPT: of CUDA's
 * VMM, or of a simulated GPU memfds with the seal F_SEAL_SHRINK. Answer: GPUMEM_MSG_DONE. EINVAL:
 * as many descriptors as sizes did not come; ESTALE: first is not the number of the pieces that the
 * daemon has; EMFILE, ENFILE: too many descriptors. */
struct gpumem_msg_pieces {
	struct gpumem_msg_header header;
	uint32_t first;	   /* how many pieces were sent before; 0: earlier ones are forgotten */
	uint32_t n_pieces; /* in this packet, with as many descriptors: at most GPUMEM_FDS_MAX */
	uint64_t bytes[];  /* of each piece: a multiple of 2 MiB */
};

enum gpumem_layout_kind {
	GPUMEM_KIND_DEVICE = 1, /* CUDA VMM allocations: cuMemImportFromShareableHandle */
	GPUMEM_KIND_HOST = 2,	/* one chunk: a shared-memory object, to be mapped from offset 0 */
	GPUMEM_KIND_MEMFD = 3,	/* chunks are memfds: a GPU that the host backend simulates */
	GPUMEM_KIND_VULKAN = 4, /* opaque descriptors of Vulkan's memory: VkImportMemoryFdInfoKHR */
};

enum gpumem_layout_flags {
	GPUMEM_LAYOUT_MORE = 1,	     /* the file has more chunks: GPUMEM_MSG_EXTEND */
	GPUMEM_LAYOUT_PRIVATE = 2,   /* a copy for the lease alone: no writes are shared */
	GPUMEM_LAYOUT_READ_ONLY = 4, /* the client must not write: no mechanism prevents it */
	/* Until a GPUMEM_NOTICE_RECALL no other process stores but through the kernel, so that the
	 * page cache shows the file's bytes. */
	GPUMEM_LAYOUT_DELEGATED = 8,
};

struct gpumem_chunk {
	/* In the file; the chunks are contiguous. The first chunk begins at 0, or before the file
	 * (modulo 2^64) if the file's bytes begin inside the chunk: memory of GPUMEM_IOC_ADOPT. */
	uint64_t offset;
	uint64_t bytes; /* a multiple of 2 MiB for KIND_DEVICE and KIND_MEMFD */
};

struct gpumem_msg_layout {
	struct gpumem_msg_header header;
	uint64_t lease;
	uint64_t size;	      /* of the file, in bytes */
	uint32_t kind;	      /* enum gpumem_layout_kind */
	uint32_t flags;	      /* enum gpumem_layout_flags */
	uint8_t uuid[16];     /* of the GPU; zero for KIND_HOST */
	uint32_t device;      /* the N of gpuN */
	uint32_t first_chunk; /* number of the first chunk in this packet */
	uint32_t n_chunks;    /* in this packet, with as many descriptors */
	uint32_t reserved;    /* 0 */
	struct gpumem_chunk chunks[];
};

/* The connection's key, which never changes. */
struct gpumem_msg_key {
	struct gpumem_msg_header header;
	uint8_t key[GPUMEM_KEY_BYTES];
};

enum gpumem_listen_flags {
	GPUMEM_LISTEN_PARK = 1,	  /* GPUMEM_NOTICE_PARK and GPUMEM_NOTICE_UNPARK */
	GPUMEM_LISTEN_MEMORY = 2, /* GPUMEM_NOTICE_MEMORY */
	GPUMEM_LISTEN_RECALL = 4, /* GPUMEM_NOTICE_RECALL */
	GPUMEM_LISTEN_END = 8,	  /* GPUMEM_NOTICE_END */
};

/* Makes the connection one for notices, and lets the connection last without a lease. A client
 * that listens uses a connection of its own for that, because notices come unasked. Answer:
 * GPUMEM_MSG_DONE. May be sent again with other flags. */
struct gpumem_msg_listen {
	struct gpumem_msg_header header;
	uint32_t flags;	   /* enum gpumem_listen_flags: at least one */
	uint32_t reserved; /* 0 */
};

/* The header's request is the number of the notice. */
struct gpumem_msg_notice {
	struct gpumem_msg_header header;
	uint32_t what;	   /* enum gpumem_notice */
	uint32_t flags;	   /* enum gpumem_notice_flags */
	uint64_t inode;	   /* of the file, as stat(2) tells it; 0: all files */
	uint64_t bytes;	   /* MEMORY: that are wanted; else 0 */
	uint32_t device;   /* MEMORY: the N of gpuN; else 0 */
	uint32_t reserved; /* 0 */
};

/* What became of GPUMEM_NOTICE_PARK, GPUMEM_NOTICE_UNPARK or GPUMEM_NOTICE_RECALL. The header's
 * request is the number of the notice. */
struct gpumem_msg_noticed {
	struct gpumem_msg_header header;
	int32_t error;	/* errno of the first file that failed; 0: none */
	uint32_t files; /* that are parked, or mapped again; RECALL: 0 */
};

struct gpumem_msg_error {
	struct gpumem_msg_header header;
	int32_t error;	   /* errno: ENOENT (no such lease), ENOSPC, EDQUOT, EIO, EMFILE */
	uint32_t reserved; /* 0 */
};

#endif
