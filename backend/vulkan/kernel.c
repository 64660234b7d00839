/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The kernel that copies inside a device. On an H100 a kernel copies 4 GiB at 1580 GB/s, and
 * vkCmdCopyBuffer at 430. */
#include "backend/vulkan/kernel_code.h"
#include "backend/vulkan/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

/* As in copy.comp. */
#define BLOCK_BYTES (16ULL << 10)
#define ALIGN	    16
#define GROUPS_MAX  32768
/* Blocks are counted in parts of 16 bytes by 32 bits. */
#define BLOCKS_MAX (1ULL << 21)
/* Smaller copies end as soon without the kernel (18 us for 1 MiB on an H100). */
#define BYTES_MIN (1ULL << 20)

struct arguments {
	VkDeviceAddress from, to;
	uint32_t blocks;
};

static VkResult layout_create(struct vulkan_device *device)
{
	VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
				     .size = sizeof(struct arguments)};
	VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					   .pushConstantRangeCount = 1,
					   .pPushConstantRanges = &range};

	return device->vk.vkCreatePipelineLayout(device->handle, &info, NULL,
						 &device->kernel.layout);
}

static VkResult pipeline_create(struct vulkan_device *device, VkPipeline *pipeline)
{
	VkShaderModuleCreateInfo code = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
					 .codeSize = sizeof(kernel_code),
					 .pCode = kernel_code};
	VkComputePipelineCreateInfo info = {
	    .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
	    .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
		      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
		      .pName = "main"},
	    .layout = device->kernel.layout};
	VkResult result =
	    device->vk.vkCreateShaderModule(device->handle, &code, NULL, &info.stage.module);

	if (result != VK_SUCCESS)
		return result;
	result = device->vk.vkCreateComputePipelines(device->handle, VK_NULL_HANDLE, 1, &info, NULL,
						     pipeline);
	device->vk.vkDestroyShaderModule(device->handle, info.stage.module, NULL);
	return result;
}

/* Under the kernel's lock. */
static VkPipeline kernel_open(struct vulkan_device *device)
{
	struct vulkan_kernel *kernel = &device->kernel;
	VkPipeline pipeline = VK_NULL_HANDLE;
	VkResult result = kernel->layout ? VK_SUCCESS : layout_create(device);

	if (result == VK_SUCCESS)
		result = pipeline_create(device, &pipeline);
	if (result == VK_SUCCESS) {
		atomic_store(&kernel->pipeline, pipeline);
		return pipeline;
	}
	kernel->refused = true;
	if (result == VK_ERROR_DEVICE_LOST)
		vulkan_result(device, result, "vkCreateComputePipelines");
	else
		log_warn("gpu%u: copies inside the GPU are slower: its driver makes no pipeline",
			 device->base.index);
	return VK_NULL_HANDLE;
}

VkPipeline vulkan_kernel_get(struct vulkan_device *device)
{
	struct vulkan_kernel *kernel = &device->kernel;
	VkPipeline pipeline = atomic_load(&kernel->pipeline);

	if (pipeline || !device->can.kernel)
		return pipeline;
	scoped_lock(&kernel->lock);
	pipeline = atomic_load(&kernel->pipeline);
	return pipeline || kernel->refused ? pipeline : kernel_open(device);
}

void vulkan_kernel_close(struct vulkan_device *device)
{
	struct vulkan_kernel *kernel = &device->kernel;
	VkPipeline pipeline = atomic_exchange(&kernel->pipeline, VK_NULL_HANDLE);

	if (pipeline)
		device->vk.vkDestroyPipeline(device->handle, pipeline, NULL);
	if (kernel->layout)
		device->vk.vkDestroyPipelineLayout(device->handle, kernel->layout, NULL);
	kernel->layout = VK_NULL_HANDLE;
	kernel->refused = false;
}

static uint64_t blocks_record(struct vulkan_device *device, VkCommandBuffer commands,
			      VkDeviceAddress to, VkDeviceAddress from, uint64_t blocks)
{
	struct arguments arguments = {.from = from, .to = to};

	blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
	arguments.blocks = (uint32_t)blocks;
	device->vk.vkCmdPushConstants(commands, device->kernel.layout, VK_SHADER_STAGE_COMPUTE_BIT,
				      0, sizeof(arguments), &arguments);
	device->vk.vkCmdDispatch(commands, blocks < GROUPS_MAX ? arguments.blocks : GROUPS_MAX, 1,
				 1);
	return blocks * BLOCK_BYTES;
}

uint64_t vulkan_kernel_record(struct vulkan_device *device, VkCommandBuffer commands,
			      VkDeviceAddress to, VkDeviceAddress from, uint64_t bytes)
{
	VkPipeline pipeline = VK_NULL_HANDLE;
	uint64_t bytes_done = 0;

	if (bytes >= BYTES_MIN && to % ALIGN == 0 && from % ALIGN == 0)
		pipeline = vulkan_kernel_get(device);
	if (!pipeline)
		return 0;
	device->vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
	while (bytes - bytes_done >= BLOCK_BYTES)
		bytes_done += blocks_record(device, commands, to + bytes_done, from + bytes_done,
					    (bytes - bytes_done) / BLOCK_BYTES);
	return bytes_done;
}
