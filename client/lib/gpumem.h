/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem: maps the memory of a file on gpumemfs by path. A path becomes a device pointer, a CPU
 * pointer or both, without a copy; all processes that map the file share the same bytes.
 *
 * Functions that return int return 0, or -1 with errno; functions that return a pointer return NULL
 * with errno. gpumem_error() has the text. All sizes are in bytes. Every function may be called
 * from any thread at any time, but a caller must not close a handle during another thread's call
 * with the handle. libcuda, libvulkan and libgdrapi are loaded on first use; a missing library is
 * an error of the call that needed the library. No function makes a CUDA context. See libgpumem(3).
 */
#ifndef GPUMEM_H
#define GPUMEM_H

#include <stddef.h>
#include <stdint.h>

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

/* flags: O_RDONLY or O_RDWR of fcntl.h; O_CLOEXEC is always added. Every open has its own lease.
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

/* The same for an open file; the caller keeps fd, and may close fd at once. The handle allows
 * writing if fd does; fd must be readable. Unlike gpumem_open and gpumem_close, which open and
 * close the file, this function does not touch the process's fcntl(2) locks. */
GPUMEM_API gpumem *gpumem_open_fd(int fd);

/* Unmaps all mappings and ends the lease. No GPU work and no other thread may still use the
 * mappings. NULL is fine. The handle is freed even on failure: EIO, EBUSY: a mapping that could not
 * be unmapped stays until the process ends. */
GPUMEM_API int gpumem_close(gpumem *file);

enum gpumem_kind {
	GPUMEM_FILE_DEVICE = 1,	  /* memory of a GPU */
	GPUMEM_FILE_HOST = 2,	  /* system memory, of host/ */
	GPUMEM_FILE_SIMULATED = 3 /* system memory that simulates a GPU */
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
 * address, bytes (of the file; may be NULL): set on success. EINVAL: the thread has no current
 * context (nor can have a context, in a child of a process that used CUDA), or the file is empty.
 * ENODEV: no libcuda. ENXIO: the file's GPU is not visible to this process. ENOTSUP: the device is
 * no peer of the file's GPU. ENOMEM: no address space, or no memory to pin. ENOSPC: the GPU has no
 * room for page tables. EIO: the driver failed. */
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

/* After the file grew: makes the lease and the mappings cover the new size, at the same addresses.
 * ENOSPC: the room behind a mapping is used up; the lease covers the new size all the same, and the
 * mapping is unchanged: unmap the file and map the file again, at another address. ENOTSUP: a
 * private copy does not grow. ENOTCONN: the daemon has ended. */
GPUMEM_API int gpumem_extend(gpumem *file);

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

/* The alignment of a tensor in a safetensors file. */
enum gpumem_place {
	GPUMEM_ALIGNED = 1,   /* begins at a multiple of the alignment */
	GPUMEM_VIEWABLE = 2,  /* begins at a multiple of the element size: can be viewed in place */
	GPUMEM_MISALIGNED = 3 /* cannot be viewed in place */
};

/* Belongs to the library, with the texts, and is valid during the callback. */
struct gpumem_tensor {
	const char *name;  /* UTF-8 */
	const char *dtype; /* as in the file: "BF16" */
	uint64_t offset;   /* of its first byte in the new file */
	uint64_t size;
	uint32_t unit;	/* the element size: a viewable tensor begins at a multiple */
	uint32_t place; /* enum gpumem_place */
};

struct gpumem_align_result {
	size_t bytes;	     /* set by the caller: sizeof(struct gpumem_align_result) */
	uint64_t data_start; /* of the data in the new file */
	uint64_t aligned;    /* number of tensors that are GPUMEM_ALIGNED */
	uint64_t viewable;   /* number of GPUMEM_VIEWABLE tensors */
	uint64_t misaligned; /* number of GPUMEM_MISALIGNED tensors */
};

/* Writes the safetensors file source to target, with the header padded by spaces, as the format
 * allows, so that as many tensors as possible can be viewed in place, and as many of these tensors
 * as possible begin at a multiple of alignment: a power of two up to 1 MiB; 256 suits GPU kernels.
 * All tensors move by the same number of bytes, so some may stay misaligned. An empty tensor counts
 * as aligned.
 *
 * Neither file has to be on gpumemfs; if both are in the same mount, the daemon copies, and inside
 * a GPU the GPU copies. The new file is written beside target and replaces target when complete, so
 * target may be source, or a link to source; until then, and after a failure, target is unchanged.
 * An existing target keeps its permissions; a new target gets the permissions of source. As with
 * cp, the new file is not synced to a disk.
 *
 * each is called for every tensor, in the header's order, after target was replaced; NULL: no
 * calls. result: the first result->bytes bytes are set on success; NULL is fine.
 *
 * EINVAL: source is no safetensors file (every value of the header is checked), or no regular file;
 * alignment or result->bytes is wrong; target exists and is no regular file. EISDIR: either is a
 * directory. ENOSPC, EDQUOT: no room for the new file beside the old file. ENOMEM. Also the errors
 * of open(2), read(2), write(2) and rename(2). */
GPUMEM_API int gpumem_align(const char *source, const char *target, size_t alignment,
			    void (*each)(const struct gpumem_tensor *tensor, void *user),
			    void *user, struct gpumem_align_result *result);

/* The error of this thread's last failed call: a line of text, valid until the next failed call. ""
 * if no call has failed. */
GPUMEM_API const char *gpumem_error(void);

/* "0.1.0" */
GPUMEM_API const char *gpumem_version(void);

#ifdef __cplusplus
}
#endif

#endif
