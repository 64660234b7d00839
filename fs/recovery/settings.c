/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/recovery/settings.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/pool.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/region.h"
#include "fs/trace/observe.h"
#include "fs/volume/volume.h"

#define SETTINGS_MAGIC	 0x50465047u /* "GPFP" */
#define SETTINGS_VERSION 2
/* Daemons of this version kept limits by the GPU's number. */
#define SETTINGS_VERSION_MIN 1

struct values {
	struct pool_limits limits[BACKEND_DEVICES_MAX]; /* by slot */
	uint32_t level;
	uint32_t traces;
};

/* Two copies: a change writes the copy that is not current and then makes that copy current. */
struct settings {
	struct region_head head;
	_Atomic uint32_t changes; /* values[changes % 2] is current; 0: nothing was set */
	struct values values[2];
};

static const struct region_kind region_kind = {
    .name = "gpumemfs-settings",
    .head = {.magic = SETTINGS_MAGIC, .version = SETTINGS_VERSION},
    .bytes = sizeof(struct settings),
};

static const struct region_kind numbered_kind = {
    .name = "gpumemfs-settings",
    .head = {.magic = SETTINGS_MAGIC, .version = SETTINGS_VERSION_MIN},
    .bytes = sizeof(struct settings),
};

/* The caller alone uses the region. */
static void numbered_convert(const struct fs *fs, struct settings *settings)
{
	struct values *current = &settings->values[settings->changes % 2];
	const struct values old = *current;

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		const struct device *device = fs->volumes[i].device;

		if (device)
			current->limits[device->slot] = old.limits[device->index];
	}
	settings->head = region_kind.head;
}

static int settings_map(const struct fs *fs, void **memory)
{
	uint64_t id = fdstore_id(FDSTORE_FUSE, FDSTORE_FUSE_SETTINGS);
	int error = region_open(fs->fdstore, id, &region_kind, memory);

	if (error != -EPROTO || region_open(fs->fdstore, id, &numbered_kind, memory))
		return error;
	numbered_convert(fs, *memory);
	return 0;
}

static void settings_apply(struct fs *fs, const struct values *values)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		const struct volume *volume = &fs->volumes[i];

		if (volume->device)
			pool_set_limits(volume->pool, &values->limits[volume->device->slot]);
	}
	if (values->level <= LOG_LEVEL_DEBUG)
		log_level_set((enum log_level)values->level);
	if (values->traces)
		observe_trace(fs, true);
}

static FS_STATE(struct settings, settings_of, FS_SETTINGS)

    int settings_open(struct fs *fs)
{
	if (!fs->fdstore)
		return 0;
	void *memory = NULL;
	int error = settings_map(fs, &memory);
	struct settings *settings = memory;
	uint32_t changes = settings ? settings->changes : 0;

	fs->states[FS_SETTINGS] = settings;
	if (changes)
		settings_apply(fs, &settings->values[changes % 2]);
	if (error)
		log_error("settings in .gpumem/params do not outlive this daemon: %s",
			  strerror(-error));
	return error;
}

void settings_note(struct fs *fs)
{
	struct settings *settings = settings_of(fs);

	if (!settings)
		return;
	uint32_t changes = settings->changes + 1;
	struct values *values = &settings->values[changes % 2];

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		const struct volume *volume = &fs->volumes[i];

		if (volume->device)
			values->limits[volume->device->slot] = pool_limits(volume->pool);
	}
	values->level = log_level_get();
	values->traces = (atomic_load(&fs->observers) & OBSERVE_TRACE) != 0;
	/* 0 means that nothing was set. */
	atomic_store(&settings->changes, changes ? changes : 2);
}

void settings_close(struct fs *fs)
{
	struct settings *settings = settings_of(fs);

	if (settings)
		munmap(settings, sizeof(*settings));
	fs->states[FS_SETTINGS] = NULL;
}
