/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "backend/copy.h"
#include "backend/pool.h"
#include "backend/stream/stream.h"
#include "fs/control/decisions.h"
#include "fs/control/lists.h"
#include "fs/control/params.h"
#include "fs/control/texts.h"
#include "fs/core/fs.h"
#include "fs/core/version.h"
#include "fs/keeper/fdstore.h"
#include "fs/ledger/kinds.h"
#include "fs/ledger/ledger.h"
#include "fs/share/share.h"
#include "fs/spool/spool.h"
#include "fs/trace/observe.h"
#include "fs/volume/volume.h"

static int write_version(struct fs *fs, uid_t uid, FILE *out)
{
	bool host = backend_is_host(fs->backend);

	(void)uid;
	fprintf(out, "gpumemfs %s\n", GPUMEMFS_VERSION);
	fprintf(out, "backend %s %s\n", fs->backend->name,
		host ? "(system memory: no GPU is in use)" : fs->backend->version);
	fprintf(out, "libfuse %s\n", fuse_pkgversion());
	return 0;
}

static void write_capability(FILE *out, const char *name, const struct capability *capability)
{
	fprintf(out, "%s %s: %s\n", name, capability->on ? "on" : "off", capability->reason);
}

static void write_device(FILE *out, const struct volume *volume)
{
	struct device *device = volume->device;
	struct copy_crossover crossover = copy_crossovers(device);
	struct pool_limits limits = pool_limits(volume->pool);
	struct bar_usage bar = bar_usage(device);
	const char *name = volume->name, *why, *provider = device_bar_name(device, &why);

	fprintf(out, "%s.name %s\n", name, device->name);
	fprintf(out, "%s.uuid %s\n", name, device->uuid);
	if (device->compute_mode)
		fprintf(out, "%s.compute_mode %s\n", name, device->compute_mode);
	if (limits.size == UINT64_MAX)
		fprintf(out, "%s.size none\n", name);
	else
		fprintf(out, "%s.size %" PRIu64 "\n", name, limits.size);
	fprintf(out, "%s.reserve %" PRIu64 "\n", name, limits.reserve);
	fprintf(out, "%s.bar %s%s%s\n", name, provider, why ? ": " : "", why ? why : "");
	fprintf(out, "%s.bar_budget %" PRIu64 "\n", name, bar.budget);
	fprintf(out, "%s.bar_mapped %" PRIu64 "\n", name, bar.mapped);
	fprintf(out, "%s.crossover_write %" PRIu64 " %s\n", name, crossover.write,
		crossover.measured ? "measured" : "default");
	fprintf(out, "%s.crossover_read %" PRIu64 " %s\n", name, crossover.read,
		crossover.measured ? "measured" : "default");
	fprintf(out, "%s.store_beside %" PRIu64 " %s\n", name, crossover.overlap,
		crossover.measured ? "measured" : "default");
}

/* As the option spill= takes the places. */
static void write_places(FILE *out, const char *name, uint64_t host, uint64_t disk)
{
	fprintf(out, "%s %s", name, host || disk ? "" : "none");
	if (host)
		fprintf(out, "host:%" PRIu64, host);
	if (disk)
		fprintf(out, "%sdisk:%" PRIu64, host ? "," : "", disk);
	fputc('\n', out);
}

static void write_shares(const struct options *options, FILE *out)
{
	fprintf(out, "shares %s", options->n_shares ? "" : "equal");
	for (unsigned i = 0; i < options->n_shares; i++)
		fprintf(out, "%s%u=%u", i ? ":" : "", options->shares[i].uid,
			options->shares[i].weight);
	fputc('\n', out);
}

static void write_spill(struct fs *fs, FILE *out)
{
	const struct amount *most = &fs->options.user_spill;
	uint64_t host = fs->budgets[PLACE_HOST].size, disk = fs->budgets[PLACE_DISK].size;

	write_places(out, "spill", host, disk);
	write_shares(&fs->options, out);
	write_places(out, "user_spill", host ? amount_bytes(most, host, 0) : 0,
		     disk ? amount_bytes(most, disk, 0) : 0);
}

static int write_params(struct fs *fs, uid_t uid, FILE *out)
{
	static const char *const caches[] = {
	    [CACHE_NONE] = "none", [CACHE_AUTO] = "auto", [CACHE_ALWAYS] = "always"};
	const struct options *options = &fs->options;
	struct capability sharing;

	(void)uid;
	fprintf(out, "backend %s\n", fs->backend->name);
	fprintf(out, "cache %s\n", caches[options->cache]);
	fprintf(out, "threads %u\n", fs->can.threads);
	fprintf(out, "max_write %u\n", fs->can.max_write);
	fprintf(out, "readahead %" PRIu64 "\n", atomic_load(&fs->can.readahead));
	fprintf(out, "max_chunk %" PRIu64 "\n", options->max_chunk);
	fprintf(out, "log_level %s\n", log_level_name(log_level_get()));
	fprintf(out, "trace %s\n", atomic_load(&fs->observers) & OBSERVE_TRACE ? "on" : "off");
	fprintf(out, "streaming_copies %s\n", stream_name());
	write_capability(out, "io_uring", &fs->can.io_uring);
	write_capability(out, "clone_fd", &fs->can.clone_fd);
	write_capability(out, "busy_poll", &fs->can.busy_poll);
	write_capability(out, "passthrough", &fs->can.passthrough);
	write_capability(out, "mmap", &fs->can.mmap);
	write_capability(out, "killpriv", &fs->can.killpriv);
	share_capability(fs, &sharing);
	write_capability(out, "sharing", &sharing);
	write_capability(out, "recovery", &fs->can.recovery);
	if (fs->fdstore)
		fprintf(out, "daemon %" PRIu64 " process %d keeper %d\n",
			fdstore_generation(fs->fdstore), getpid(), fdstore_keeper(fs->fdstore));
	fprintf(out, "spool %s\n", spool_of(fs) ? options->spool : "none");
	if (spool_of(fs))
		fprintf(out, "restore %s\n", options->restore == RESTORE_NOW ? "now" : "lazy");
	fprintf(out, "metadata %" PRId64 "\n", ledger_of(fs)->metadata_max);
	fprintf(out, "user_metadata %" PRIu64 "\n", ledger_limit(fs, LEDGER_METADATA));
	write_spill(fs, out);
	write_capability(out, "parallel_writes", &fs->can.parallel_writes);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			write_device(out, &fs->volumes[i]);
	decisions_write(fs, out);
	return 0;
}

const struct control_file control_files[] = {
    {1, "version", 0444, write_version, NULL, NULL},
    {2, "params", 0644, write_params, NULL, control_params_set},
    {3, "stats.json", 0444, NULL, control_stats, NULL},
    {4, "metrics", 0444, control_metrics, NULL, NULL},
    {5, "mappings", 0444, NULL, control_mappings, NULL},
    /* The lines have the paths of all users. */
    {6, "accesslog", 0400, NULL, NULL, NULL},
    {8, "users", 0444, control_users, NULL, NULL},
    {0},
};

const struct control_file *control_file_find(const struct fs *fs, uint64_t id)
{
	for (const struct fs_part *part = fs->parts; part->name; part++)
		for (const struct control_file *file = part->files; file && file->name; file++)
			if (file->id == id)
				return file;
	return NULL;
}
