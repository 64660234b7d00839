/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The contract between gpumemfs and a kind of memory: devices, chunks, copies, BAR mappings.
 *
 * A provider (backend/cuda, backend/host) fills in struct backend_ops and embeds the structs below
 * as the first member of its own. Nothing outside backend/ calls the ops: fs/ uses pool.h for
 * memory and copy.h for bytes, and the checking wrappers declared here for the rest.
 *
 * Every function returns 0 (or a positive result) or -errno, and sets its outputs only on success.
 * -ENOSPC: the device has no memory left. -EIO: the device reported an uncorrectable error or is
 * gone (device->failed is then set, until reset.h brings it back; other devices go on), or a
 * chunk's memory is lost. -ENOTSUP: this provider or machine cannot. The first who notices logs;
 * callers do not log again. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/health.h"
#include "backend/reset.h"
#include "common/brlock.h"

/* A chunk is a multiple of this: the VMM granularity of every NVIDIA GPU with VMM. */
#define CHUNK_ALIGN (2ULL << 20)

#define BACKEND_DEVICES_MAX 64

enum backend_kind { BACKEND_AUTO, BACKEND_CUDA, BACKEND_HOST };

/* Ways to a CPU mapping of device memory (BAR1), in the order in which auto tries them. */
enum bar_provider { BAR_AUTO, BAR_DMABUF, BAR_GDRCOPY, BAR_VULKAN, BAR_OFF, BAR_DIRECT };

struct backend_config {
	enum backend_kind kind;
	const char *gpus; /* comma-separated indices as nvidia-smi numbers them, or NULL for all */
	uint64_t host_bytes; /* host backend: memory of each GPU it plays */
	unsigned host_gpus;  /* host backend: how many it plays (1..BACKEND_DEVICES_MAX) */
	enum bar_provider bar;
	/* Where a GPU is only tried for: room for the reason for there being none. NULL: that is an
	 * error, and logged. */
	char *why;
	size_t why_bytes;
};

struct device_memory {
	uint64_t total, free; /* bytes, as the driver has them now */
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
	uint64_t bar_bytes; /* how much of the device may be BAR-mapped at once; 0: none */
	atomic_bool failed; /* an error ended its context: everything on it is -EIO */
	struct health health;
	struct bar_cache *bar; /* owned by bar_cache.c */
	/* What copy_measure found; belongs to crossover.c. */
	atomic_int crossover_state;
	_Atomic uint64_t crossover_write, crossover_read, crossover_overlap;
};

struct backend {
	const struct backend_ops *ops;
	const char *name; /* "cuda", "host" */
	char version[64]; /* driver version for people, or empty */
	struct device *devices[BACKEND_DEVICES_MAX];
	unsigned n_devices;
	struct resetter resetter;
};

/* When a chunk's BAR mapping is made and taken away (the attribute user.gpumem.mapping). */
enum map_policy { MAP_AUTO, MAP_PERSISTENT, MAP_TRANSIENT };

/* A physical allocation. bytes is a multiple of CHUNK_ALIGN. The provider fills in device and
 * bytes; the wrapper chunk_new initialises the rest. The fields from bar on belong to bar_cache.c.
 */
struct chunk {
	struct device *device;
	uint64_t bytes;
	uint64_t id;		/* who watches the pool names it (pool.h); 0: nobody */
	void *pool_private;	/* pool.c: the state of a shared chunk, NULL for an owned one */
	atomic_bool lost;	/* its bytes could not be brought back: -EIO */
	atomic_bool handed_out; /* other processes may have it mapped: its user's to know */
	struct chunk *prev, *next, *next_dropped; /* health.c */
	_Atomic(void *) bar;	    /* CPU address of the mapping, or NULL; use under bar_guard */
	struct brlock bar_guard;    /* shared: the mapping is in use; exclusive: it goes away */
	_Atomic uint32_t bar_heat;  /* unmapped: small accesses so far; mapped: used lately */
	_Atomic uint8_t bar_policy; /* enum map_policy */
	atomic_bool bar_refused;    /* mapping failed once: do not try again */
	struct chunk *bar_prev, *bar_next; /* the device's mapped chunks that may be evicted */
};

/* A part of a chunk: what a file's extent points at. */
struct span {
	struct chunk *chunk;
	uint64_t offset; /* bytes into the chunk */
	uint64_t bytes;
};

/* One thread's right to copy: streams, staging memory, registrations. Never shared by threads. */
struct copier {
	struct backend *backend;
	uint64_t bytes_bar, bytes_dma; /* moved so far, for the statistics; read racily */
	bool enqueued;		       /* copy.c: DMA was asked for since the last wait */
};

/* The file descriptors of chunk_export: CUDA's handle of a VMM allocation, or a memfd that a
 * process maps. */
enum export_kind { EXPORT_VMM, EXPORT_MEMFD };

/* What a provider supplies. dma_* enqueue on the copier; host memory given to them is either inside
 * a range registered with pin, or anything (then the provider stages it, and returns with the bytes
 * copied). wait returns when everything enqueued is complete and visible to every other process and
 * to kernels launched from then on; the first error of the batch is returned there or earlier. */
struct backend_ops {
	const char *name;
	enum export_kind export_kind;
	int (*open)(const struct backend_config *config, struct backend **backend);
	void (*close)(struct backend *backend); /* no chunks and copiers are left */

	int (*memory)(struct device *device, struct device_memory *memory);
	/* Gives back what the device costs while nobody has anything there; it is made again when
	 * needed. -EBUSY: something is there, or somebody is at it just now. Any thread. */
	int (*rest)(struct device *device);
	/* The provider, "vulkan" or "direct"; "none", or what is to be looked for, with why. */
	const char *(*bar_name)(struct device *device, const char **why);

	/* Content is undefined. Needs no copier; any thread. */
	int (*chunk_new)(struct device *device, uint64_t bytes, struct chunk **chunk);
	void (*chunk_free)(struct chunk *chunk); /* no copy is in flight, no mapping left */
	int (*chunk_export)(struct chunk *chunk, int *fd); /* caller owns the fd */
	/* The chunk of bytes that fd, from chunk_export in a process that may be gone, stands for;
	 * it can be exported again. The fd is the chunk's on success, the caller's otherwise. */
	int (*chunk_import)(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);

	int (*copier_new)(struct backend *backend, struct copier **copier);
	void (*copier_free)(struct copier *copier);
	/* Declares host memory that outlives its unpin as DMA target; registered with a GPU when
	 * first used there. */
	int (*pin)(struct copier *copier, void *base, size_t bytes);
	void (*unpin)(struct copier *copier, void *base);
	/* The same at once, for copies of every copier with this device, which do not touch the
	 * memory by the CPU then: it may be gone (a mapping of a file that somebody made shorter).
	 * Again for a range that is registered: makes sure that it still is; while somebody has
	 * memory on the device it stays so. NULL: the provider's copies are the CPU's. */
	int (*pin_for_all)(struct device *device, void *base, size_t bytes);
	void (*unpin_for_all)(struct device *device, void *base); /* no copy is at it */

	int (*dma_in)(struct copier *, struct chunk *to, uint64_t offset, const void *from,
		      size_t bytes);
	int (*dma_out)(struct copier *, void *to, struct chunk *from, uint64_t offset,
		       size_t bytes);
	int (*dma_across)(struct copier *, struct chunk *to, uint64_t to_offset, struct chunk *from,
			  uint64_t from_offset, uint64_t bytes);
	int (*dma_zero)(struct copier *, struct chunk *to, uint64_t offset, uint64_t bytes);
	int (*wait)(struct copier *);

	/* After an error that ended the device's context: makes another one, and everything in it
	 * that the chunks (health.chunks) need; sets lost on those that cannot be read any more.
	 * Nobody else is at the device but copiers, whose new copies it refuses, and no chunk is
	 * mapped through the BAR. -EBUSY: copies are under way, which end soon. Other errors: it
	 * may work later. NULL: devices do not fail. */
	int (*reset)(struct device *device);

	/* Maps the whole chunk into this process through the device's BAR. Slow (see FACTS in the
	 * provider); called and undone by bar_cache.c only, one call at a time per device. */
	int (*bar_map)(struct chunk *chunk, void **address);
	void (*bar_unmap)(struct chunk *chunk, void *address);
	/* What bar_map costs by size, in ns per MiB (bar_cache.c adds what it costs at any size):
	 * rent-or-buy decides by it. 0: mapping is free. */
	uint32_t (*bar_cost)(struct device *device);
};

extern const struct backend_ops backend_cuda_ops, backend_host_ops;

/* Opens what config asks for. BACKEND_AUTO: cuda where a driver and a GPU are, else host, saying so
 * in one line of the log. An index in gpus that is not there is -ENODEV with a line that names it.
 */
int backend_open(const struct backend_config *config, struct backend **backend);
void backend_close(struct backend *backend);

/* Whether the GPUs are simulated in system memory. */
static inline bool backend_is_host(const struct backend *backend)
{
	return backend->ops->export_kind == EXPORT_MEMFD;
}

/* For providers: the GPUs that list ("0", "0,2", "0-3"; NULL: all) selects among 0..available-1,
 * ascending, into indices[BACKEND_DEVICES_MAX]. -EINVAL (malformed, or one named twice) and -ENODEV
 * (not there), each with a line in the log. */
int backend_parse_gpus(const char *list, unsigned available, unsigned *indices, unsigned *n);

int device_memory(struct device *device, struct device_memory *memory);
/* The BAR's provider. why: for people, why there is none or it is not sure; else NULL. */
const char *device_bar_name(struct device *device, const char **why);
/* See backend_ops.rest. 0 too where the device costs nothing, or failed. */
int device_idle_release(struct device *device);
/* See backend_ops.pin_for_all: 0, or -errno, of which nothing is logged. */
int device_pin(struct device *device, void *base, size_t bytes);
void device_unpin(struct device *device, void *base);
/* Marks the device failed and logs once. */
void device_fail(struct device *device, const char *what);
/* DEVICE_RESETTING: it failed, and is being brought back; DEVICE_FAILED: it stays so. */
enum device_health { DEVICE_OK, DEVICE_RESETTING, DEVICE_FAILED };
enum device_health device_health(struct device *device);
const char *device_health_name(struct device *device); /* "ok", "resetting", "failed" */

/* Checked forms: -EIO on a failed device, assertions on ranges in debug builds. */
int chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk);
void chunk_free(struct chunk *chunk); /* drops its mapping first; NULL is fine */
int chunk_export(struct chunk *chunk, int *fd);
int chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);

#endif
