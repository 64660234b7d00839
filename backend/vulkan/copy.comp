/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies blocks of 16 KiB inside a GPU. backend/vulkan/kernel_code.h has this file, compiled:
 * glslangValidator -V --target-env vulkan1.2 -g0 -o A backend/vulkan/copy.comp; spirv-opt -O A -o B */
#version 460
#extension GL_EXT_buffer_reference : require

#define THREADS 256
#define PARTS	4 /* of 16 bytes, by each thread of a block */

layout(local_size_x = THREADS) in;
layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer Source
{
	uvec4 parts[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) restrict writeonly buffer Target
{
	uvec4 parts[];
};
layout(push_constant) uniform Copy
{
	Source from;
	Target to;
	uint blocks;
}
copy;

void main()
{
	for (uint block = gl_WorkGroupID.x; block < copy.blocks; block += gl_NumWorkGroups.x) {
		uint at = block * THREADS * PARTS + gl_LocalInvocationID.x;
		uvec4 a = copy.from.parts[at];
		uvec4 b = copy.from.parts[at + THREADS];
		uvec4 c = copy.from.parts[at + 2 * THREADS];
		uvec4 d = copy.from.parts[at + 3 * THREADS];

		copy.to.parts[at] = a;
		copy.to.parts[at + THREADS] = b;
		copy.to.parts[at + 2 * THREADS] = c;
		copy.to.parts[at + 3 * THREADS] = d;
	}
}
