/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-standin */
/* backends: standin
 * gpus: 2
 * env: GPUMEM_STANDIN_MIG=2
 * Device addresses of files of MIG instances: processes of one instance share a file by its path,
 * and a process of another instance is refused, with the reason. */
#include "tests/mount/client_gpu.h"

#include <sys/xattr.h>

/* This process uses the instance of the directory alone, as CUDA does up to version 12. */
static void use_instance_of(const char *directory)
{
	char uuid[64] = "";

	OK(getxattr(directory, "user.gpumem.device", uuid, sizeof(uuid) - 1));
	CHECK(strncmp(uuid, "MIG-", 4) == 0);
	setenv("GPUMEM_STANDIN_MIG", "2", 1);
	setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
	use_gpu();
}

static void mark_by_device(void)
{
	unsigned char mark[1000];

	use_instance_of(getenv("GPU0"));
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, 5 * MIB);

	pattern_fill(mark, sizeof(mark), 2, 3 * MIB);
	MUST(cuMemcpyHtoD(at + 3 * MIB, mark, sizeof(mark)));
	MUST(cuCtxSynchronize());
	GOOD(gpumem_close(file));
}

static void shared_inside_an_instance(void)
{
	int fd = patterned_file("file", 1, 5 * MIB);

	need_in_children(mark_by_device);
	use_instance_of(getenv("GPU0"));
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, 5 * MIB);

	expect_device(at, 1, 0, 3 * MIB);
	expect_device(at, 2, 3 * MIB, 3 * MIB + 1000);
	pattern_check(fd, 2, 3 * MIB, 1000);
	GOOD(gpumem_close(file));
}

static void refused_in_another_instance(void)
{
	unsigned long long at;
	size_t bytes;
	int fd = patterned_file("file", 3, 2 * MIB);

	use_instance_of(getenv("GPU1"));
	gpumem *file = lease("file", O_RDWR);

	REFUSED(ENXIO, "another MIG instance", gpumem_map_device(file, &at, &bytes));
	GOOD(gpumem_close(file));
	pattern_check(fd, 3, 0, 2 * MIB); /* reads need no device */
}

/* A driver that shows both instances to one process. */
static void refused_between_visible_instances(void)
{
	unsigned long long at;
	size_t bytes;

	OK(close(patterned_file("file", 4, 2 * MIB)));
	setenv("GPUMEM_STANDIN_MIG", "2", 1);
	use_gpu_number(1);
	gpumem *file = lease("file", O_RDWR);

	REFUSED(ENOTSUP, "MIG instances", gpumem_map_device(file, &at, &bytes));
	GOOD(gpumem_close(file));
}

CLIENT_PROG(TEST(shared_inside_an_instance), TEST(refused_in_another_instance),
	    TEST(refused_between_visible_instances))
