/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/params.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/pool.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "fs/core/fs.h"
#include "fs/recovery/settings.h"
#include "fs/tier/tier.h"
#include "fs/trace/observe.h"
#include "fs/volume/volume.h"

#define BLANKS "\t "

/* A line, split into its fields. */
struct line {
	const char *name, *value;
	uint64_t gpus; /* a bit for the slot of each GPU that the line names */
};

static int line_refuse(const struct line *line, const char *why)
{
	log_warn(".gpumem/params: '%s%s%s': %s; nothing was changed", line->name,
		 *line->value ? " " : "", line->value, why);
	return -EINVAL;
}

/* The dot behind the name of a GPU, which may have a dot itself (gpu0.mig1.size); NULL: the line
 * names no GPU. */
static const char *name_dot(const char *name)
{
	return strncmp(name, "gpu", 3) == 0 ? strrchr(name, '.') : NULL;
}

/* "gpu3.size" names GPU 3, and "size" all GPUs: finds the GPUs of a line. */
static int line_gpus(struct line *line, params_gpus gpus)
{
	const char *dot = name_dot(line->name);
	size_t length = dot ? (size_t)(dot - line->name) : 0;

	for (unsigned i = 0; i < BACKEND_DEVICES_MAX; i++)
		if (gpus[i] &&
		    (!dot || (strncmp(gpus[i], line->name, length) == 0 && !gpus[i][length])))
			line->gpus |= 1ULL << i;
	return dot && !line->gpus ? line_refuse(line, "no such GPU here") : 0;
}

static int line_amount(const struct line *line, uint64_t min_bytes, struct amount *amount)
{
	size_t length = strlen(line->value);
	bool percent = length && line->value[length - 1] == '%';
	uint64_t value;

	/* parse_size_or_percent takes a percentage of 100 here, so the value is the percentage. */
	int error = parse_size_or_percent(line->value, 100, &value);

	if (error == -ERANGE && percent)
		return line_refuse(line, "more than 100%");
	if (error)
		return line_refuse(line, "not a size (use 8G, 512M or 50%)");
	if (value < min_bytes)
		return line_refuse(line, "must be more than nothing");
	*amount = (struct amount){.given = true, .percent = percent, .value = value};
	return 0;
}

static void limits_set(const struct line *line, struct params_limit *limits,
		       const struct amount *amount)
{
	for (unsigned gpu = 0; gpu < BACKEND_DEVICES_MAX; gpu++)
		if (line->gpus >> gpu & 1)
			limits[gpu] = (struct params_limit){.changes = true, .amount = *amount};
}

static int line_set_size(const struct line *line, struct params *params)
{
	struct amount amount = {0};
	int error = strcmp(line->value, "none") == 0 ? 0 : line_amount(line, 1, &amount);

	if (!error)
		limits_set(line, params->size, &amount);
	return error;
}

static int line_set_reserve(const struct line *line, struct params *params)
{
	struct amount amount;
	int error = line_amount(line, 0, &amount);

	if (!error)
		limits_set(line, params->reserve, &amount);
	return error;
}

static int line_set_evict(const struct line *line, struct params *params)
{
	struct amount amount;
	int error = line_amount(line, 1, &amount);

	if (!error)
		limits_set(line, params->evict, &amount);
	return error;
}

static int line_set_level(const struct line *line, struct params *params)
{
	if (log_level_parse(line->value, &params->level))
		return line_refuse(line, "not one of error|warn|info|debug");
	params->level_changes = true;
	return 0;
}

static int line_set_trace(const struct line *line, struct params *params)
{
	bool on = strcmp(line->value, "on") == 0;

	if (!on && strcmp(line->value, "off") != 0)
		return line_refuse(line, "not one of on|off");
	params->trace_changes = true;
	params->trace = on;
	return 0;
}

static const struct {
	const char *name;
	bool per_gpu;
	int (*set)(const struct line *line, struct params *params);
} param_settings[] = {
    {"size", true, line_set_size},    {"reserve", true, line_set_reserve},
    {"evict", true, line_set_evict},  {"log_level", false, line_set_level},
    {"trace", false, line_set_trace},
};

static int line_set(const struct line *line, const char *leaf, struct params *params)
{
	bool one_gpu = leaf != line->name;

	for (size_t i = 0; i < sizeof(param_settings) / sizeof(param_settings[0]); i++) {
		if (strcmp(param_settings[i].name, leaf) != 0 ||
		    (one_gpu && !param_settings[i].per_gpu))
			continue;
		return *line->value ? param_settings[i].set(line, params)
				    : line_refuse(line, "has no value (NAME VALUE)");
	}
	return line_refuse(line, "cannot be set");
}

/* Splits the line in place. Blank lines are skipped. */
static int line_parse(char *text, params_gpus gpus, struct params *params)
{
	char *name = text + strspn(text, BLANKS);
	char *value = name + strcspn(name, BLANKS);

	if (*value)
		*value++ = 0;
	value += strspn(value, BLANKS);
	for (size_t n = strlen(value); n && strchr(BLANKS, value[n - 1]); n--)
		value[n - 1] = 0;
	if (!*name)
		return 0;
	struct line line = {.name = name, .value = value};
	int error = line_gpus(&line, gpus);

	if (error)
		return error;
	/* The whole name where no GPU is named. */
	const char *leaf = name_dot(name);

	return line_set(&line, leaf ? leaf + 1 : name, params);
}

int params_parse(const char *text, size_t bytes, params_gpus gpus, struct params *params)
{
	struct params all = *params;
	char copy[PARAMS_BYTES_MAX + 1], *rest = copy, *line;

	if (bytes > PARAMS_BYTES_MAX || memchr(text, 0, bytes)) {
		log_warn(".gpumem/params: the written text is %s; nothing was changed",
			 bytes > PARAMS_BYTES_MAX ? "too long" : "not text");
		return -EINVAL;
	}
	memcpy(copy, text, bytes);
	copy[bytes] = 0;
	while ((line = strsep(&rest, "\n"))) {
		int error = line_parse(line, gpus, &all);

		if (error)
			return error;
	}
	*params = all;
	return 0;
}

static void volume_set_limits(struct volume *volume, const struct params *params)
{
	const struct params_limit *size = &params->size[volume->device->slot];
	const struct params_limit *reserve = &params->reserve[volume->device->slot];
	struct pool_limits limits = pool_limits(volume->pool);

	if (!size->changes && !reserve->changes)
		return;
	if (size->changes)
		limits.size = amount_bytes(&size->amount, volume->device->total, UINT64_MAX);
	if (reserve->changes)
		limits.reserve = amount_bytes(&reserve->amount, volume->device->total, 0);
	pool_set_limits(volume->pool, &limits);
	if (limits.size == UINT64_MAX)
		log_info("%s: size none, reserve %" PRIu64, volume->name, limits.reserve);
	else
		log_info("%s: size %" PRIu64 ", reserve %" PRIu64, volume->name, limits.size,
			 limits.reserve);
}

static int params_apply(struct fs *fs, const struct params *params)
{
	/* Limits are read, changed and written. */
	static pthread_mutex_t applying = PTHREAD_MUTEX_INITIALIZER;

	scoped_lock(&applying);
	int error = params->trace_changes ? observe_trace(fs, params->trace) : 0;

	if (error)
		return error;
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			volume_set_limits(&fs->volumes[i], params);
	if (params->level_changes) {
		log_info("log_level %s", log_level_name(params->level));
		log_level_set(params->level);
	}
	settings_note(fs);
	return 0;
}

static int volume_evict(struct fs *fs, const struct volume *volume, const struct params *params)
{
	const struct params_limit *evict = &params->evict[volume->device->slot];
	int error = 0;

	if (evict->changes)
		error =
		    tier_free(fs, volume, amount_bytes(&evict->amount, volume->device->total, 0));
	if (error)
		log_warn(".gpumem/params: %s: files cannot leave: %s", volume->name,
			 error == -ENOTSUP  ? "this mount has no place for them (-o spill=)"
			 : error == -ENOSPC ? "the rest is leased, or their place is full"
					    : strerror(-error));
	return error;
}

/* A size that no GPU has is a mistake. GPUs may differ, and a limit for all is right for the
 * largest. */
static int sizes_check(const struct fs *fs, const struct params *params)
{
	uint64_t asked = 0, most = 0;

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		const struct device *device = fs->volumes[i].device;
		const struct params_limit *size = device ? &params->size[device->slot] : NULL;
		if (!size || !size->changes || !size->amount.given || size->amount.percent)
			continue;
		asked = size->amount.value > asked ? size->amount.value : asked;
		most = device->total > most ? device->total : most;
	}
	if (asked <= most)
		return 0;
	log_warn(".gpumem/params: size %" PRIu64 ": no GPU of these has so much; nothing was "
		 "changed",
		 asked);
	return -ERANGE;
}

int control_params_set(struct fs *fs, const char *text, size_t bytes)
{
	struct params params = {0};
	params_gpus gpus = {NULL};

	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			gpus[fs->volumes[i].device->slot] = fs->volumes[i].name;
	int error = params_parse(text, bytes, gpus, &params);

	if (!error)
		error = sizes_check(fs, &params);
	if (!error)
		error = params_apply(fs, &params);
	for (unsigned i = 0; !error && i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			error = volume_evict(fs, &fs->volumes[i], &params);
	return error;
}
