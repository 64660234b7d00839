/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem: maps the memory of a file on gpumemfs by path. A path becomes a device pointer, a CPU
 * pointer or both, without a copy; all processes that map the file share the same bytes.
 *
 * Functions that return int return 0, or -1 with errno; functions that return a pointer return NULL
 * with errno. gpumem_error() has the text. All sizes are in bytes. Every function may be called
 * from any thread at any time, but a caller must not close a handle during another thread's call
 * with the handle. The drivers' libraries are loaded on first use; a missing library is an error of
 * the call that needed the library. No function makes a CUDA context. See libgpumem(3).
 */
#ifndef GPUMEM_H
#define GPUMEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GPUMEM_API __attribute__((visibility("default")))
#else
#define GPUMEM_API
#endif

/* A file whose memory this process holds: a lease, and at most one mapping of either kind. While
 * the handle is open the memory stays: unlinking the file keeps the memory, and shrinking the file
 * is EBUSY. */
typedef struct gpumem gpumem;

/* A flag of gpumem_open beside O_RDWR: neither the lease nor its end moves the file's times. For a
 * process that only loads, or sets the times after its stores. Only the owner and root can leave
 * times alone; for other users the flag has no effect. */
#define GPUMEM_OPEN_TIMED (1 << 30)

/* flags: O_RDONLY or O_RDWR of fcntl.h, and GPUMEM_OPEN_TIMED; O_CLOEXEC is always added. Every
 * open has its own lease.
 *
 * With O_RDONLY the handle of a GPU file is a private copy, made on the GPU during the call
 * (GPUMEM_INFO_PRIVATE), unless the file's attribute user.gpumem.share is "trusted". In that case,
 * and in host/, the handle is the file itself, and the caller must not write
 * (GPUMEM_INFO_READ_ONLY).
 *
 * ENOTSUP: the file is not on gpumemfs, or the daemon does not share files. EISDIR: a directory.
 * EINVAL: another kind of file, or other flags. ENOTCONN: the daemon cannot be reached. EPROTO: the
 * process at the other end is not a daemon of this version. ENOSPC, EDQUOT: no room for the private
 * copy, or for making the file fit for sharing. EMFILE: too many leases or descriptors. Also the
 * errors of open(2). */
GPUMEM_API gpumem *gpumem_open(const char *path, int flags);

/* Opens the memory of an open file as gpumem_open does; the caller keeps fd, and may close fd at
 * once. The handle allows writing if fd does; fd must be readable. Unlike gpumem_open and
 * gpumem_close, which open and close the file, this function does not touch the process's fcntl(2)
 * locks. */
GPUMEM_API gpumem *gpumem_open_fd(int fd);

enum gpumem_create_flags {
	GPUMEM_CREATE_EXCL = 1,	  /* EEXIST if path exists; without the flag the new file replaces
				     an old file, and keeps the old permissions */
	GPUMEM_CREATE_PENDING = 2 /* the file has no name before gpumem_publish */
};

/* Creates a file whose memory is allocated as a whole, of zeros, and opens the file as gpumem_open
 * does with O_RDWR. mode: the permissions of a new file, less the umask. flags: enum
 * gpumem_create_flags. An old file is replaced by a rename; a link stays, and the link's target is
 * replaced. Where all users may make names, other users' links are not followed, and modes of their
 * files not kept. A failed call changes no file.
 *
 * alignment: 0, or a power of two up to 2 MiB, to which all mappings of the file are aligned.
 *
 * EINVAL: alignment, flags, or path is no regular file. EISDIR: a directory. ENOSPC, EDQUOT: no
 * room for all bytes. ENOTSUP: path is not on gpumemfs. EACCES: a link of another user. Also the
 * errors of gpumem_open and of rename(2). */
GPUMEM_API gpumem *gpumem_create(const char *path, size_t bytes, size_t alignment, mode_t mode,
				 int flags);

enum gpumem_share_flags {
	GPUMEM_SHARE_EXCL = 1, /* EEXIST if path exists; else the new file replaces an old file */
	/* The file outlives this process, and its memory is charged to the user. Without the flag
	 * the file ends with gpumem_close of this handle or with the process: its names are
	 * removed, reads and writes fail with EIO, and processes that have mapped the file keep the
	 * memory until they unmap it. */
	GPUMEM_SHARE_STAYS = 4
};

/* Makes a file whose bytes are memory that this process has on a GPU, without a copy. Other
 * processes open, read, write and map the file as every file; the size never changes, the memory
 * does not leave the GPU, and truncate(2), holes, page_size and renames to another GPU are refused.
 * The caller must not free the memory before gpumem_close: the next allocation's bytes would be the
 * file's.
 *
 * address, bytes: memory of cuMemCreate with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, as torch's
 * expandable segments have, in one or more allocations without a gap; or of a single cudaMalloc,
 * which cannot stay, and which other processes map by gpumem_map_device alone. Whole allocations
 * are given to the daemon, to processes of the file's owner and, with user.gpumem.share=trusted, to
 * all who may read the file; other readers get a private copy of the range. path: in the directory
 * of the memory's GPU. mode: the permissions, less the umask. flags: enum gpumem_share_flags.
 *
 * EINVAL: the memory is of another GPU than path, or flags; the thread has no current context.
 * ENOTSUP: the memory was made otherwise, as cudaMallocAsync's; several allocations of cudaMalloc,
 * or GPUMEM_SHARE_STAYS for one; path is not on a GPU of backend=cuda. EPERM: the daemon takes
 * memory of its own user and of root only. ENOSPC, EDQUOT, EMFILE. Also the errors of
 * gpumem_create. */
GPUMEM_API gpumem *gpumem_share(const char *path, unsigned long long address, size_t bytes,
				mode_t mode, int flags);

/* The same for memory of which the caller has descriptors, of CUDA's VMM or, for a simulated GPU,
 * memfds with the seal F_SEAL_SHRINK. fds, sizes: n_pieces descriptors, which stay the caller's,
 * and the size of the memory behind each, a multiple of 2 MiB. The file's bytes begin after skip
 * bytes of the first piece, and end in the last piece. EINVAL also: a descriptor is not memory of
 * the GPU of that size, or the pieces do not have the bytes. */
GPUMEM_API gpumem *gpumem_share_fds(const char *path, const int *fds, const size_t *sizes,
				    size_t n_pieces, size_t skip, size_t bytes, mode_t mode,
				    int flags);

/* Has callback called, a single time, when the process that shared the file's memory (gpumem_share)
 * has ended, or has closed its handle: by a thread of the library, or by this call if that was
 * before. The memory stays mapped until gpumem_close; reads and writes of the file fail with EIO.
 * The callback may call any function, gpumem_close(file) too. No other file ends so; nor does a
 * parked file, whose gpumem_unpark fails instead.
 *
 * A handle has a single callback; NULL: none, and after this call or gpumem_close no other thread
 * is in the callback. In a child of fork there is no callback. context is passed on. */
GPUMEM_API int gpumem_on_end(gpumem *file, void (*callback)(gpumem *file, void *context),
			     void *context);
/* A descriptor, for poll(2), that is readable from then on. The descriptor is the handle's, until
 * gpumem_close, and the same at each call. -1: EMFILE, ENFILE, ENOMEM. */
GPUMEM_API int gpumem_end_fd(gpumem *file);
/* Gives a file of GPUMEM_CREATE_PENDING its name, in one step: other processes see the old file or
 * all of the new file. A pending file that is closed, or whose process ends, is gone. After a
 * failure the path is unchanged, and the file remains without a name until gpumem_close. EINVAL:
 * the file is not pending. EEXIST: GPUMEM_CREATE_EXCL, and path exists by now. Also the errors of
 * rename(2). */
GPUMEM_API int gpumem_publish(gpumem *file);

/* Unmaps all mappings and ends the lease. No GPU work and no other thread may still use the
 * mappings. NULL is fine. The handle is freed even on failure: EIO, EBUSY: a mapping that could not
 * be unmapped stays until the process ends. */
GPUMEM_API int gpumem_close(gpumem *file);

enum gpumem_kind {
	GPUMEM_FILE_DEVICE = 1,	   /* memory of a GPU */
	GPUMEM_FILE_HOST = 2,	   /* system memory, of host/ */
	GPUMEM_FILE_SIMULATED = 3, /* system memory that simulates a GPU */
	GPUMEM_FILE_VULKAN = 4	   /* memory of a GPU, of backend=vulkan */
};

enum gpumem_info_flags {
	GPUMEM_INFO_PRIVATE = 1, /* a copy of the file as it was: no other process sees changes */
	GPUMEM_INFO_READ_ONLY = 2,
	GPUMEM_INFO_HOST = 4 /* in host/ */
};

/* The state at the open or at the last gpumem_extend. */
struct gpumem_info {
	size_t bytes;	      /* set by the caller: sizeof(struct gpumem_info) */
	uint64_t size;	      /* of the file */
	uint64_t mappable;    /* backed by memory, from offset 0: at least size */
	uint64_t mapped;      /* by gpumem_map_device; 0: not mapped */
	uint64_t host_mapped; /* by gpumem_map_host */
	uint64_t n_chunks;    /* physical allocations that the file consists of */
	uint32_t kind;	      /* enum gpumem_kind */
	uint32_t flags;	      /* enum gpumem_info_flags */
	uint32_t device;      /* the N of gpuN, as nvidia-smi numbers GPUs; 0 in host/ */
	uint8_t uuid[16];     /* of the GPU; zero in host/ */
	char provider[12];    /* of the CPU mapping: "dmabuf", "gdrcopy", "vulkan", "mmap"; or "" */
	char driver[12];      /* of the device mapping: "cuda", "hip", "levelzero"; or "" */
	int32_t number;	      /* of the GPU in this process, with HIP or Level Zero; else -1 */
	/* st_dev and st_ino of stat(2), which tell whether a path still leads to the file. */
	uint64_t filesystem, inode;
};

/* Fills in the first info->bytes bytes of info. EINVAL: info->bytes does not even cover the member
 * bytes. */
GPUMEM_API int gpumem_get_info(gpumem *file, struct gpumem_info *info);

/* Maps the file as one contiguous range of device addresses, for the device of the calling thread's
 * current CUDA context: the file's own GPU, or a peer. The address is valid in every context of
 * that device and, for a GPU file, in every context of the file's own GPU. A file in host/ is
 * system memory that the GPU accesses. Another call returns the same address, valid for the current
 * context's device too. Between the size and mappable lies slack that is not part of the file.
 *
 * In a program that has loaded HIP or Level Zero, a file of backend=vulkan with a single chunk is
 * mapped by that library: for HIP's current device, or in the default context of Level Zero's
 * driver. The mapping is writable even if the file is read-only, does not grow, and prevents
 * gpumem_park.
 *
 * address, bytes (of the file; may be NULL): set on success. EINVAL: the thread has no current
 * context (nor can have a context, in a child of a process that used CUDA), or the file is empty.
 * ENODEV: no driver's library. ENXIO: the file's GPU is not visible to this process. ENOTSUP: the
 * device is no peer of the file's GPU, or HIP or Level Zero would map several chunks. ENOMEM: no
 * address space, or no memory to pin. ENOSPC: the GPU has no room for page tables. EIO: the driver
 * failed. */
GPUMEM_API int gpumem_map_device(gpumem *file, unsigned long long *address, size_t *bytes);
GPUMEM_API int gpumem_unmap_device(gpumem *file);

/* Maps the file as one contiguous range of CPU addresses. A GPU file is mapped through the GPU's
 * BAR: a write-combined mapping, with stores of 10 GB/s and slow loads (use streaming loads, or a
 * copy by the GPU); after gpumem_flush the stores are visible. Another call returns the same
 * address.
 *
 * A read-only file in system memory is mapped for reading. The CPU's mapping of GPU memory is
 * always writable: only the caller's care protects a read-only GPU file.
 *
 * EINVAL: the file is empty. ENOTSUP: no way to the BAR works on this machine, or no way that can
 * map a file of several chunks in one piece. ENOSPC: the BAR is full. ENOMEM. EIO. */
GPUMEM_API int gpumem_map_host(gpumem *file, void **address, size_t *bytes);
GPUMEM_API int gpumem_unmap_host(gpumem *file);

/* Kinds of descriptors of a GPU's memory. */
enum gpumem_handle {
	GPUMEM_HANDLE_CUDA = 1,	  /* a handle of CUDA: for cuMemImportFromShareableHandle */
	GPUMEM_HANDLE_OPAQUE = 2, /* an opaque descriptor of Vulkan: for Vulkan, and for HIP and
				     CUDA's imports of external memory */
	GPUMEM_HANDLE_DMABUF = 4  /* a dma-buf: also for Level Zero and OpenCL */
};

/* A piece of a file. The pieces follow each other without a gap, and the last piece may end behind
 * the file's size. */
struct gpumem_piece {
	uint64_t offset;	/* in the file */
	uint64_t bytes;		/* of the piece */
	uint64_t memory_offset; /* of the piece in the descriptor's memory */
	uint64_t memory_bytes;	/* of that memory: the size for an import */
	uint32_t handles;	/* enum gpumem_handle: the kinds of the descriptor */
	int fd;			/* close-on-exec */
	uint8_t uuid[16];	/* of the GPU; Vulkan's deviceUUID for GPUMEM_HANDLE_OPAQUE */
	uint64_t reserved;	/* 0 */
};

enum gpumem_export_flags {
	GPUMEM_EXPORT_FOR_READING = 1 /* the program does not write: for read-only files */
};

/* Gives descriptors of a GPU file's memory, for a program that imports the memory by Vulkan, HIP,
 * Level Zero, OpenCL or CUDA. pieces: NULL, or room for *n pieces. *n: set to the number of pieces;
 * with NULL no descriptor is made. The descriptors are the caller's: an import takes over a
 * descriptor or leaves the descriptor to be closed, as its interface says.
 *
 * A descriptor gives full access to the memory, whatever flags the file was opened with, and keeps
 * the memory as long as the descriptor or an import of the descriptor exists. The memory is the
 * file's until gpumem_close: free imports and descriptors before. The file cannot be parked any
 * more.
 *
 * EOPNOTSUPP: memory of the system, of host/ or of a simulated GPU. EACCES: the file is
 * GPUMEM_INFO_READ_ONLY, and flags do not promise to read only. ERANGE: pieces has too little room;
 * *n is set. EMFILE: no descriptors left. EINVAL: flags. EBUSY: the file is parked. */
GPUMEM_API int gpumem_export(gpumem *file, int flags, struct gpumem_piece *pieces, size_t *n);

/* After the file grew: makes the lease and the mappings cover the new size, at the same addresses.
 * ENOSPC: the room behind a mapping is used up; the lease covers the new size all the same, and the
 * mapping is unchanged: unmap the file and map the file again, at another address. ENOTSUP: a
 * private copy does not grow. ENOTCONN: the daemon has ended. */
GPUMEM_API int gpumem_extend(gpumem *file);

/* Gives the memory back for a while: ends the lease, and unmaps the file for the device and the
 * CPU; the ranges of addresses stay reserved. Meanwhile the memory may leave the GPU, and the file
 * may be changed, shortened or removed. No kernel, copy or thread may use the addresses until
 * gpumem_unpark. Other functions than gpumem_close fail with EBUSY meanwhile. A parked file may be
 * parked again.
 *
 * EBUSY: the file was not published. ENOTSUP: a file of host/, a private copy, or a file with
 * exported pieces. EINVAL: in a child of fork. EIO: the driver refused to unmap. */
GPUMEM_API int gpumem_park(gpumem *file);

/* Takes a new lease, for which the memory returns to the GPU, and maps the file at the same
 * addresses as before. GPUMEM_UNPARKED_SAME: no write changed the file meanwhile, as far as the
 * daemon knows (stores of other processes and of GPUs through mappings are unknown to the daemon),
 * or the file was not parked. GPUMEM_UNPARKED_CHANGED: the file was changed; addresses beyond a
 * shorter file stay reserved.
 *
 * After an error the file is still parked. ESTALE: the file was emptied, or was removed and its
 * memory freed. ENOSPC: the GPU has no room, or the file has outgrown the room behind a mapping.
 * Also the errors of gpumem_open. */
enum gpumem_unparked { GPUMEM_UNPARKED_SAME = 0, GPUMEM_UNPARKED_CHANGED = 1 };
GPUMEM_API int gpumem_unpark(gpumem *file);

/* Versions: a set is a directory, with a file or a directory for each version and the symbolic link
 * "current" to one of them. Readers resolve the link once, and read that version.
 *
 * Makes a version, the name of a file or directory in the set, the current version by a rename:
 * every process finds the earlier version or the new version, also if the caller or the daemon is
 * killed. Afterwards the link "previous" names the earlier version, and gpumem_version_rollback
 * makes that version current again. EINVAL: no such name; EEXIST: current or previous is not a
 * link; ENOENT; EACCES, EPERM. */
GPUMEM_API int gpumem_version_publish(const char *set, const char *version);
GPUMEM_API int gpumem_version_rollback(const char *set);

/* A descriptor that poll(2) finds readable after the set's current version has changed, also while
 * a daemon is replaced; the caller closes it. gpumem_watch_read does not wait: 1 if current may
 * have changed since the last call, else 0. */
GPUMEM_API int gpumem_watch(const char *set);
GPUMEM_API int gpumem_watch_read(int fd);

/* Puts the memory of n other files, such as another version's, behind the addresses of n open
 * files: of all of them, or after an error of none. Each path is opened with its file's flags, and
 * has a lease before the earlier lease ends; only unmapping and mapping lie in between. The handles
 * stand for the files at the paths from then on; addresses beyond a shorter file stay reserved. No
 * kernel, copy or thread may use the addresses during the call.
 *
 * EXDEV: a path is on another mount or GPU. EACCES: readers of it get a copy. ENOSPC: it is larger
 * than the room behind the mapping. EINVAL: a file twice, or an empty path's file. EBUSY, ENOTSUP:
 * as gpumem_park. Also the errors of gpumem_open. A file whose memory cannot be mapped again after
 * an error is parked. */
GPUMEM_API int gpumem_switch(gpumem *const *files, const char *const *paths, size_t n);

/* Marks a point at which no kernel, copy or thread uses the addresses of files. Here the library
 * does what other processes have asked for ("gpumem park", "gpumem unpark"), and calls the callback
 * of gpumem_on_pressure. Any thread; one load from memory if there is nothing to do.
 *
 * Gives 1 while files are parked on request of another process: the program must not use their
 * addresses until a later call gives 0, or until gpumem_unpark of each file. A program that has
 * nothing else to do waits:
 *
 *	while (gpumem_safe_point() > 0)
 *		usleep(10000);
 *
 * Requests reach a process, by a thread of the library, from its first gpumem_map_device,
 * gpumem_arena_open, gpumem_safe_point or gpumem_on_pressure on. In a child of fork they do so from
 * the child's own first call of these. */
GPUMEM_API int gpumem_safe_point(void);

/* Has callback called by gpumem_safe_point when a GPU, the N of gpuN, is full of files that
 * processes hold, this process among them, and some program wants bytes more of it. The callback
 * may park files (gpumem_park), or do nothing: no memory is ever taken. What is parked within a
 * fifth of a second helps the program that waits. One callback for a process; NULL: none. context
 * is passed on. In a child of fork there is no callback. */
GPUMEM_API int gpumem_on_pressure(void (*callback)(uint64_t bytes, unsigned device, void *context),
				  void *context);

/* Makes the stores of this process's CPUs through gpumem_map_host visible to every GPU and process.
 * For readers on a GPU other than the file's GPU, call this function with a current context. */
GPUMEM_API int gpumem_flush(gpumem *file);

/* Ends the leases of all processes on the file; for the file's owner and for root. Afterwards the
 * file can be shortened, rewritten and moved again. Processes keep their mappings, which share
 * memory with the file until the file gets other memory. Private copies stay.
 *
 * leases: the number of ended leases; NULL is fine. EPERM: the caller does not own the file.
 * ENOTSUP: the file is not on gpumemfs. Also the errors of open(2). */
GPUMEM_API int gpumem_drop_leases(const char *path, uint64_t *leases);

/* An allocator of GPU memory that is a file: other processes can map the allocations of a program.
 * A range of device addresses is reserved at once; the file grows into the range in steps that
 * double, up to 1 GiB a step. */
typedef struct gpumem_arena gpumem_arena;

/* Creates the file, with the permissions 0600, and maps the file as gpumem_map_device does.
 * reserve: the bytes of device addresses, which limit the file's size; 0: as much as the GPU has
 * memory. flags: 0, or GPUMEM_CREATE_EXCL; without the flag the file replaces an old file.
 *
 * The file is removed by gpumem_arena_close, and at the end of the process that opened the arena,
 * unless the file was renamed, or its attribute user.gpumem.persist is "restart" or "disk" by then.
 * A killed process leaves the file behind. A child of fork cannot use the arena.
 *
 * EINVAL: flags; no current context. Also the errors of gpumem_create and gpumem_map_device. */
GPUMEM_API gpumem_arena *gpumem_arena_open(const char *path, size_t reserve, int flags);

/* Allocates bytes for the GPU. alignment: 0 for 512, or a power of two up to 2 MiB. The memory is
 * not zeroed. The offset in the file is the distance to the arena's lowest address
 * (gpumem_arena_find).
 *
 * ENOSPC: the reserve is used up, or the GPU has no room. EDQUOT. EINVAL: bytes or alignment; in a
 * child of fork. Also the errors of gpumem_extend. */
GPUMEM_API int gpumem_arena_alloc(gpumem_arena *arena, size_t bytes, size_t alignment,
				  unsigned long long *address);

/* Frees an allocation for later allocations: the file does not shrink. No
 * GPU work may still use the memory. EINVAL: no allocation begins at the address. */
GPUMEM_API int gpumem_arena_free(gpumem_arena *arena, unsigned long long address);

/* gpumem_park and gpumem_unpark for an arena. Meanwhile allocations fail with EBUSY; frees work.
 * After GPUMEM_UNPARKED_CHANGED gpumem_error() names the file. ESTALE also: the file was shortened
 * to fewer bytes than the arena has. EINVAL: in a child of fork. */
GPUMEM_API int gpumem_arena_park(gpumem_arena *arena);
GPUMEM_API int gpumem_arena_unpark(gpumem_arena *arena);

/* Finds the file and the offset of a device address in any arena of this process. path, of so many
 * bytes: set to the absolute path as of the open. ENOENT: no arena has the address. ERANGE: path is
 * too small. */
GPUMEM_API int gpumem_arena_find(unsigned long long address, char *path, size_t bytes,
				 uint64_t *offset);

/* Frees all of the arena's memory, unless another process or name holds the file. NULL is fine.
 * Errors as for gpumem_close. */
GPUMEM_API int gpumem_arena_close(gpumem_arena *arena);

/* The functions that torch.cuda.memory.CUDAPluggableAllocator takes. device: CUDA's number. */
struct gpumem_torch {
	void *(*alloc)(ssize_t size, int device, void *stream);
	void (*free)(void *address, ssize_t size, int device, void *stream);
};

/* Opens a pool: an arena for each device, in directory, which is the directory of the device, a
 * directory below, or the root of a mount with the device. The arena of device is opened at once,
 * and those of other devices with their first allocation. name: of the files, which must not exist;
 * NULL: "torch-PROCESS-DEVICE-N" with N of 0, or a random N if that file exists; and files of this
 * form are removed if their process was killed.
 *
 * functions: set on success, for the life of the pool. alloc gives NULL on failure; free waits for
 * the device's work. EMFILE: 15 pools are open. ENXIO: directory is of another GPU. Also the errors
 * of gpumem_arena_open. */
GPUMEM_API int gpumem_torch_open(const char *directory, const char *name, int device,
				 struct gpumem_torch *functions);

/* The pool ends with its last allocation, or at once if there is none. EINVAL: no such pool is
 * open.
 */
GPUMEM_API int gpumem_torch_close(const struct gpumem_torch *functions);

/* gpumem_arena_park and gpumem_arena_unpark for all arenas of a pool, or with NULL of all pools of
 * this process, that of GPUMEM_POOL included. gpumem_torch_park waits for the devices' work first.
 * Both end with the first error, and can be called again. EINVAL: no such pool. */
GPUMEM_API int gpumem_torch_park(const struct gpumem_torch *functions);
GPUMEM_API int gpumem_torch_unpark(const struct gpumem_torch *functions);

/* The functions of a pool in the directory that the environment variable GPUMEM_POOL names. */
GPUMEM_API void *gpumem_torch_alloc(ssize_t size, int device, void *stream);
GPUMEM_API void gpumem_torch_free(void *address, ssize_t size, int device, void *stream);

/* Words that processes order their work by, on GPUs and CPUs: 64-bit timelines, which only grow. A
 * file has a number of them. The process that creates the file signals; more processes open the
 * file and wait. When the creator has ended, in any way, or has closed its handle, every word
 * becomes GPUMEM_TIMELINE_ENDED, so that no stream waits for ever. */
typedef struct gpumem_timeline gpumem_timeline;

#define GPUMEM_TIMELINE_MAX   ((1ULL << 62) - 1)     /* the highest value to be signalled */
#define GPUMEM_TIMELINE_ENDED 9223372036854775807ULL /* 2^63 - 1: the creator has ended */

/* Creates a file of count timelines of value 0, and opens it. path: in host/, the memory of which
 * CPUs and all GPUs reach; or on a GPU, where streams of that GPU are faster and the CPU's loads
 * slower. mode: as for gpumem_create; to wait takes permission to read and write. flags: 0,
 * or GPUMEM_CREATE_EXCL. The file is removed with the creator; a killed process leaves the file,
 * which cannot be opened then.
 *
 * EINVAL: no count, or flags. ENOTSUP: the CPU cannot reach the GPU's memory (gpumem_map_host).
 * Also the errors of gpumem_create and gpumem_map_host. */
GPUMEM_API gpumem_timeline *gpumem_timeline_create(const char *path, size_t count, mode_t mode,
						   int flags);
/* EOWNERDEAD: the creator has ended. EINVAL: no file of timelines. Also the errors of gpumem_open
 * and gpumem_map_host. */
GPUMEM_API gpumem_timeline *gpumem_timeline_open(const char *path);
/* Makes the timeline of a number, counted from 0, have a value, after the work that the stream has
 * so far: a CUstream or cudaStream_t of the current context; NULL: its default stream. Values must
 * grow: a smaller value than before is not noticed. EINVAL: number or value; no current context; in
 * a child of fork. ENOTSUP: the GPU or its driver lacks stream memory operations. */
GPUMEM_API int gpumem_timeline_signal(gpumem_timeline *timeline, size_t number, void *stream,
				      uint64_t value);
/* The same at once, by the calling thread: its earlier stores by gpumem_map_host are visible to
 * those that see the value. */
GPUMEM_API int gpumem_timeline_signal_host(gpumem_timeline *timeline, size_t number,
					   uint64_t value);
/* Holds the stream's later work up until the timeline has at least the value. No thread waits. The
 * stream goes on when the creator has ended, too: a stream's wait cannot fail, so call
 * gpumem_timeline_check once the later work is done, and do not use its results after EOWNERDEAD.
 * Errors as for gpumem_timeline_signal. */
GPUMEM_API int gpumem_timeline_wait(gpumem_timeline *timeline, size_t number, void *stream,
				    uint64_t value);
/* The value now: set on success. */
GPUMEM_API int gpumem_timeline_value(gpumem_timeline *timeline, size_t number, uint64_t *value);
/* Waits with the calling thread, at most so many nanoseconds; -1: without an end. ETIMEDOUT.
 * EOWNERDEAD: the creator has ended. EINVAL. */
GPUMEM_API int gpumem_timeline_wait_host(gpumem_timeline *timeline, size_t number, uint64_t value,
					 int64_t timeout);
/* 0, or EOWNERDEAD: the creator has ended, and waits since then had no meaning. */
GPUMEM_API int gpumem_timeline_check(gpumem_timeline *timeline);
/* No GPU work may still use the timelines. NULL is fine. Errors as for gpumem_close. */
GPUMEM_API int gpumem_timeline_close(gpumem_timeline *timeline);

/* The alignment of a tensor in a safetensors file. */
enum gpumem_place {
	GPUMEM_ALIGNED = 1,   /* begins at a multiple of the alignment */
	GPUMEM_VIEWABLE = 2,  /* begins at a multiple of the element size: can be viewed in place */
	GPUMEM_MISALIGNED = 3 /* cannot be viewed in place */
};

struct gpumem_tensor {
	const char *name;      /* UTF-8 */
	const char *dtype;     /* as in the file: "BF16" */
	const uint64_t *shape; /* rank numbers */
	uint64_t offset;       /* of its first byte in the file */
	uint64_t size;
	uint32_t rank;
	uint32_t unit;	/* the element size: a viewable tensor begins at a multiple */
	uint32_t place; /* enum gpumem_place */
};

/* An entry of __metadata__. */
struct gpumem_metadata {
	const char *key;   /* UTF-8 */
	const char *value; /* UTF-8 that may contain NULs; a NUL follows the value */
	size_t value_bytes;
};

/* The header of a safetensors file. The library allocates headers, and may add members at the end.
 */
struct gpumem_safetensors {
	uint64_t data_start; /* of the data in the file */
	size_t n_tensors;
	const struct gpumem_tensor *tensors; /* in the header's order */
	size_t n_metadata;
	const struct gpumem_metadata *metadata;
};

/* Reads the header of a safetensors file and checks every value, because the file may be hostile:
 * size, depth, numbers and types, duplicate keys, and that the tensors cover the data without holes
 * or overlaps. The file does not have to be on gpumemfs. fd must be readable; its offset does not
 * change.
 *
 * header: set on success, and valid until gpumem_safetensors_free; no call changes the header. A
 * tensor's place is GPUMEM_ALIGNED or GPUMEM_MISALIGNED, as for an alignment of 1. A name with a
 * NUL is refused.
 *
 * EINVAL: no safetensors file, or no regular file. EISDIR: a directory. EBADF. ENOMEM. Also the
 * errors of read(2). */
GPUMEM_API int gpumem_safetensors_read(int fd, struct gpumem_safetensors **header);

/* NULL is fine. */
GPUMEM_API void gpumem_safetensors_free(struct gpumem_safetensors *header);

/* Writes the safetensors file source to target, with the header padded by spaces, as the format
 * allows, so that as many tensors as possible can be viewed in place, and as many of these tensors
 * as possible begin at a multiple of alignment: a power of two up to 1 MiB; 256 suits GPU kernels.
 * All tensors move by the same number of bytes, so some may stay misaligned. An empty tensor counts
 * as aligned.
 *
 * Neither file has to be on gpumemfs; if both are in the same mount, the daemon copies, and inside
 * a GPU the GPU copies. The new file is written beside target and replaces target when complete, so
 * target may be source, or a link to source; until then, and after a failure, target is unchanged.
 * An existing target keeps its permissions, and its extended attributes of user if the caller owns
 * the file; a new target gets the permissions of source. If target is source, root also keeps the
 * owner; ESTALE: another file has taken the place of source meanwhile. A target that is source and
 * needs no change stays as it is. As with cp, the new file is not synced to a disk.
 *
 * header: set on success to the header of the new file, which the caller frees; NULL is fine.
 *
 * EINVAL: source is no safetensors file, or no regular file; alignment is wrong; target exists and
 * is no regular file. EISDIR: either is a directory. ENOSPC, EDQUOT: no room for the new file
 * beside the old file. ENOMEM. Also the errors of open(2), read(2), write(2) and rename(2). */
GPUMEM_API int gpumem_align(const char *source, const char *target, size_t alignment,
			    struct gpumem_safetensors **header);

/* A tensor of a set. */
struct gpumem_set_tensor {
	const char *name;	 /* UTF-8 */
	const char *dtype;	 /* as in safetensors files: "BF16"; of whole bytes */
	const uint64_t *shape;	 /* rank numbers */
	const uint64_t *strides; /* rank numbers, in elements */
	uint64_t offset; /* of the first element in the file, a multiple of unit; 0: empty */
	uint64_t size;	 /* from there to the end of the last element; 0: empty */
	uint32_t rank;
	uint32_t unit; /* the element size */
	uint32_t file; /* the number of the file; 0: empty */
};

/* Tensors that a process shares, in a file for each of its allocator's segments, with an index. The
 * library allocates sets, and may add members at the end. */
struct gpumem_set {
	size_t n_files;
	const char *const *files; /* names in the directory */
	size_t n_tensors;
	const struct gpumem_set_tensor *tensors; /* in the index's order */
};

/* Reads the index tensors.json of a directory, as gpumem.torch.share writes it (docs/sharing.md has
 * the format), and checks every value, because the index may be hostile. directory: in gpuN/, or
 * elsewhere. set: set on success, and valid until gpumem_set_free; no call changes the set.
 *
 * ENOENT: no index. EINVAL: no index of a version that is known. ENOMEM. Also the errors of open(2)
 * and read(2). */
GPUMEM_API int gpumem_set_read(const char *directory, struct gpumem_set **set);
/* Opens a file of the set as gpumem_open does with O_RDONLY or O_RDWR, but no link, for all of its
 * tensors. ESTALE: the process that
 * shared the file has ended, or another file has its name: read the index again. EINVAL: the set
 * has no such file, or a tensor ends behind the file. Also the errors of gpumem_open. */
GPUMEM_API gpumem *gpumem_set_open(const struct gpumem_set *set, size_t file, int flags);
/* NULL is fine. */
GPUMEM_API void gpumem_set_free(struct gpumem_set *set);

/* The error of this thread's last failed call: a line of text, valid until the next failed call. ""
 * if no call has failed. */
GPUMEM_API const char *gpumem_error(void);

/* "0.1.0" */
GPUMEM_API const char *gpumem_version(void);

#ifdef __cplusplus
}
#endif

#endif
