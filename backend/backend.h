/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The contract between gpumemfs and a kind of memory: devices, chunks, copies, BAR mappings.
 *
 * A provider (backend/cuda, backend/host) fills in struct backend_ops and embeds the structs below
 * as the first member of its own structs. Only backend/ calls the ops: fs/ uses pool.h for memory,
 * copy.h for bytes, and the checking wrappers declared here for everything else.
 *
 * Every function returns 0 (or a positive result) or -errno, and sets its outputs only on success.
 * -ENOSPC: the device has no memory left. -EIO: the device reported an uncorrectable error or is
 * gone (device->failed stays set until reset.h brings the device back; other devices go on), or the
 * memory of a chunk is lost. -ENOTSUP: the provider or the machine lacks the operation. The
 * function that notices an error first logs the error; callers do not log again. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/health.h"
#include "backend/reset.h"
#include "common/brlock.h"

/* Chunk sizes are multiples of this: the VMM granularity of every NVIDIA GPU with VMM. */
#define CHUNK_ALIGN (2ULL << 20)

#define BACKEND_DEVICES_MAX 64

enum backend_kind { BACKEND_AUTO, BACKEND_CUDA, BACKEND_HOST };

/* Ways to a CPU mapping of device memory (BAR1), in the order in which auto tries them. */
enum bar_provider { BAR_AUTO, BAR_DMABUF, BAR_GDRCOPY, BAR_VULKAN, BAR_OFF, BAR_DIRECT };

struct backend_config {
	enum backend_kind kind;
	const char *gpus; /* comma-separated indices as nvidia-smi numbers them, or NULL for all */
	uint64_t host_bytes; /* host backend: memory of each simulated GPU */
	unsigned host_gpus;  /* host backend: number of simulated GPUs (1..BACKEND_DEVICES_MAX) */
	enum bar_provider bar;
	/* Where a missing GPU is no error: a buffer for the reason. NULL: a missing GPU is an
	 * error, and logged. */
	char *why;
	size_t why_bytes;
};

struct device_memory {
	uint64_t total, free; /* bytes, by the driver's count at the moment of the call */
};

struct backend;
struct bar_cache;

struct device {
	struct backend *backend;
	unsigned index;	    /* the N of gpuN: nvidia-smi's number */
	unsigned slot;	    /* position in backend->devices */
	char name[96];	    /* "NVIDIA H200" */
	char uuid[48];	    /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	char pci[24];	    /* "0000:9a:00.0", or empty */
	uint64_t total;	    /* bytes */
	uint64_t bar_bytes; /* bytes of the device that may be BAR-mapped at once; 0: none */
	atomic_bool failed; /* an error ended the device's context: every operation is -EIO */
	struct health health;
	struct bar_cache *bar; /* owned by bar_cache.c */
	/* The results of copy_measure; owned by crossover.c. */
	atomic_int crossover_state;
	_Atomic uint64_t crossover_write, crossover_read, crossover_overlap;
};

struct backend {
	const struct backend_ops *ops;
	const char *name; /* "cuda", "host" */
	char version[64]; /* driver version for log lines, or empty */
	struct device *devices[BACKEND_DEVICES_MAX];
	unsigned n_devices;
	struct resetter resetter;
};

/* When the BAR mapping of a chunk is made and removed (the attribute user.gpumem.mapping). */
enum map_policy { MAP_AUTO, MAP_PERSISTENT, MAP_TRANSIENT };

/* A physical allocation. bytes is a multiple of CHUNK_ALIGN. The provider fills in device and
 * bytes; the wrapper chunk_new initialises the rest. bar_cache.c owns the fields from bar on. */
struct chunk {
	struct device *device;
	uint64_t bytes;
	uint64_t id;		/* the name given by the pool's watch (pool.h); 0: none */
	void *pool_private;	/* pool.c: the state of a shared chunk, NULL for an owned chunk */
	atomic_bool lost;	/* the device's reset could not read the bytes back: -EIO */
	atomic_bool handed_out; /* other processes may have the chunk mapped; maintained by the
				   chunk's user */
	struct chunk *prev, *next, *next_dropped; /* health.c */
	_Atomic(void *) bar;	    /* CPU address of the mapping, or NULL; use under bar_guard */
	struct brlock bar_guard;    /* shared: the mapping is in use; exclusive: it goes away */
	_Atomic uint32_t bar_heat;  /* unmapped: small accesses so far; mapped: used lately */
	_Atomic uint8_t bar_policy; /* enum map_policy */
	atomic_bool bar_refused;    /* mapping failed once: do not try again */
	struct chunk *bar_prev, *bar_next; /* the device's mapped chunks that may be evicted */
};

/* A part of a chunk. The extents of files point at spans. */
struct span {
	struct chunk *chunk;
	uint64_t offset; /* bytes into the chunk */
	uint64_t bytes;
};

/* The means of one thread to copy: streams, staging memory, registrations. Threads never share a
 * copier. */
struct copier {
	struct backend *backend;
	/* Moved so far, for the statistics; read without synchronisation. */
	uint64_t bytes_bar, bytes_dma;
	bool enqueued; /* copy.c: DMA was enqueued since the last wait */
};

/* The kinds of file descriptors that chunk_export makes: CUDA's handle of a VMM allocation, or a
 * memfd that a process maps. */
enum export_kind { EXPORT_VMM, EXPORT_MEMFD };

/* The functions of a provider. dma_* enqueue on the copier. Host memory that dma_* get either lies
 * inside a range registered with pin, or is any memory: then the provider stages the bytes, and
 * returns after the staging copy. wait returns when all enqueued work is complete and visible to
 * every other process and to kernels launched from then on; the first error of the batch is
 * returned by wait or earlier. */
struct backend_ops {
	const char *name;
	enum export_kind export_kind;
	int (*open)(const struct backend_config *config, struct backend **backend);
	void (*close)(struct backend *backend); /* all chunks and copiers were freed before */

	int (*memory)(struct device *device, struct device_memory *memory);
	/* Frees the resources of a device without memory in use, such as the context; the next use
	 * makes them again. -EBUSY: the device has memory in use, or another thread is using the
	 * device at this moment. Any thread. */
	int (*rest)(struct device *device);
	/* The BAR provider's name, "vulkan" or "direct"; "none" or the provider that will be tried,
	 * with the reason in why. */
	const char *(*bar_name)(struct device *device, const char **why);

	/* The content is undefined. Needs no copier; any thread. */
	int (*chunk_new)(struct device *device, uint64_t bytes, struct chunk **chunk);
	void (*chunk_free)(struct chunk *chunk); /* no copy is in flight, and no mapping is left */
	int (*chunk_export)(struct chunk *chunk, int *fd); /* the caller owns the fd */
	/* Imports the chunk of bytes for which chunk_export made fd, also in another process and
	 * also after the end of that process; the chunk can be exported again. On success the chunk
	 * owns the fd, else the caller does. */
	int (*chunk_import)(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);

	int (*copier_new)(struct backend *backend, struct copier **copier);
	void (*copier_free)(struct copier *copier);
	/* Declares host memory, valid until unpin, as a DMA target; a GPU registers the range at
	 * the first use. */
	int (*pin)(struct copier *copier, void *base, size_t bytes);
	void (*unpin)(struct copier *copier, void *base);
	/* Registers host memory at once, for copies of every copier with this device. Such copies
	 * do not touch the memory by the CPU, because pages may be missing (another process may
	 * have truncated the mapped file). A second call for a registered range makes sure that the
	 * registration still exists; the registration lasts while the device has memory in use.
	 * NULL: the provider copies by the CPU. */
	int (*pin_for_all)(struct device *device, void *base, size_t bytes);
	void (*unpin_for_all)(struct device *device, void *base); /* no copy uses the range */

	int (*dma_in)(struct copier *, struct chunk *to, uint64_t offset, const void *from,
		      size_t bytes);
	int (*dma_out)(struct copier *, void *to, struct chunk *from, uint64_t offset,
		       size_t bytes);
	int (*dma_across)(struct copier *, struct chunk *to, uint64_t to_offset, struct chunk *from,
			  uint64_t from_offset, uint64_t bytes);
	int (*dma_zero)(struct copier *, struct chunk *to, uint64_t offset, uint64_t bytes);
	int (*wait)(struct copier *);

	/* After an error that ended the device's context: makes a new context, with all mappings
	 * that the chunks (health.chunks) need, and sets lost on chunks whose memory cannot be read
	 * any more. Meanwhile only copiers use the device, their new copies are refused, and no
	 * chunk is mapped through the BAR. -EBUSY: copies are in flight, which end soon. Other
	 * errors: a later try may succeed. NULL: devices of this provider do not fail. */
	int (*reset)(struct device *device);

	/* Maps the whole chunk into this process through the device's BAR. Slow (see FACTS in the
	 * provider); only bar_cache.c calls bar_map and bar_unmap, one call at a time per device.
	 */
	int (*bar_map)(struct chunk *chunk, void **address);
	void (*bar_unmap)(struct chunk *chunk, void *address);
	/* The cost of bar_map by size, in ns per MiB (bar_cache.c adds the fixed cost): the input
	 * of the rent-or-buy rule. 0: mapping is free. */
	uint32_t (*bar_cost)(struct device *device);
};

extern const struct backend_ops backend_cuda_ops, backend_host_ops;

/* Opens the backend named by config. BACKEND_AUTO: cuda if a driver and a GPU are present, else
 * host, with one line in the log. An index in gpus without a GPU is -ENODEV, with a line that names
 * the index. */
int backend_open(const struct backend_config *config, struct backend **backend);
void backend_close(struct backend *backend);

/* Whether the GPUs are simulated in system memory. */
static inline bool backend_is_host(const struct backend *backend)
{
	return backend->ops->export_kind == EXPORT_MEMFD;
}

/* For providers: parses list ("0", "0,2", "0-3"; NULL: all) of GPUs among 0..available-1 into
 * indices[BACKEND_DEVICES_MAX], ascending. -EINVAL (malformed, or an index named twice) and -ENODEV
 * (no such GPU), each with a line in the log. */
int backend_parse_gpus(const char *list, unsigned available, unsigned *indices, unsigned *n);

int device_memory(struct device *device, struct device_memory *memory);
/* The BAR's provider. why: the reason if there is no provider, or none chosen yet; else NULL. */
const char *device_bar_name(struct device *device, const char **why);
/* See backend_ops.rest. 0 also if the device holds no resources, or failed. */
int device_idle_release(struct device *device);
/* See backend_ops.pin_for_all: 0 or -errno; errors are not logged. */
int device_pin(struct device *device, void *base, size_t bytes);
void device_unpin(struct device *device, void *base);
/* Marks the device failed and logs the failure once. */
void device_fail(struct device *device, const char *what);
/* DEVICE_RESETTING: the device failed, and a reset is under way; DEVICE_FAILED: no reset will be
 * tried. */
enum device_health { DEVICE_OK, DEVICE_RESETTING, DEVICE_FAILED };
enum device_health device_health(struct device *device);
const char *device_health_name(struct device *device); /* "ok", "resetting", "failed" */

/* Checked forms: -EIO on a failed device, assertions on ranges in debug builds. */
int chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk);
void chunk_free(struct chunk *chunk); /* drops its mapping first; NULL is fine */
int chunk_export(struct chunk *chunk, int *fd);
int chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);

#endif
