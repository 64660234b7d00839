/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem: the memory of a file on gpumemfs, mapped by path. A path becomes a device pointer, a
 * CPU pointer or both, without a copy; every process that maps the file has the same bytes.
 *
 * Functions that return int give 0, or -1 with errno; those that return a pointer NULL with errno.
 * gpumem_error() has the text. All sizes are in bytes. Every function may be called from any thread
 * at any time; a call that needs a handle while another thread closes it is the caller's mistake.
 * libcuda, libvulkan and libgdrapi are loaded when first needed, and a missing one is an error of
 * the call that needed it. No function makes a CUDA context. See libgpumem(3). */
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

/* A file whose memory this process holds: a lease, and at most one mapping of either kind. While it
 * is open the memory cannot be taken away: unlinking the file keeps it, shrinking it is EBUSY. */
typedef struct gpumem gpumem;

/* flags: O_RDONLY or O_RDWR of fcntl.h; O_CLOEXEC is always added. Every open is a lease of its
 * own.
 *
 * With O_RDONLY a GPU file is a private copy, made on the GPU at this moment (GPUMEM_INFO_PRIVATE),
 * unless its attribute user.gpumem.share is "trusted"; then, and in host/, it is the file itself,
 * which is not to be written to (GPUMEM_INFO_READ_ONLY).
 *
 * ENOTSUP: not on gpumemfs, or its daemon does not share. EISDIR: a directory. EINVAL: another kind
 * of file, or other flags. ENOTCONN: the daemon cannot be reached. EPROTO: what answers is not a
 * daemon of this version. ENOSPC, EDQUOT: no room to make the file fit for sharing, or to copy it.
 * EMFILE: too many leases or descriptors. And what open(2) gives. */
GPUMEM_API gpumem *gpumem_open(const char *path, int flags);

/* The same for a file that is open already; fd stays the caller's, who may close it at once. The
 * right to write is that of the descriptor, which must be readable. Unlike gpumem_open and
 * gpumem_close, which open and close the file, this leaves the process's fcntl(2) locks alone. */
GPUMEM_API gpumem *gpumem_open_fd(int fd);

/* Unmaps what is mapped and ends the lease. No GPU work and no other thread may still use the
 * mappings. NULL is fine. The handle is gone even when this fails: EIO, EBUSY: what could not be
 * unmapped stays mapped until the process ends. */
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
	uint32_t device;      /* the N of gpuN, which is nvidia-smi's; 0 in host/ */
	uint8_t uuid[16];     /* of the GPU; zero in host/ */
	char provider[12];    /* of the CPU mapping: "dmabuf", "gdrcopy", "vulkan", "mmap"; or "" */
};

/* Fills in as many bytes of info as info->bytes says. EINVAL: fewer than that member needs. */
GPUMEM_API int gpumem_get_info(gpumem *file, struct gpumem_info *info);

/* The file as one contiguous range of device addresses, for the device of the calling thread's
 * current CUDA context: the file's own GPU, or a peer. The address is good in every context of that
 * device, and for a GPU file of the file's own. In host/ it is system memory that the GPU reaches.
 * Called again it gives the same address, good for that context's device too. Behind the size, up
 * to mappable, lies slack that is not part of the file.
 *
 * address, bytes (of the file; may be NULL): set on success.
 * EINVAL: the thread has no current context (nor can it have one in a child of a process that used
 * CUDA), or the file is empty. ENODEV: no libcuda. ENXIO: the file's GPU is not visible to this
 * process. ENOTSUP: the device is no peer of the file's. ENOMEM: address space, or memory to pin.
 * ENOSPC: the GPU has no room for page tables. EIO: the driver failed. */
GPUMEM_API int gpumem_map_device(gpumem *file, unsigned long long *address, size_t *bytes);
GPUMEM_API int gpumem_unmap_device(gpumem *file);

/* The file as one contiguous range of CPU addresses. A GPU file is mapped through the GPU's BAR: a
 * write-combined mapping, with stores of 10 GB/s and loads that are slow (use streaming loads, or a
 * copy by the GPU); gpumem_flush promises the stores. Called again it gives the same address.
 *
 * A read-only file is mapped for reading where it is system memory; on a GPU the CPU's mapping is
 * writable all the same, and mind is all that protects it.
 *
 * EINVAL: the file is empty. ENOTSUP: no way to the BAR works here, or none that can map a file of
 * several chunks in one piece. ENOSPC: the BAR is full. ENOMEM. EIO. */
GPUMEM_API int gpumem_map_host(gpumem *file, void **address, size_t *bytes);
GPUMEM_API int gpumem_unmap_host(gpumem *file);

/* After the file grew: the lease and the mappings cover its new size, at the same addresses.
 * ENOSPC: the room behind a mapping is used up; the lease is extended all the same, and the mapping
 * is as it was: unmap it and map it again, at another address. ENOTSUP: a private copy does not
 * grow. ENOTCONN: the daemon has ended. */
GPUMEM_API int gpumem_extend(gpumem *file);

/* Makes the stores of this process's CPUs through gpumem_map_host visible to every GPU and process.
 * For readers on another GPU than the file's, call this function with a current context. */
GPUMEM_API int gpumem_flush(gpumem *file);

/* Ends the leases that all processes have of the file, for its owner and for root: it can be made
 * shorter, written anew and moved again. What those processes have mapped stays theirs, and is the
 * file's as well until the file gets other memory. Private copies stay.
 *
 * leases: how many there were; NULL is fine. EPERM: not the caller's file. ENOTSUP: not on
 * gpumemfs. And what open(2) gives. */
GPUMEM_API int gpumem_drop_leases(const char *path, uint64_t *leases);

/* How a tensor of a safetensors file lies there. */
enum gpumem_place {
	GPUMEM_ALIGNED = 1, /* it begins at a multiple of the alignment */
	GPUMEM_VIEWABLE =
	    2, /* not so, but at one of its element's size: it can be viewed in place */
	GPUMEM_MISALIGNED = 3 /* it cannot be */
};

/* The library's, with its texts, as long as the call that it is an argument of. */
struct gpumem_tensor {
	const char *name;  /* UTF-8 */
	const char *dtype; /* as the file has it: "BF16" */
	uint64_t offset;   /* of its first byte in the new file */
	uint64_t size;
	uint32_t unit;	/* its element's size: to be viewed it has to begin at a multiple */
	uint32_t place; /* enum gpumem_place */
};

struct gpumem_align_result {
	size_t bytes;	     /* set by the caller: sizeof(struct gpumem_align_result) */
	uint64_t data_start; /* of the data in the new file */
	uint64_t aligned;    /* tensors: so many are GPUMEM_ALIGNED, */
	uint64_t viewable;   /* GPUMEM_VIEWABLE, */
	uint64_t misaligned; /* GPUMEM_MISALIGNED */
};

/* Writes the safetensors file source to target with its header padded by spaces, as the format
 * allows, so that as many tensors as possible can be viewed in place, and as many of those as
 * possible begin at a multiple of alignment: a power of two up to 1 MiB; 256 suits GPU kernels. All
 * tensors move by the same number of bytes, so some may stay misaligned. An empty tensor counts as
 * aligned.
 *
 * Neither file has to be on gpumemfs; where both are in one mount, the daemon copies, inside a GPU
 * the GPU. The new file is written beside target and takes its place when it is complete: target
 * may be source, or a link to it, and until then, and after a failure, is what it was. It keeps its
 * permissions; one that did not exist gets those of source. As with cp, nothing is synced.
 *
 * each is called for every tensor, in the header's order, when target is in place; NULL: for none.
 * result: as many bytes as result->bytes says are set on success; NULL is fine.
 *
 * EINVAL: source is no safetensors file, whose header is believed in nothing, or no regular file;
 * alignment or result->bytes is wrong; target is there and no regular file. EISDIR: either is a
 * directory. ENOSPC, EDQUOT: no room for the new file beside the old. ENOMEM. And what open(2),
 * read(2), write(2) and rename(2) give. */
GPUMEM_API int gpumem_align(const char *source, const char *target, size_t alignment,
			    void (*each)(const struct gpumem_tensor *tensor, void *user),
			    void *user, struct gpumem_align_result *result);

/* What failed in this thread's last call that failed: one line, valid until its next failure. ""
 * when nothing has. */
GPUMEM_API const char *gpumem_error(void);

/* "0.1.0" */
GPUMEM_API const char *gpumem_version(void);

#ifdef __cplusplus
}
#endif

#endif
