/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "client/cli/core/buffer.h"
#include "client/cli/core/cli.h"
#include "client/cli/verify/tree.h"
#include "client/cli/verify/verify.h"
#include "client/core/beneath.h"
#include "client/lib/gpumem.h"
#include "common/cleanup.h"

/* Making a context takes some tenths of a second and half a GiB of the GPU. */
#define GPU_BYTES_MIN ((off_t)2 << 30)
/* The number of blocks that the CPU checks. */
#define CHECKED_MAX 256

struct summing {
	const char *path;
	int fd;
	uint64_t bytes, blocks;
	uint64_t *sums;
};

bool verify_suits_gpu(const struct stat *st)
{
	return st->st_size >= GPU_BYTES_MIN &&
	       (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
}

/* Writes changes through mappings back, and drops the page cache, so that reads get the bytes in
 * GPU memory. */
static int cache_drop(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	return fsync(fd) < 0 ? -errno : -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int verify_open(const char *path, int flags)
{
	int fd = beneath_open_real(path, flags);

	if (fd < 0)
		return fd;
	int error = cache_drop(fd);

	if (!error)
		return fd;
	close(fd);
	return error;
}

/* Opens for writing if allowed: a lease for reading is of a copy, which takes as much memory again.
 */
static int file_open_shared(const char *path)
{
	int fd = verify_open(path, O_RDWR);

	return fd < 0 ? verify_open(path, O_RDONLY) : fd;
}

/* The i-th of count blocks: the blocks are split into count equal parts, and the block is random in
 * its part. The first and the last block are always among the samples. */
static uint64_t block_sample(uint64_t i, uint64_t count, uint64_t blocks)
{
	uint64_t from = blocks / count * i + blocks % count * i / count;
	uint64_t to = blocks / count * (i + 1) + blocks % count * (i + 1) / count;
	uint64_t number = 0;

	if (i == 0)
		return 0;
	if (i == count - 1)
		return blocks - 1;
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		number = 0; /* the first block of the part */
	return from + number % (to - from);
}

/* Compares samples of the GPU's sums with sums by the CPU. */
static int sums_check(const struct summing *summing, uint64_t blocks, uint64_t *checked)
{
	uint64_t count = blocks < CHECKED_MAX ? blocks : CHECKED_MAX;
	uint64_t *sums AUTO_FREE = calloc(blocks + 1, sizeof(*sums));

	if (!sums)
		return cli_fail(summing->path, ENOMEM);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t block = block_sample(i, count, blocks);
		int error = tree_read(summing->fd, summing->bytes, block, block + 1, 1, sums);

		if (error)
			return cli_fail(summing->path, -error);
		if (sums[block] == summing->sums[block])
			continue;
		cli_error("%s: the GPU and the CPU differ: block %" PRIu64
			  " of 64 KiB is %016" PRIx64 " by the GPU and %016" PRIx64
			  " by the CPU; one of them is wrong, or the file is being written to",
			  summing->path, block, summing->sums[block], sums[block]);
		return CLI_WRONG;
	}
	*checked = count * TREE_BLOCK;
	return CLI_OK;
}

/* Sums up the whole blocks on the GPU, if possible: *n_summed is their number. */
static int sum_on_gpu(const struct summing *summing, enum verify_device device, uint64_t *n_summed,
		      struct verified *found)
{
	uint64_t whole = summing->bytes / TREE_BLOCK;
	double seconds = 0;
	int error = whole ? tree_gpu(summing->fd, whole, summing->sums, &seconds) : 0;

	*n_summed = 0;
	if (error == TREE_NO_GPU && device == VERIFY_AUTO)
		return CLI_OK;
	if (error) {
		cli_error("%s: %s: %s", summing->path,
			  device == VERIFY_GPU ? "not on a GPU" : "on the CPU",
			  error < 0
			      ? gpumem_error()
			      : "the file is in system memory, or in memory of backend=vulkan");
		return device == VERIFY_AUTO ? CLI_OK : cli_status_of(error < 0 ? -error : ENOTSUP);
	}
	*n_summed = whole;
	found->on_gpu = whole * TREE_BLOCK;
	found->seconds = seconds;
	return sums_check(summing, whole, &found->checked);
}

static int file_sum(const struct summing *summing, enum verify_device device,
		    struct verified *found)
{
	uint64_t n_summed = 0;
	int status = device == VERIFY_CPU ? CLI_OK : sum_on_gpu(summing, device, &n_summed, found);

	if (status != CLI_OK)
		return status;
	int error = tree_read(summing->fd, summing->bytes, n_summed, summing->blocks,
			      buffer_threads(), summing->sums);

	if (error)
		return cli_fail(summing->path, -error);
	snprintf(found->sum, sizeof(found->sum), "%016" PRIx64,
		 tree_sum(summing->sums, summing->bytes));
	return CLI_OK;
}

int verify_tree(const char *path, enum verify_device device, struct verified *found)
{
	struct summing summing = {.path = path};
	struct stat st;

	if (device == VERIFY_AUTO && (stat(path, &st) < 0 || !verify_suits_gpu(&st)))
		device = VERIFY_CPU;
	int fd AUTO_CLOSE =
	    device == VERIFY_CPU ? verify_open(path, O_RDONLY) : file_open_shared(path);

	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail(path, fd < 0 ? -fd : errno);
	if (st.st_size < 0 || (uint64_t)st.st_size > CLI_FILE_MAX)
		return cli_fail(path, EFBIG);
	summing.fd = fd;
	summing.bytes = (uint64_t)st.st_size;
	summing.blocks = tree_blocks(summing.bytes);
	/* One more, because calloc(0) may give NULL. */
	summing.sums = calloc(summing.blocks + 1, sizeof(*summing.sums));
	if (!summing.sums)
		return cli_fail(path, ENOMEM);
	*found = (struct verified){.bytes = summing.bytes};
	int status = file_sum(&summing, device, found);

	free(summing.sums);
	return status;
}
