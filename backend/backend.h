/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The contract between gpumemfs and a kind of memory: devices, chunks, copies, BAR mappings.
 *
 * A provider (backend/cuda, backend/host) fills in struct backend_ops, and embeds each struct
 * below as the first member of its own. Only backend/ calls the ops: fs/ uses pool.h for memory,
 * copy.h for bytes, and otherwise the checking wrappers declared here.
 *
 * Every function returns 0 (or a positive result) or -errno, and sets its outputs only on
 * success. -ENOSPC: the device has no memory left. -EIO: the device reported an uncorrectable error
 * or is gone (then device->failed is set until reset.h has reset the device; other devices go on),
 * or a chunk's memory is lost. -ENOTSUP: this provider or machine cannot. The function that notices
 * an error first logs the error; callers do not log again. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/health.h"
#include "backend/reset.h"
#include "common/brlock.h"

/* A chunk's size is a multiple of this: the VMM granularity of every NVIDIA GPU with VMM. */
#define CHUNK_ALIGN (2ULL << 20)

#define BACKEND_DEVICES_MAX 64

enum backend_kind { BACKEND_AUTO, BACKEND_CUDA, BACKEND_VULKAN, BACKEND_HOST };

/* Ways to a CPU mapping of device memory (BAR1), in the order in which BAR_AUTO tries them. */
enum bar_provider { BAR_AUTO, BAR_DMABUF, BAR_GDRCOPY, BAR_VULKAN, BAR_OFF };

struct backend_config {
	enum backend_kind kind;
	const char *gpus;    /* comma-separated numbers, as nvidia-smi's, names, UUIDs; NULL: all */
	uint64_t host_bytes; /* host backend: memory of each simulated GPU */
	unsigned host_gpus;  /* host backend: number of simulated GPUs (1..BACKEND_DEVICES_MAX) */
	enum bar_provider bar;
	/* gpus has the GPUs of an earlier daemon, whose files they may still have: a GPU that
	 * cannot be used now is opened nevertheless. */
	bool recovers;
	/* Room for the reason why there is no GPU, for a caller that can do without. NULL: that is
	 * an error, and logged. */
	char *reason;
	size_t reason_bytes;
};

struct device_memory {
	uint64_t total, free; /* bytes, as the driver counts them now */
};

struct backend;
struct bar_cache;

struct device {
	struct backend *backend;
	unsigned index; /* nvidia-smi's number of the GPU; MIG instances have their GPU's */
	unsigned slot;	/* position in backend->devices */
	char label[32]; /* the device's directory: "gpu0", or "gpu0.mig1" for a MIG instance */
	char name[96];	/* "NVIDIA H200" */
	char uuid[48];	/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	char pci[24];	/* "0000:9a:00.0", or empty */
	/* Of an NVIDIA GPU: "default", "exclusive_process" or "prohibited"; else NULL. */
	_Atomic(const char *) compute_mode;
	uint64_t total;	    /* bytes */
	uint64_t chunk_max; /* bytes of the largest chunk that the driver makes; 0: no limit */
	uint64_t bar_bytes; /* how much of the device may be BAR-mapped at once; 0: nothing */
	bool host_memory;   /* the device can have chunks in PLACE_HOST */
	atomic_bool failed; /* an error ended the device's context: every operation is -EIO */
	struct health health;
	struct bar_cache *bar; /* belongs to bar_cache.c */
	/* The results of copy_measure; belong to crossover.c. */
	atomic_int crossover_state;
	_Atomic uint64_t crossover_write, crossover_read, crossover_overlap;
};

struct backend {
	const struct backend_ops *ops;
	const char *name; /* "cuda", "vulkan", "host" */
	char version[64]; /* the driver's version for people, or empty */
	struct device *devices[BACKEND_DEVICES_MAX];
	unsigned n_devices;
	struct resetter resetter;
	int disk_dir; /* disk.h: the directory of chunks in PLACE_DISK; -1: there are none */
};

/* When a chunk's BAR mapping is made and removed (the attribute user.gpumem.mapping). */
enum map_policy { MAP_AUTO, MAP_PERSISTENT, MAP_TRANSIENT };

/* Where a chunk's memory is: in the device; in system memory that the device addresses through the
 * link, and the CPU directly; or in a file on a disk, which no device can address (disk.h). From
 * the fastest to the slowest. */
enum memory_place { PLACE_GPU, PLACE_HOST, PLACE_DISK, PLACES };

/* A chunk's memory: new, of this daemon or an earlier one, or of another program. LATER: imported
 * at the first use of the chunk, for memory that the daemon may never use: an import takes 70 us on
 * an H200, whatever the size. */
enum chunk_origin { CHUNK_NEW, CHUNK_OURS, CHUNK_FOREIGN, CHUNK_FOREIGN_LATER };

/* "gpu", "host", "disk": for texts and JSON. */
const char *memory_place_name(enum memory_place place);

/* CHUNK_KEPT: no other process has ever had a descriptor of the chunk. CHUNK_HANDING_OUT: another
 * process may have one. CHUNK_HANDED_OUT: the same, and the next daemon will know. CHUNK_HELD: the
 * same, and a process that received a descriptor lives: the pool counts the bytes after the chunk
 * is freed, until pool_held_end. */
enum chunk_handed_out { CHUNK_KEPT, CHUNK_HANDING_OUT, CHUNK_HANDED_OUT, CHUNK_HELD };

/* An allocation of physical memory. bytes is a multiple of CHUNK_ALIGN. The provider fills in
 * device, bytes and place, the wrapper chunk_new the rest. The fields from bar on belong to
 * bar_cache.c. */
struct chunk {
	struct device *device;
	uint64_t bytes;
	enum memory_place place;
	uint64_t id;	    /* given by the pool's watcher (pool.h); 0: no watcher */
	void *pool_private; /* blocks.c: the state of a shared chunk; NULL: a span owns the chunk */
	atomic_bool lost;   /* the bytes could not be read after a reset: -EIO */
	bool foreign;	    /* another program allocated the memory and goes on using the memory */
	_Atomic uint8_t handed_out;		  /* enum chunk_handed_out; set by fs/ */
	struct chunk *prev, *next, *next_dropped; /* health.c */
	_Atomic(void *) bar; /* CPU address of the mapping, or NULL; used under bar_use_lock */
	struct brlock bar_use_lock; /* read-locked: in use; write-locked: being removed */
	_Atomic uint32_t bar_heat;  /* unmapped: small accesses so far; mapped: used lately */
	_Atomic uint8_t bar_policy; /* enum map_policy */
	atomic_bool bar_refused;    /* mapping failed once: do not try again */
	struct chunk *bar_prev, *bar_next; /* mapped chunks that may be evicted */
};

/* A part of a chunk, as an extent of a file refers to. */
struct span {
	struct chunk *chunk;
	uint64_t offset; /* bytes from the chunk's start */
	uint64_t bytes;
};

/* A thread's resources for copying: streams, staging memory, registrations. Never shared between
 * threads. */
struct copier {
	struct backend *backend;
	uint64_t bytes_bar, bytes_dma; /* copied so far, for the statistics; read without a lock */
	bool enqueued;		       /* copy.c: DMA was enqueued since the last wait */
	void *disk_buffer; /* copy.c: DISK_BUFFER_BYTES, pinned, for copies with PLACE_DISK; or NULL
			    */
};

/* What chunk_export gives: a memfd that a process maps, of a GPU simulated in system memory; a
 * handle of CUDA's VMM; an opaque descriptor of Vulkan. */
enum chunk_handle { CHUNK_MEMFD, CHUNK_CUDA_VMM, CHUNK_VULKAN };

/* The functions of a provider. dma_* enqueue a copy on the copier. Host memory passed to them is
 * either in a range registered with pin or any other memory; the provider stages the latter and
 * returns when the bytes are copied. wait returns when all enqueued copies are complete and visible
 * to every other process and to kernels launched later; the first error of the batch is returned by
 * wait or earlier. */
struct backend_ops {
	const char *name;
	enum chunk_handle handle;
	int (*open)(const struct backend_config *config, struct backend **backend);
	void (*close)(struct backend *backend); /* all chunks and copiers are freed */

	int (*memory)(struct device *device, struct device_memory *memory);
	/* Releases the driver's resources for an idle device, until needed again. -EBUSY: the
	 * device has memory, or is being used. Any thread. */
	int (*idle_release)(struct device *device);
	/* The name of the way to the BAR, such as "vulkan" or "direct"; or "none", or before the
	 * first mapping the way to be tried, with *reason. */
	const char *(*bar_name)(struct device *device, const char **reason);

	/* The content is undefined. Any thread, no copier. -ENOTSUP for PLACE_HOST: this machine
	 * has no such memory. Providers are never asked for PLACE_DISK. */
	int (*chunk_new)(struct device *device, enum memory_place place, uint64_t bytes,
			 struct chunk **chunk);
	void (*chunk_free)(struct chunk *chunk); /* no copy is under way and no mapping is left */
	int (*chunk_export)(struct chunk *chunk, int *fd); /* the descriptor is the caller's */
	/* The chunk that fd, from chunk_export in a process that may have ended, refers to; can be
	 * exported again. On success fd is the chunk's, otherwise the caller's. */
	int (*chunk_import)(struct device *device, enum memory_place place, uint64_t bytes, int fd,
			    struct chunk **chunk);
	/* As chunk_import for PLACE_GPU, but fd may be any descriptor. Succeeds only if fd is
	 * memory of this device, of so many bytes, which the program that made fd cannot take away
	 * or shorten. -EINVAL otherwise, and the device does not fail. CHUNK_FOREIGN_LATER: may
	 * look at fd at the first use of the chunk, which fails with -EIO then. NULL: never
	 * possible. */
	int (*chunk_import_foreign)(struct device *device, uint64_t bytes, int fd,
				    enum chunk_origin origin, struct chunk **chunk);

	int (*copier_new)(struct backend *backend, struct copier **copier);
	void (*copier_free)(struct copier *copier);
	/* Declares host memory, which stays until unpin, as a target of DMA. Registered with a GPU
	 * at the first use. */
	int (*pin)(struct copier *copier, void *base, size_t bytes);
	void (*unpin)(struct copier *copier, void *base);
	/* Registers host memory at once, for copies of every copier with this device. Such copies
	 * never touch the memory by the CPU, because the memory may be gone (a mapping of a
	 * shortened file). Called again for a registered range, renews an invalid registration; a
	 * registration stays valid while memory is allocated on the device. NULL: copies are made
	 * by the CPU. */
	int (*pin_for_all)(struct device *device, void *base, size_t bytes);
	void (*unpin_for_all)(struct device *device, void *base); /* no copy uses the memory */

	int (*dma_in)(struct copier *, struct chunk *to, uint64_t offset, const void *from,
		      size_t bytes);
	int (*dma_out)(struct copier *, void *to, struct chunk *from, uint64_t offset,
		       size_t bytes);
	int (*dma_across)(struct copier *, struct chunk *to, uint64_t to_offset, struct chunk *from,
			  uint64_t from_offset, uint64_t bytes);
	int (*dma_zero)(struct copier *, struct chunk *to, uint64_t offset, uint64_t bytes);
	int (*wait)(struct copier *);

	/* After the end of the device's context by an error: makes a new context for the chunks
	 * (health.chunks), and sets lost on chunks with unreadable memory. No other thread uses the
	 * device except copiers, with new copies refused, and no chunk is BAR-mapped. -EBUSY:
	 * copies are still under way and will end soon. Other errors: a later attempt may work.
	 * NULL: devices do not fail. */
	int (*reset)(struct device *device);

	/* Maps the whole chunk into this process: through the device's BAR, which is slow, or
	 * PLACE_HOST directly, which takes no room of the BAR. Only bar_cache.c calls bar_map and
	 * bar_unmap, never two at once per device. */
	int (*bar_map)(struct chunk *chunk, void **address);
	void (*bar_unmap)(struct chunk *chunk, void *address);
	/* The cost of bar_map by size, in ns per MiB (bar_cache.c adds the cost that all sizes
	 * have): rent-or-buy decides by the cost. 0: mapping is free. */
	uint32_t (*bar_cost)(struct device *device);
};

/* Opens config's provider. BACKEND_AUTO: cuda if its driver and a GPU are present; else vulkan if a
 * driver has a discrete or integrated GPU; else host with a line in the log. A missing GPU in gpus
 * is -ENODEV, with a line naming the GPU. */
int backend_open(const struct backend_config *config, struct backend **backend);
/* The kind of the backend with ops->name; BACKEND_AUTO: none has. */
enum backend_kind backend_kind_named(const char *name);
void backend_close(struct backend *backend);

static inline bool backend_is_host(const struct backend *backend)
{
	return backend->ops->handle == CHUNK_MEMFD;
}

static inline enum chunk_handle backend_handle(const struct backend *backend)
{
	return backend->ops->handle;
}

/* For providers: a bit in selected for each of n devices that list ("0", "0,2", "0-3", "gpu0.mig1";
 * NULL: all) names by nvidia-smi's number, by its label or UUID. The number and the name of a GPU
 * mean all of its MIG instances. -EINVAL (malformed, or a GPU named twice) and -ENODEV (no such
 * GPU), each with a line in the log. */
int backend_select_gpus(const char *list, struct device *const *devices, unsigned n,
			uint64_t *selected);

int device_memory(struct device *device, struct device_memory *memory);
/* See backend_ops.bar_name. *reason: for people, or NULL. */
const char *device_bar_name(struct device *device, const char **reason);
/* See backend_ops.idle_release. 0 as well if the device has nothing to release, or failed. */
int device_idle_release(struct device *device);
/* See backend_ops.pin_for_all: 0, or -errno without a line in the log. */
int device_pin(struct device *device, void *base, size_t bytes);
void device_unpin(struct device *device, void *base);
/* Marks the device failed, and logs that once. */
void device_fail(struct device *device, const char *cause);
/* DEVICE_RESETTING: failed, and to be reset; DEVICE_FAILED: no further attempt is made. */
enum device_health { DEVICE_OK, DEVICE_RESETTING, DEVICE_FAILED };
enum device_health device_health(struct device *device);
const char *device_health_name(struct device *device); /* "ok", "resetting", "failed" */

/* Checked forms of the ops: -EIO on a failed device; debug builds assert ranges. */
int chunk_new(struct device *device, enum memory_place place, uint64_t bytes, struct chunk **chunk);
void chunk_free(struct chunk *chunk); /* removes the mapping first; NULL is allowed */
int chunk_export(struct chunk *chunk, int *fd);
int chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
		 struct chunk **chunk);
/* See backend_ops.chunk_import_foreign. -ENOTSUP: this provider cannot. */
int chunk_import_foreign(struct device *device, uint64_t bytes, int fd, enum chunk_origin origin,
			 struct chunk **chunk);

#endif
