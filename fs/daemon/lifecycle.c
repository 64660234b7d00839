/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "common/hash.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/daemon/gpu_faults.h"
#include "fs/daemon/idle_release.h"
#include "fs/file/calibrate.h"
#include "fs/recovery/checkpoint.h"
#include "fs/recovery/restore.h"
#include "fs/spool/spool.h"
#include "fs/tree/tree.h"
#include "fs/tree/unclaimed_lease.h"

#define HOST_PERCENT	 50
#define METADATA_PERCENT 25

static uint64_t machine_memory(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit;
}

static uint64_t host_bytes(const struct options *options)
{
	uint64_t all = machine_memory();

	return amount_bytes(&options->host_size, all, all / 100 * HOST_PERCENT);
}

static int backend_start(struct fs *fs)
{
	const struct options *options = &fs->options;
	struct backend_config config = {
	    .kind = options->backend,
	    .gpus = options->gpus,
	    .host_bytes = host_bytes(options),
	    .host_gpus = options->host_gpus,
	    .bar = options->bar,
	};

	return backend_open(&config, &fs->backend);
}

/* The one that was just opened behind the last. */
static void volume_count(struct fs *fs)
{
	fs->volumes[fs->n_volumes].index = fs->n_volumes;
	fs->n_volumes++;
}

static int volumes_open(struct fs *fs)
{
	const struct options *options = &fs->options;
	int error = 0;

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
	if (!error)
		volume_count(fs);
	return error;
}

static void volumes_close(struct fs *fs)
{
	while (fs->n_volumes)
		volume_close(&fs->volumes[--fs->n_volumes]);
}

static bool has_option(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ','))
			return true;
	}
	return false;
}

static void counts_init(struct fs *fs)
{
	user_limits_init(&fs->users);
	host_outs_init(&fs->outs);
	lease_list_init(&fs->leases);
	snapshots_init(&fs->snapshots);
}

static void counts_destroy(struct fs *fs)
{
	snapshots_destroy(fs);
	lease_list_destroy(&fs->leases);
	user_limits_destroy(&fs->users);
	pthread_mutex_destroy(&fs->outs.lock);
}

void fs_unprepare(struct fs *fs)
{
	volumes_close(fs);
	backend_close(fs->backend);
	inode_table_destroy(&fs->inodes);
	brlock_destroy(&fs->topology);
	access_log_destroy(&fs->access_log);
	trace_destroy(&fs->trace);
	counts_destroy(fs);
}

int fs_prepare(struct fs *fs)
{
	int error;

	hash_seed_init();
	brlock_init(&fs->topology);
	pthread_mutex_init(&fs->unclaimed_leases.lock, NULL);
	access_log_init(&fs->access_log);
	trace_init(&fs->trace);
	counts_init(fs);
	clock_gettime(CLOCK_REALTIME, &fs->started);
	fs->metadata_max = (int64_t)(machine_memory() / 100 * METADATA_PERCENT);
	fs->noatime = has_option(fs->options.mount_options, "noatime");
	/* One that goes on where another was killed does so without it, if need be: spool_open. */
	error = fs->holder ? 0 : spool_check(&fs->options);
	if (error)
		goto destroy_log;
	error = inode_table_init(&fs->inodes);
	if (error)
		goto destroy_log;
	error = backend_start(fs);
	if (error)
		goto destroy_table;
	error = volumes_open(fs);
	if (error)
		fs_unprepare(fs);
	return error;

destroy_table:
	inode_table_destroy(&fs->inodes);
destroy_log:
	brlock_destroy(&fs->topology);
	pthread_mutex_destroy(&fs->unclaimed_leases.lock);
	access_log_destroy(&fs->access_log);
	trace_destroy(&fs->trace);
	counts_destroy(fs);
	return error;
}

int fs_fill(struct fs *fs)
{
	int error = fs->holder ? fs_restore(fs) : tree_init(fs);

	if (error) {
		fs_unprepare(fs);
		return error;
	}
	idle_release_start(fs);
	checkpoint_start(fs);
	gpu_faults_start(fs);
	error = spool_open(fs);
	if (error)
		fs_close(fs);
	return error;
}

int fs_open(struct fs *fs)
{
	int error = fs_prepare(fs);

	return error ? error : fs_fill(fs);
}

void fs_close(struct fs *fs)
{
	gpu_faults_end(fs);
	idle_release_end(fs);
	calibrate_end(fs);
	unclaimed_leases_end(fs);
	host_outs_end(fs);
	checkpoint_end(fs);
	spool_close(fs);
	tree_destroy(fs);
	/* The calling thread copied nothing, but may have been asked to free. */
	worker_end();
	volumes_close(fs);
	fs_forget_held(fs);
	backend_close(fs->backend);
	inode_table_destroy(&fs->inodes);
	brlock_destroy(&fs->topology);
	pthread_mutex_destroy(&fs->unclaimed_leases.lock);
	stats_free(&fs->stats);
	access_log_destroy(&fs->access_log);
	trace_destroy(&fs->trace);
	free(atomic_load(&fs->not_shared));
	counts_destroy(fs);
}
