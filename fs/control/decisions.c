/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/decisions.h"

#include "backend/copy.h"
#include "fs/core/fs.h"
#include "fs/fuse/capabilities.h"
#include "fs/volume/volume.h"

static void write_backend_reason(const struct fs *fs, FILE *out)
{
	bool host = backend_is_host(fs->backend);

	if (fs->options.backend != BACKEND_AUTO)
		fprintf(out, "why.backend set by backend=%s\n", fs->backend->name);
	else if (host)
		fprintf(out, "why.backend no GPU with a driver of CUDA or Vulkan was found\n");
	else
		fprintf(out, "why.backend %u GPUs with a driver of %s were found\n",
			fs->backend->n_devices, fs->backend->name);
}

static void write_threads_reason(const struct fs *fs, FILE *out)
{
	if (fs->options.threads)
		fprintf(out, "why.threads set by threads=%u\n", fs->options.threads);
	else
		fprintf(out, "why.threads one per processor, at least %u and at most %u\n",
			CAPABILITIES_THREADS_MIN, CAPABILITIES_THREADS_MAX);
}

static void write_cache_reason(const struct fs *fs, FILE *out)
{
	static const char *const reasons[] = {
	    [CACHE_NONE] = "a GPU, or a program that maps a file, may change it at any time",
	    [CACHE_AUTO] = "set by cache=auto: cached pages stay until a program maps the file",
	    [CACHE_ALWAYS] = "set by cache=always: right only for files that no GPU writes to",
	};

	fprintf(out, "why.cache %s\n", reasons[fs->options.cache]);
	fprintf(out, "why.readahead a single reader%s has several requests under way\n",
		fs->options.cache == CACHE_NONE ? " of a mapping" : "");
}

static void write_device_reason(const struct fs *fs, const struct volume *volume, FILE *out)
{
	const char *reason = "set by bar=: this way, or none", *name = volume->name;
	const char *taken = copy_crossovers(volume->device).measured
				? "measured on this GPU"
				: "the default, until it is measured on this GPU";

	if (backend_is_host(fs->backend))
		reason = "the host backend's memory needs no BAR";
	else if (backend_handle(fs->backend) == CHUNK_VULKAN)
		reason = "the only way of this backend";
	else if (fs->options.bar == BAR_AUTO)
		reason = "the first of dmabuf, gdrcopy and vulkan that works";
	fprintf(out, "why.%s.bar %s\n", name, reason);
	fprintf(out, "why.%s.crossover_write %s\n", name, taken);
	fprintf(out, "why.%s.crossover_read %s\n", name, taken);
}

void decisions_write(const struct fs *fs, FILE *out)
{
	write_backend_reason(fs, out);
	write_threads_reason(fs, out);
	write_cache_reason(fs, out);
	fprintf(out, "why.streaming_copies the widest stores that this processor has\n");
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			write_device_reason(fs, &fs->volumes[i], out);
}
