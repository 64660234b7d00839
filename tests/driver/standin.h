/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inside the stand-in libcuda.so.1: its state, and the functions that its files share.
 *
 * Lock order: standin.lock, then the lock of a stream or an event. A worker thread holds no lock
 * during a copy. standin.lock is taken shared wherever possible: a plain mutex would order threads
 * that the caller forgot to order, and would hide the mistake from ThreadSanitizer. */
#ifndef DRIVER_STANDIN_H
#define DRIVER_STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "tests/driver/cuda_types.h"
#include "tests/driver/helpers.h"
#include "tests/driver/table.h"

#define STANDIN_GPUS_MAX    64
#define STANDIN_MIG_MAX	    7 /* of a GPU, by NVIDIA's user guide of MIG */
#define STANDIN_GRANULARITY (2ULL << 20)

enum dmabuf_mode { DMABUF_OFF, DMABUF_ON, DMABUF_LIE, DMABUF_NO_MMAP };

/* CUcomputemode */
enum compute_mode { COMPUTE_DEFAULT = 0, COMPUTE_PROHIBITED = 2, COMPUTE_EXCLUSIVE = 3 };

struct settings {
	unsigned whole_gpus;
	unsigned mig;		 /* instances of GPU 0; 0: MIG is off */
	unsigned gpus;		 /* that CUDA shows: whole GPUs, or with MIG instances alone */
	uint64_t memory;	 /* bytes of each whole GPU */
	uint64_t host_memory;	 /* bytes of host-located memory; 0: not supported */
	uint64_t bar;		 /* BAR1 bytes of each GPU */
	uint64_t context_memory; /* bytes that a context takes */
	int driver_version;
	unsigned delay_us;     /* before each operation of a stream */
	const char *hold_path; /* operations of streams wait while the file exists; NULL: none */
	int fill;	       /* byte that new memory holds; negative: no fill */
	bool peer, peer_refused;
	bool pageable_is_error; /* asynchronous copies from or to memory that is not pinned */
	bool no_kernels, kernels_lie;
	bool checkpoints; /* other processes may checkpoint this process */
	enum dmabuf_mode dmabuf;
	enum compute_mode compute_mode;
	const char *exclusive_path; /* the file with a lock for each GPU that a process has */
	const char *leakcheck;	    /* file, "stderr", or NULL */
};
extern struct settings settings; /* constant after settings_load */
void settings_load(void);
/* Parses a number with an optional suffix K, M, G or T. Returns false for other text. */
bool size_parse(const char *text, uint64_t *size);

/* A settings file that a test changes while the program runs. The caller sets path and serializes
 * the reads. */
struct changing_file {
	const char *path;
	struct timespec mtime;
	ino_t inode;
	off_t size;
};
/* Reads up to size - 1 bytes of the file into text. Returns false, and reads nothing, if the file
 * is as at the last read. A missing file is read as an empty file. */
bool changing_file_read(struct changing_file *file, char *text, size_t size);

struct device {
	uint64_t used;	     /* under standin.lock */
	atomic_int failed;   /* CUresult: of the device's contexts, or of every call */
	atomic_bool passing; /* the failure ends with the primary context */
	uint64_t bar_used;   /* under standin.lock */
	uint64_t moved;	     /* under standin.lock: bytes that a checkpoint moved off the device */
	struct context *primary;
	unsigned contexts; /* under standin.lock */
	unsigned primary_references;
};

struct standin {
	pthread_rwlock_t lock;
	struct device devices[STANDIN_GPUS_MAX]; /* by CUDA ordinal */
	/* The next fields up to created are under lock. */
	uint64_t host_used;	   /* bytes of host-located memory */
	struct table reservations; /* address -> struct reservation */
	struct table mappings;	   /* address -> struct mapping */
	struct table pinned;	   /* host address -> struct pinned */
	struct table handles;	   /* CUmemGenericAllocationHandle -> struct handle */
	struct table memories;	   /* inode number -> struct memory */
	struct table contexts, streams, events;
	uint64_t next_handle, created;
	atomic_int process_state; /* CUprocessState */
	/* Counters of the leak line. */
	atomic_ulong pageable_copies, violations;
};
extern struct standin standin;

#define SHARED	  pthread_rwlock_rdlock
#define EXCLUSIVE pthread_rwlock_wrlock
static inline void standin_unlock(pthread_rwlock_t **lock)
{
	pthread_rwlock_unlock(*lock);
}
/* Holds standin.lock (SHARED or EXCLUSIVE) to the end of the enclosing scope. */
#define STANDIN_LOCKED(how)                                                                        \
	pthread_rwlock_t *locked_ __attribute__((cleanup(standin_unlock), unused)) =               \
	    (how(&standin.lock), &standin.lock)

/* The state that a call needs. */
enum needs { NEEDS_INIT, NEEDS_CONTEXT };
/* device: the device with the failure and faults that count; ANY_DEVICE: the current context's
 * device, if the thread has a context. */
#define ANY_DEVICE (-1)
CUresult standin_enter(const char *function, enum needs needs, int device);
#define ENTER_ON(needs, device)                                                                    \
	do {                                                                                       \
		CUresult entered_ = standin_enter(__func__, needs, device);                        \
		if (entered_ != CUDA_SUCCESS)                                                      \
			return entered_;                                                           \
	} while (0)
#define ENTER(needs) ENTER_ON(needs, ANY_DEVICE)
/* Whether standin_enter refused the call, so that a call that frees must not free: without cuInit,
 * and while a checkpoint holds the process. Such a call frees despite any other error. */
bool standin_refused(CUresult entered);

/* Reports a broken rule to stderr and counts it. */
void standin_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t standin_new_handle(void); /* under lock, exclusive */
bool standin_device_valid(int device);
bool standin_is_initialised(void); /* by this process */

/* cuda_number.c: the numbers of helpers.h. */
void numbers_load(bool reverse);	    /* sets settings.gpus */
unsigned standin_physical(unsigned device); /* of a CUDA ordinal */
int standin_ordinal(unsigned gpu);	    /* -1: CUDA does not show the GPU */
bool standin_gpu_exists(unsigned gpu);
void standin_uuid(unsigned gpu, uint8_t uuid[16]);
uint64_t standin_gpu_memory(unsigned gpu);

/* cuda_faults.c */
/* Each function counts an event and may end the device: fault_call a call (device -1: no device),
 * fault_device an operation of a device, fault_memory an operation that reads the memory with the
 * number. */
CUresult fault_call(const char *function, int device);
CUresult fault_device(unsigned device);
CUresult fault_memory(uint64_t number, unsigned device);
void device_fail(unsigned device, CUresult error, bool passing);
void device_renew(unsigned device);	/* after the primary context was destroyed */
CUresult device_state(unsigned device); /* of the device's contexts */
CUresult device_lost(unsigned device);	/* of calls that need no context */
CUresult error_by_name(const char *name, size_t length);

/* cuda_checkpoint.c */
/* Makes the calls of other processes about this process, if the settings say so. */
void checkpoints_serve(void);

/* cuda_taken.c */
/* The bytes that neither this process nor another program uses. Call under standin.lock. */
uint64_t device_available(unsigned device);

/* cuda_context.c */
struct context {
	uint64_t id;
	unsigned device;
	bool primary;
	atomic_bool destroyed;
	struct stream *null_stream; /* under standin.lock until destroyed */
};
struct context *context_current(void);
/* The device of the calling thread's context; call only after ENTER(NEEDS_CONTEXT). */
unsigned context_device(void);

/* cuda_memory.c: physical memory. */
struct memory {
	atomic_uint references; /* handles, mappings, running copies */
	int fd;			/* -1 while a checkpoint has moved the bytes */
	uint64_t inode, size;
	uint64_t start;	 /* of the bytes in the file */
	uint64_t number; /* of the cuMemCreate call, counted from 1; 0: made by another process */
	int device;	 /* or HOST_LOCATED */
	bool rdma;	 /* created gpuDirectRDMACapable */
	uint64_t opened; /* the address of a mapping of cuIpcOpenMemHandle, or 0 */
	uint8_t *bytes;	 /* the stand-in's own mapping; the CPU can never access device addresses */
};

/* The device of host-located memory (CU_MEM_LOCATION_TYPE_HOST_NUMA), and the only NUMA node. */
#define HOST_LOCATED (-1)
#define HOST_NODE    0

static inline bool memory_is_host(const struct memory *memory)
{
	return memory->device == HOST_LOCATED;
}

/* Whether a lost device took the memory with it: host-located memory outlives every device. */
CUresult memory_lost(const struct memory *memory);

enum handle_kind { HANDLE_PRIVATE, HANDLE_EXPORTABLE, HANDLE_IMPORTED };

struct handle {
	struct memory *memory;
	unsigned references;
	enum handle_kind kind;
};

struct mapping {
	uint64_t base, size;
	struct memory *memory;
	CUmemGenericAllocationHandle handle; /* the handle of the mapping call */
	enum handle_kind kind;
	bool whole_allocation;		  /* of cuMemAlloc: only cuMemFree frees the memory */
	unsigned opens;			  /* of cuIpcOpenMemHandle; 0: not so mapped */
	const struct context *opener;	  /* of the first of them */
	uint64_t asked;			  /* of cuMemAlloc: bytes, as the driver says; else 0 */
	uint8_t access[STANDIN_GPUS_MAX]; /* CUmemAccess_flags by device */
	uint8_t cpu_access;		  /* CUmemAccess_flags, of host-located memory only */
};

struct reservation {
	uint64_t base, size;
	bool whole_allocation;
};

/* Call the next four functions under standin.lock, exclusive except for memory_get. */
CUresult memory_new(int device, uint64_t size, struct memory **memory);
/* Memory as an allocation of the current context, which gets the reference, also on failure. */
CUresult allocation_map(struct memory *memory, CUdeviceptr *address);
void allocation_unmap(struct mapping *mapping);
CUresult memory_adopt(int fd, struct memory **memory); /* reopens the fd */
void memory_get(struct memory *memory);
uint64_t handle_new(struct memory *memory, enum handle_kind kind); /* takes over the reference */

/* Moves the bytes to private memory, and into a new memfd. The functions leave the counters alone,
 * and end the process when out of memory. Call under standin.lock, exclusive. */
void memory_move_out(struct memory *memory);
void memory_move_in(struct memory *memory);

void memory_put(struct memory *memory); /* takes standin.lock: never call under the lock */
void memory_put_locked(struct memory *memory);
CUresult reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *base);
void unreserve(uint64_t base, uint64_t size);

/* cuda_host.c */
struct pinned {
	uint64_t base, size;
	struct context *context;
	bool portable, allocated;
};
enum host_pinned { NOT_PINNED, PINNED_IN_PART, PINNED };
enum host_pinned host_pinned(uint64_t address, uint64_t size, const struct context *context);
void host_forget_context(const struct context *context);
/* The end of a context closes its mappings. Under standin.lock. */
void ipc_forget_context(const struct context *context);

/* cuda_copy.c */
enum op_kind { OP_COPY, OP_SET, OP_KERNEL, OP_RECORD, OP_WAIT, OP_WORD_WRITE, OP_WORD_WAIT };
struct op {
	struct op *next;
	enum op_kind kind;
	uint64_t to, from, size;
	uint8_t value;
	unsigned device;	     /* the device with the access rights that count */
	bool to_pinned, from_pinned; /* the range must still be pinned when the operation runs */
	bool to_cpu, from_cpu;	     /* host-located memory by the access rights of the CPU */
	struct event *event;
	uint64_t sequence;
	uint64_t warps; /* of a kernel */
	uint64_t word;	/* is written, or waited for */
};
CUresult copy_execute(const struct op *op, const struct context *context);
CUresult word_execute(const struct op *op, const struct context *context);

/* cuda_kernel.c */
CUresult kernel_execute(const struct op *op, const struct context *context);

/* cuda_stream.c */
CUresult stream_get(CUstream handle, struct stream **stream); /* NULL handle: the context's own */
void stream_put(struct stream *stream);
unsigned stream_device(const struct stream *stream);
const struct context *stream_context(const struct stream *stream);
CUresult stream_submit(struct stream *stream, const struct op *op);
CUresult stream_wait(struct stream *stream); /* until all submitted operations are done */
struct stream *stream_new(struct context *context, unsigned flags);
void stream_retire(struct stream *stream); /* ends after the queued operations */
void streams_wait_context(const struct context *context);
void streams_wait_all(void);
void streams_forget_context(const struct context *context);
void streams_wait_retired(void);

/* cuda_event.c */
CUresult event_get(CUevent handle, struct event **event);
void event_put(struct event *event);
void event_done(struct event *event, uint64_t sequence);
void event_wait(struct event *event, uint64_t sequence);

#endif
