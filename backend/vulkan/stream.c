/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A stream of copies on a queue that other copiers use as well. A barrier orders a copy after
 * everything on the queue, so barriers are recorded only after copies of the same stream that may
 * still be under way. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "backend/vulkan/copier.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* Waking up is slow for copies of some microseconds, so a wait polls first: see
 * backend/cuda/dma.c. A simulated device needs the processor for itself. */
#define YIELD_AFTER_NS 50000
#define BLOCK_AFTER_NS 3000000

static VkResult stream_create(struct vulkan_stream *stream)
{
	struct vulkan_device *device = stream->device;
	const struct vulkan_calls *vk = &device->vk;
	VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
					  .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
	VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
					   .pNext = &type};
	VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT |
						 VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
					.queueFamilyIndex = stream->queue->family};
	VkCommandBufferAllocateInfo commands = {.sType =
						    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
						.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
						.commandBufferCount = STREAM_DEPTH};
	VkResult result =
	    vk->vkCreateSemaphore(device->handle, &semaphore, NULL, &stream->timeline);

	if (result == VK_SUCCESS)
		result = vk->vkCreateCommandPool(device->handle, &pool, NULL, &stream->pool);
	commands.commandPool = stream->pool;
	return result != VK_SUCCESS
		   ? result
		   : vk->vkAllocateCommandBuffers(device->handle, &commands, stream->commands);
}

static void slots_close(struct vulkan_stream *stream)
{
	for (unsigned i = 0; i < STAGE_SLOTS; i++) {
		struct stage_slot *slot = &stream->slots[i];

		if (slot->address)
			stream->device->vk.vkUnmapMemory(stream->device->handle,
							 slot->buffer.memory);
		vulkan_buffer_free(stream->device, &slot->buffer);
		*slot = (struct stage_slot){.address = NULL};
	}
}

void vulkan_stream_close(struct vulkan_stream *stream)
{
	struct vulkan_device *device = stream->device;

	if (!device)
		return;
	slots_close(stream);
	if (stream->pool)
		device->vk.vkDestroyCommandPool(device->handle, stream->pool, NULL);
	if (stream->timeline)
		device->vk.vkDestroySemaphore(device->handle, stream->timeline, NULL);
	*stream = (struct vulkan_stream){.device = NULL};
}

int vulkan_stream_open(struct vulkan_stream *stream, struct vulkan_device *device,
		       enum stream_kind kind)
{
	stream->device = device;
	stream->queue = &device->inside;
	if (kind == STREAM_LINK)
		stream->queue =
		    &device
			 ->queues[atomic_fetch_add(&device->next_queue, 1) % device->can.n_queues];
	int rc = vulkan_result(device, stream_create(stream), "making a stream of copies");

	if (rc < 0)
		vulkan_stream_close(stream);
	return rc == -ENOSPC ? -ENOMEM : rc;
}

int vulkan_stream_use(struct vulkan_copier *copier, struct vulkan_device *device,
		      enum stream_kind kind, struct vulkan_stream **stream)
{
	struct vulkan_streams *streams = &copier->streams[device->base.slot];
	bool inside = kind == STREAM_INSIDE && vulkan_has_inside_queue(device);
	struct vulkan_stream *used = inside ? &streams->inside : &streams->link;

	if (atomic_load_explicit(&device->base.failed, memory_order_relaxed))
		return -EIO;
	*stream = used;
	if (used->device)
		return 0;
	int rc = vulkan_stream_open(used, device, inside ? STREAM_INSIDE : STREAM_LINK);

	if (rc == 0)
		used->sibling = inside ? &streams->link : &streams->inside;
	return rc;
}

static VkResult stream_poll(struct vulkan_stream *stream, uint64_t value)
{
	struct vulkan_device *device = stream->device;
	int64_t start = clock_ns(), waited = 0;
	uint64_t reached = 0;

	while (!device->can.software && waited < BLOCK_AFTER_NS) {
		VkResult result = device->vk.vkGetSemaphoreCounterValue(device->handle,
									stream->timeline, &reached);

		if (result != VK_SUCCESS || reached >= value)
			return result;
		waited = clock_ns() - start;
		if (waited > YIELD_AFTER_NS)
			sched_yield();
	}
	return VK_TIMEOUT;
}

int vulkan_stream_wait(struct vulkan_stream *stream, uint64_t value)
{
	struct vulkan_device *device = stream->device;
	VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
				    .semaphoreCount = 1,
				    .pSemaphores = &stream->timeline,
				    .pValues = &value};

	if (value <= stream->complete)
		return 0;
	VkResult result = stream_poll(stream, value);

	/* For want of memory to wait, the thread looks again: the copies are still under way. */
	while (result == VK_TIMEOUT || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
	       result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
		if (result != VK_TIMEOUT)
			nanosleep(&(struct timespec){.tv_nsec = CLOCK_MS}, NULL);
		result = device->vk.vkWaitSemaphores(device->handle, &info, UINT64_MAX);
	}
	/* After any other error nothing is left to wait for. */
	stream->complete = result == VK_SUCCESS ? value : stream->enqueued;
	return vulkan_result(device, result, "waiting for copies");
}

int vulkan_streams_wait_for(struct vulkan_streams *streams)
{
	struct vulkan_stream *link = &streams->link, *inside = &streams->inside;
	int rc = link->device ? vulkan_stream_wait(link, link->enqueued) : 0;
	int last = inside->device ? vulkan_stream_wait(inside, inside->enqueued) : 0;

	return rc < 0 ? rc : last;
}

int vulkan_streams_wait(struct vulkan_copier *copier)
{
	int error = copier->error;

	for (unsigned i = 0; i < copier->base.backend->n_devices; i++) {
		int rc = vulkan_streams_wait_for(&copier->streams[i]);

		if (error == 0)
			error = rc;
	}
	copier->error = 0;
	return error;
}

static bool runs_kernels(const struct vulkan_stream *stream)
{
	return stream->device->can.kernel &&
	       stream->queue->family == stream->device->can.inside_family;
}

static VkPipelineStageFlags copy_stages(const struct vulkan_stream *stream)
{
	return VK_PIPELINE_STAGE_TRANSFER_BIT |
	       (runs_kernels(stream) ? VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT : 0);
}

static void barrier_record(struct vulkan_stream *stream, VkCommandBuffer commands,
			   VkPipelineStageFlags dst_stages, VkAccessFlags access)
{
	VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
				   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
				   .dstAccessMask = access};

	if (runs_kernels(stream))
		barrier.srcAccessMask |= VK_ACCESS_SHADER_WRITE_BIT;
	stream->device->vk.vkCmdPipelineBarrier(commands, copy_stages(stream), dst_stages, 0, 1,
						&barrier, 0, NULL, 0, NULL);
}

/* The command buffer of the next copy, being recorded. */
static int copy_begin(struct vulkan_stream *stream, enum copy_order order,
		      VkCommandBuffer *commands)
{
	const struct vulkan_calls *vk = &stream->device->vk;
	uint64_t value = stream->enqueued + 1;
	VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
					 .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
	VkAccessFlags access = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
	int rc = value > STREAM_DEPTH ? vulkan_stream_wait(stream, value - STREAM_DEPTH) : 0;

	if (rc < 0)
		return rc;
	*commands = stream->commands[value % STREAM_DEPTH];
	rc = vulkan_result(stream->device, vk->vkBeginCommandBuffer(*commands, &info),
			   "vkBeginCommandBuffer");
	if (runs_kernels(stream))
		access |= VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
	if (rc == 0 && stream->enqueued > stream->complete &&
	    (order == COPY_ORDERED || !stream->unordered))
		barrier_record(stream, *commands, copy_stages(stream), access);
	return rc;
}

/* After the copies of the copier's other stream. */
static VkResult copy_submit(struct vulkan_stream *stream, VkCommandBuffer commands)
{
	struct vulkan_stream *sibling = stream->sibling;
	bool must_wait = sibling && sibling->device && sibling->enqueued > sibling->complete;
	VkPipelineStageFlags stages = copy_stages(stream);
	uint64_t value = stream->enqueued + 1;
	VkTimelineSemaphoreSubmitInfo timeline = {
	    .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
	    .waitSemaphoreValueCount = must_wait,
	    .pWaitSemaphoreValues = must_wait ? &sibling->enqueued : NULL,
	    .signalSemaphoreValueCount = 1,
	    .pSignalSemaphoreValues = &value};
	VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			     .pNext = &timeline,
			     .waitSemaphoreCount = must_wait,
			     .pWaitSemaphores = must_wait ? &sibling->timeline : NULL,
			     .pWaitDstStageMask = &stages,
			     .commandBufferCount = 1,
			     .pCommandBuffers = &commands,
			     .signalSemaphoreCount = 1,
			     .pSignalSemaphores = &stream->timeline};

	scoped_lock(&stream->queue->lock);
	return stream->device->vk.vkQueueSubmit(stream->queue->handle, 1, &info, VK_NULL_HANDLE);
}

/* The CPU sees the bytes after a wait. The barrier takes a quarter of the rate of 16 threads with
 * 1 MiB (H100), so memory that the CPU does not read goes without. */
static int copy_end(struct vulkan_stream *stream, VkCommandBuffer commands, const struct place *to,
		    enum copy_order order)
{
	if (to->mapped)
		barrier_record(stream, commands, VK_PIPELINE_STAGE_HOST_BIT,
			       VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
	VkResult result = stream->device->vk.vkEndCommandBuffer(commands);

	if (result == VK_SUCCESS)
		result = copy_submit(stream, commands);
	if (result == VK_SUCCESS) {
		stream->enqueued++;
		stream->unordered = order == COPY_UNORDERED;
	}
	int rc = vulkan_result(stream->device, result, "vkQueueSubmit");

	return rc == -ENOSPC ? -ENOMEM : rc;
}

int vulkan_stream_copy(struct vulkan_stream *stream, struct place to, struct place from,
		       uint64_t bytes, enum copy_order order)
{
	VkBufferCopy region = {.srcOffset = from.offset, .dstOffset = to.offset, .size = bytes};
	VkCommandBuffer commands;
	int rc = copy_begin(stream, order, &commands);

	if (rc < 0)
		return rc;
	stream->device->vk.vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &region);
	return copy_end(stream, commands, &to, order);
}

int vulkan_stream_copy_inside(struct vulkan_stream *stream, struct place to, struct place from,
			      uint64_t bytes)
{
	struct vulkan_device *device = stream->device;
	VkCommandBuffer commands;
	int rc = copy_begin(stream, COPY_UNORDERED, &commands);

	if (rc < 0)
		return rc;
	uint64_t bytes_done = 0;

	if (to.address && from.address && runs_kernels(stream))
		bytes_done = vulkan_kernel_record(device, commands, to.address + to.offset,
						  from.address + from.offset, bytes);
	VkBufferCopy rest = {.srcOffset = from.offset + bytes_done,
			     .dstOffset = to.offset + bytes_done,
			     .size = bytes - bytes_done};

	if (rest.size)
		device->vk.vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &rest);
	return copy_end(stream, commands, &to, COPY_UNORDERED);
}

int vulkan_stream_zero(struct vulkan_stream *stream, struct place to, uint64_t bytes)
{
	VkCommandBuffer commands;
	int rc = copy_begin(stream, COPY_ORDERED, &commands);

	if (rc < 0)
		return rc;
	stream->device->vk.vkCmdFillBuffer(commands, to.buffer, to.offset, bytes, 0);
	return copy_end(stream, commands, &to, COPY_ORDERED);
}
