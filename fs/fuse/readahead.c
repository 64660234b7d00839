/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/readahead.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/number.h"
#include "fs/core/fs.h"

/* How many requests of max_write the window holds. The kernel's default is 128 KiB, and the reply
 * to INIT can only lower the window; a stream then waits for a sequence of small requests. The
 * requests of a window are served by several workers while the reader copies the window before. On
 * the reference machine a request of 1 MiB is answered in 200-300 us, of which the DMA takes 26 us,
 * and the bus could carry a request every 20 us. Eight requests come near that rate. More would
 * mostly be fetched in vain for readers that stop early, or that touch single pages of a mapping.
 * A program that reads a mapping from its beginning is 4 times as fast as with 128 KiB. */
#define REQUESTS 8

#define PATH_BYTES 64

static int window_get(const char *path, uint64_t *bytes)
{
	FILE *file AUTO_FCLOSE = fopen(path, "re");
	char line[24];
	uint64_t kib;

	if (!file || !fgets(line, sizeof(line), file))
		return -1;
	line[strcspn(line, "\n")] = 0;
	if (parse_u64(line, 0, UINT64_MAX >> 10, &kib))
		return -1;
	*bytes = kib << 10;
	return 0;
}

static int window_set(const char *path, uint64_t bytes)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return -1;
	fprintf(file, "%" PRIu64 "\n", bytes >> 10);
	return fclose(file); /* fclose reports the error of the write */
}

uint32_t readahead_bytes(const struct fs *fs)
{
	return fs->can.max_write * REQUESTS;
}

void readahead_setup(struct fs *fs, dev_t device)
{
	uint64_t bytes_wanted = readahead_bytes(fs), bytes;
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(device),
		 minor(device));
	if (window_get(path, &bytes))
		return; /* there is no sysfs: readahead stays 0, unknown */
	if (bytes < bytes_wanted && window_set(path, bytes_wanted))
		log_info("readahead stays at %" PRIu64 " KiB: %s cannot be written", bytes >> 10,
			 path);
	window_get(path, &bytes);
	atomic_store(&fs->can.readahead, bytes);
}
