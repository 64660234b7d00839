/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The inside of a copier: for each device a stream of command buffers that are complete in order,
 * told by a timeline semaphore; staging memory; pinned host memory. */
#ifndef BACKEND_VULKAN_COPIER_H
#define BACKEND_VULKAN_COPIER_H

#include "backend/vulkan/provider.h"

/* Two slots: CPU and GPU each use a slot at the same time. */
#define STAGE_SLOTS 2
#define STAGE_BYTES (1ULL << 20)
/* Copies of a stream that may be under way. */
#define STREAM_DEPTH 16

struct stage_slot {
	struct vulkan_buffer buffer;
	char *address;
	uint64_t busy; /* until this value of the timeline */
};

struct vulkan_stream {
	struct vulkan_device *device; /* NULL: not open */
	struct vulkan_queue *queue;
	/* The copier's other stream on the device, whose copies come before later copies of this
	 * one; NULL: none. */
	struct vulkan_stream *sibling;
	VkCommandPool pool;
	VkCommandBuffer commands[STREAM_DEPTH]; /* copy N uses the buffer N % STREAM_DEPTH */
	VkSemaphore timeline;			/* N: copy N is complete, and all before */
	uint64_t enqueued, complete;		/* the last copy; the last that was waited for */
	bool unordered;				/* the last copy was */
	struct stage_slot slots[STAGE_SLOTS];
	unsigned next_slot;
};

/* Host memory that copies use directly. */
struct vulkan_host_pin {
	struct vulkan_host_pin *next;
	char *base;
	size_t bytes;
	/* By slot of the device: imported at the first use. */
	struct {
		struct vulkan_buffer buffer;
		uint64_t offset; /* of base in the buffer */
		bool refused;
	} imports[];
};

/* Of a copier on a device. */
struct vulkan_streams {
	struct vulkan_stream link;   /* copies with the host */
	struct vulkan_stream inside; /* copies inside the device; not open if the link does both */
};

struct vulkan_copier {
	struct copier base; /* first */
	/* The owner's thread holds the lock in each call; a reset tries. */
	pthread_mutex_t lock;
	struct vulkan_copier *prev, *next;
	int error; /* the first of the batch, for wait */
	struct vulkan_host_pin *pins;
	struct vulkan_streams streams[]; /* by slot */
};

static inline struct vulkan_copier *vulkan_copier(struct copier *copier)
{
	return (struct vulkan_copier *)copier;
}

/* A copy by the device: a buffer and an offset in the buffer. */
struct place {
	VkBuffer buffer;
	uint64_t offset;
	VkDeviceAddress address; /* of the buffer, for kernels; 0: none */
	bool mapped;		 /* the CPU reads the buffer's own memory */
};

/* Whether a copy begins after the copies enqueued before. Unordered copies begin at any time after
 * the last ordered copy. */
enum copy_order { COPY_ORDERED, COPY_UNORDERED };

enum stream_kind { STREAM_LINK, STREAM_INSIDE };

/* stream.c. The copier's lock is held. Opens a stream that is not open. */
int vulkan_stream_open(struct vulkan_stream *stream, struct vulkan_device *device,
		       enum stream_kind kind);
int vulkan_stream_use(struct vulkan_copier *copier, struct vulkan_device *device,
		      enum stream_kind kind, struct vulkan_stream **stream);
int vulkan_stream_copy(struct vulkan_stream *stream, struct place to, struct place from,
		       uint64_t bytes, enum copy_order order);
/* Between two places of the device itself, by a kernel if that is faster. */
int vulkan_stream_copy_inside(struct vulkan_stream *stream, struct place to, struct place from,
			      uint64_t bytes);
/* offset and bytes are multiples of 4. */
int vulkan_stream_zero(struct vulkan_stream *stream, struct place to, uint64_t bytes);
/* Waits for all copies up to one, and returns at once for one that is known to be complete. */
int vulkan_stream_wait(struct vulkan_stream *stream, uint64_t value);
/* Waits for the copies of both streams. */
int vulkan_streams_wait_for(struct vulkan_streams *streams);
/* Waits for all copies of the copier, and returns the batch's first error. */
int vulkan_streams_wait(struct vulkan_copier *copier);
/* All copies are complete, or the device has failed. */
void vulkan_stream_close(struct vulkan_stream *stream);

/* stage.c */
int vulkan_stage_in(struct vulkan_stream *stream, struct place to, const char *from, size_t bytes);
int vulkan_stage_out(struct vulkan_stream *stream, char *to, struct place from, size_t bytes);
int vulkan_stage_across(struct vulkan_stream *to_stream, struct place to,
			struct vulkan_stream *from_stream, struct place from, uint64_t bytes);

/* pin.c. Whether host memory is pinned, and where the device sees the memory. */
bool vulkan_pinned(struct vulkan_copier *copier, struct vulkan_device *device, const void *host,
		   size_t bytes, struct place *place);
/* Ends the imports into a device that no copy uses. */
void vulkan_pins_leave(struct vulkan_copier *copier, struct vulkan_device *device);
void vulkan_pins_close(struct vulkan_copier *copier);

/* copy.c. Ends all resources of the copier in the device, which has failed. */
void vulkan_copier_leave(struct vulkan_copier *copier, struct vulkan_device *device);

#endif
