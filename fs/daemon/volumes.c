/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/daemon/volumes.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/disk.h"
#include "common/log.h"
#include "fs/ahead/ahead.h"
#include "fs/core/fs.h"
#include "fs/ledger/machine.h"
#include "fs/recovery/restore.h"
#include "fs/spool/spool.h"
#include "fs/volume/volume.h"

#define HOST_PERCENT 50

static uint64_t host_bytes(const struct options *options)
{
	uint64_t all = machine_memory();

	return amount_bytes(&options->host_size, all, all / 100 * HOST_PERCENT);
}

int backend_part_open(struct fs *fs)
{
	const struct options *options = &fs->options;
	struct restore_devices earlier = {0};
	struct backend_config config = {
	    .kind = options->backend,
	    .gpus = options->gpus,
	    .host_bytes = host_bytes(options),
	    .host_gpus = options->host_gpus,
	    .bar = options->bar,
	};

	/* The earlier daemon's files are on its GPUs, in their order, whatever GPUs are here now.
	 */
	if (fs->fdstore_ops)
		fs_restore_devices(fs->fdstore_ops, &earlier);
	if (*earlier.gpus) {
		config.gpus = earlier.gpus;
		config.recovers = true;
	}
	if (config.kind == BACKEND_AUTO && *earlier.backend)
		config.kind = backend_kind_named(earlier.backend);

	return backend_open(&config, &fs->backend);
}

void backend_part_close(struct fs *fs)
{
	backend_close(fs->backend);
}

/* Adds the volume that was just opened to the count of open volumes. */
static void volume_count(struct fs *fs)
{
	fs->volumes[fs->n_volumes].ahead = ahead_of(fs);
	fs->volumes[fs->n_volumes].index = fs->n_volumes;
	fs->n_volumes++;
}

void volumes_close(struct fs *fs)
{
	while (fs->n_volumes)
		volume_close(&fs->volumes[--fs->n_volumes]);
	free(fs->volumes);
}

static int places_open(struct fs *fs, enum memory_place place)
{
	int error = 0;

	for (unsigned i = 0; !error && i < fs->n_volumes; i++)
		if (fs->volumes[i].pool)
			error = volume_open_place(&fs->volumes[i], place, &fs->budgets[place]);
	return error;
}

static int spill_open_host(struct fs *fs)
{
	const struct amount *spill = &fs->options.spill;

	if (!spill->given)
		return 0;
	fs->budgets[PLACE_HOST].size = amount_bytes(spill, machine_memory(), 0);
	for (unsigned i = 0; i < fs->backend->n_devices; i++) {
		if (fs->backend->devices[i]->host_memory)
			continue;
		log_error("spill=: the driver of %s has no system memory for GPUs: needed is "
			  "CUDA 12.2 or later, on Linux without WSL",
			  fs->backend->devices[i]->label);
		return -ENOTSUP;
	}
	return places_open(fs, PLACE_HOST);
}

/* The directory of the spool is on a disk, and no other user can use the directory. */
static int spill_open_disk(struct fs *fs)
{
	const struct amount *spill = &fs->options.spill_disk;
	struct device_memory memory;
	int error;

	if (!spill->given)
		return 0;
	error = spool_check(&fs->options);
	if (!error)
		error = disk_dir_open(fs->backend, fs->options.spool);
	if (!error)
		error = disk_dir_memory(fs->backend, &memory);
	if (error)
		return error;
	fs->budgets[PLACE_DISK].size = amount_bytes(spill, memory.total, 0);
	return places_open(fs, PLACE_DISK);
}

int volumes_open(struct fs *fs)
{
	const struct options *options = &fs->options;
	int error = 0;

	fs->volumes = calloc(fs->backend->n_devices + 1, sizeof(*fs->volumes));
	if (!fs->volumes)
		return -ENOMEM;
	for (unsigned i = 0; !error && i < fs->backend->n_devices; i++) {
		struct device *device = fs->backend->devices[i];
		struct pool_limits limits = {
		    .size = amount_bytes(&options->size, device->total, UINT64_MAX),
		    .reserve = amount_bytes(&options->reserve, device->total, 0),
		};

		error = volume_open_gpu(&fs->volumes[fs->n_volumes], device, &limits,
					options->max_chunk);
		if (!error)
			volume_count(fs);
	}
	if (!error)
		error = volume_open_host(&fs->volumes[fs->n_volumes], host_bytes(options));
	if (!error) {
		volume_count(fs);
		error = spill_open_host(fs);
	}
	if (!error)
		error = spill_open_disk(fs);
	if (error)
		volumes_close(fs);
	return error;
}
