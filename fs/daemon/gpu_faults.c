/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/daemon/gpu_faults.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/copy.h"
#include "backend/reset.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/keeper/fdstore.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"

/* The most log lines about single files; the last line has the number of further files. */
#define NAMED_MAX 100

struct losses {
	uint64_t files, lost;
};

static void file_log_lost(struct fs *fs, struct inode *inode, uint64_t bytes)
{
	char path[TREE_ABSOLUTE_MAX];

	tree_path_absolute(fs, inode, path);
	log_error("%s: lost: %" PRIu64 " bytes of the file cannot be read any more: EIO "
		  "until the file is truncated and written again, or removed",
		  path, bytes);
}

static struct losses files_count_lost(struct fs *fs, const struct device *device)
{
	struct losses losses = {0};
	struct inode *inode;
	uint32_t slot = 0;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		struct file *file = S_ISREG(inode->mode) ? inode->file : NULL;

		if (file && file_volume(file)->device == device) {
			uint64_t bytes = file_lost(file);

			losses.files++;
			losses.lost += bytes > 0;
			if (bytes && losses.lost <= NAMED_MAX)
				file_log_lost(fs, inode, bytes);
		}
		inode_put(fs, inode, 1);
	}
	return losses;
}

static void gpu_fault_reset(void *context, struct device *device, int64_t ms)
{
	struct fs *fs = context;
	struct losses losses = files_count_lost(fs, device);

	if (losses.lost > NAMED_MAX)
		log_error("%s: and %" PRIu64 " more files", device->label, losses.lost - NAMED_MAX);
	log_warn("%s: back after %" PRId64 " ms: %" PRIu64 " files served again, %" PRIu64 " lost",
		 device->label, ms, losses.files - losses.lost, losses.lost);
	worker_end();
}

/* A new process may be able to use a GPU that this process cannot recover. */
static void gpu_fault_request_replacement(void *context, struct device *device)
{
	struct fs *fs = context;

	if (fs->options.recovery == RECOVERY_TRANSPARENT)
		fdstore_request_replacement(fs->fdstore, device->uuid);
}

/* Whether a small allocation on the GPU can be cleared; a full GPU passes. */
static int device_test(struct device *device)
{
	struct copier *copier;
	struct chunk *chunk;
	int rc = chunk_new(device, PLACE_GPU, CHUNK_ALIGN, &chunk);

	if (rc < 0)
		return rc == -ENOSPC ? 0 : rc;
	struct span span = {.chunk = chunk, .bytes = CHUNK_ALIGN};

	rc = copier_open(device->backend, &copier);
	if (rc == 0) {
		rc = copy_zero(copier, &span, 0, span.bytes);
		int waited = copier_wait(copier);

		rc = rc < 0 ? rc : waited;
		copier_close(copier);
	}
	chunk_free(chunk);
	return rc;
}

int gpu_faults_test(struct fs *fs)
{
	const char *uuid = fdstore_wanted(fs->fdstore);

	for (unsigned i = 0; *uuid && i < fs->backend->n_devices; i++)
		if (strcmp(fs->backend->devices[i]->uuid, uuid) == 0)
			return device_test(fs->backend->devices[i]);
	if (*uuid)
		log_error("GPU %s, for which this daemon was started, is missing", uuid);
	return *uuid ? -ENODEV : 0;
}

int gpu_faults_start(struct fs *fs)
{
	const struct reset_watch watch = {
	    .reset = gpu_fault_reset, .given_up = gpu_fault_request_replacement, .context = fs};

	reset_start(fs->backend, &watch);
	return 0;
}

void gpu_faults_end(struct fs *fs)
{
	reset_end(fs->backend);
}
