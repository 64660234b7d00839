/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The sums of a file's blocks, computed by the file's GPU: the file's memory is mapped as any
 * process may map it, and only the sums cross the bus. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/verify/tree.h"
#include "client/core/error.h"
#include "client/core/mount.h"
#include "client/core/process.h"
#include "client/gpu/cuda/kernel.h"
#include "client/lib/file.h"
#include "client/lib/gpumem.h"

/* A warp for each block; 256 threads are the most that the kernel takes. */
static const struct client_gpu_kernel tree_kernel = {
    .image = tree_ptx, .name = "tree_blocks", .threads = 256, .threads_per_block = 32};

/* The kernel's loads. Memory of another program may begin at any address (gpumem_share). */
#define LOAD_BYTES 16

/* With the right to write, the lease gives the file's own memory and no copy. Only loads follow. */
static int file_lease(int fd, gpumem **file)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), rights = fcntl(fd, F_GETFL) & O_ACCMODE;

	CLIENT_CALL();
	if (copy < 0)
		return client_fail(errno, "%s", strerror(errno));
	return client_file_new(copy, CLIENT_FD_OPEN, rights | CLIENT_LEASE_TIMED, copy, file);
}

static int file_open(int fd, uint64_t bytes, gpumem **file, struct gpumem_info *info)
{
	int error = file_lease(fd, file);

	if (error)
		return error;
	if (gpumem_get_info(*file, info) < 0)
		return -errno;
	if (info->kind != GPUMEM_FILE_DEVICE)
		return TREE_NO_GPU;
	return info->size < bytes ? client_fail(ENODATA, "the file has become shorter") : 0;
}

int tree_gpu(int fd, uint64_t blocks, uint64_t *sums, double *seconds)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	unsigned long long address = 0;
	void *kernel = NULL;
	gpumem *file = NULL;

	int error = file_open(fd, blocks * TREE_BLOCK, &file, &info);
	if (!error)
		error = cuda_kernel_open(&tree_kernel, info.uuid, blocks, &kernel);
	if (!error && gpumem_map_device(file, &address, NULL) < 0)
		error = -errno;
	if (!error && address % LOAD_BYTES)
		error = TREE_NO_GPU;
	double start = cli_seconds();

	if (!error)
		error = cuda_kernel_run(kernel, address, sums);
	*seconds = cli_seconds() - start;
	if (file)
		gpumem_close(file);
	if (kernel)
		cuda_kernel_close(kernel);
	return error;
}
