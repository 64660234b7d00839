/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/output/output.h"
#include "client/cli/top/top.h"
#include "common/cleanup.h"
#include "common/number.h"

void top_open(struct top *top, const char *mountpoint)
{
	AUTO_FREE char *path = NULL;

	*top = (struct top){.mountpoint = mountpoint, .log = -1};
	if (asprintf(&path, "%s/.gpumem/accesslog", mountpoint) >= 0)
		top->log = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static void files_forget(struct top *top)
{
	while (top->n_files)
		free(top->files[--top->n_files].path);
}

static void sharers_forget(struct top *top)
{
	while (top->n_sharers) {
		struct top_sharer *row = &top->sharers[--top->n_sharers];

		free((char *)row->sharer.path);
		free(row->command);
	}
}

void top_close(struct top *top)
{
	if (top->log >= 0)
		close(top->log);
	files_forget(top);
	sharers_forget(top);
}

static struct top_gpu *gpu_find(struct top *top, const char *name, size_t length)
{
	for (unsigned i = 0; i < top->n_gpus; i++)
		if (strncmp(top->gpus[i].name, name, length) == 0 && !top->gpus[i].name[length])
			return &top->gpus[i];
	if (top->n_gpus == TOP_GPUS || length >= sizeof(top->gpus[0].name))
		return NULL;
	struct top_gpu *gpu = &top->gpus[top->n_gpus++];

	memcpy(gpu->name, name, length);
	return gpu;
}

static double counter_since(uint64_t now, uint64_t *last, double seconds)
{
	double rate = now >= *last && seconds > 0 ? (double)(now - *last) / seconds : 0;

	*last = now;
	return rate;
}

static void requests_count(const json_t *stats, uint64_t *requests, uint64_t *errors)
{
	const char *name;
	json_t *operation;

	*requests = *errors = 0;
	json_object_foreach (json_object_get(stats, "operations"), name, operation) {
		*requests += facts_number(operation, "requests");
		*errors += facts_number(operation, "errors");
	}
}

static void counters_take(struct top_gpu *gpu, const json_t *volume, double seconds)
{
	struct top_counters *last = &gpu->counters;

	gpu->counted = json_object_get(volume, "read_bytes");
	gpu->rate.read = counter_since(facts_number(volume, "read_bytes"), &last->read, seconds);
	gpu->rate.write = counter_since(facts_number(volume, "write_bytes"), &last->write, seconds);
	gpu->rate.copy = counter_since(facts_number(volume, "copy_bytes"), &last->copy, seconds);
	gpu->request_rate =
	    counter_since(facts_number(volume, "requests"), &last->requests, seconds);
}

static void places_take(struct top_gpu *gpu, const json_t *volume, double seconds)
{
	const char *name;
	json_t *object;

	gpu->n_places = 0;
	json_object_foreach (json_object_get(volume, "places"), name, object) {
		struct top_place *place = &gpu->places[gpu->n_places];

		if (gpu->n_places == TOP_PLACES)
			break;
		gpu->n_places++;
		snprintf(place->name, sizeof(place->name), "%s", name);
		place->size = facts_number(object, "size_bytes");
		place->files = facts_number(object, "file_bytes");
		place->rate =
		    counter_since(facts_number(object, "moved_bytes"), &place->moved, seconds);
	}
}

static void volume_take(struct top *top, const json_t *volume, double seconds)
{
	const char *name = json_string_value(json_object_get(volume, "name"));
	struct top_gpu *gpu = name ? gpu_find(top, name, strlen(name)) : NULL;

	if (!gpu)
		return;
	gpu->total = facts_number(volume, "total_bytes");
	gpu->used = gpu->total - facts_number(volume, "free_bytes");
	gpu->held = facts_number(volume, "held_bytes");
	gpu->mapped = facts_number(json_object_get(volume, "bar"), "mapped_bytes");
	snprintf(gpu->health, sizeof(gpu->health), "%s", facts_health(volume));
	counters_take(gpu, volume, seconds);
	places_take(gpu, volume, seconds);
}

/* For users who may not read the access log: the daemon lists each user's own files, the busiest
 * first. */
static void busy_take(struct top *top, const json_t *busy)
{
	const json_t *row;
	size_t i;

	files_forget(top);
	json_array_foreach (busy, i, row) {
		const char *path = json_string_value(json_object_get(row, "path"));

		if (!path || top->n_files == TOP_FILES)
			break;
		struct top_file *file = &top->files[top->n_files];

		*file = (struct top_file){.path = strdup(path + (*path == '/')),
					  .recent = facts_number(row, "recent_bytes")};
		if (file->path && file->recent)
			top->n_files++;
		else
			free(file->path);
	}
}

void top_take_stats(struct top *top, const json_t *stats, double now)
{
	double seconds = top->samples++ ? now - top->time : 0;
	uint64_t requests, errors;
	const json_t *volume;
	size_t i;

	requests_count(stats, &requests, &errors);
	top->rate.read =
	    counter_since(facts_number(stats, "read_bytes"), &top->read_bytes, seconds);
	top->rate.write =
	    counter_since(facts_number(stats, "write_bytes"), &top->write_bytes, seconds);
	top->rate.copy =
	    counter_since(facts_number(stats, "copy_bytes"), &top->copy_bytes, seconds);
	top->request_rate = counter_since(requests, &top->requests, seconds);
	top->error_rate = counter_since(errors, &top->errors, seconds);
	top->time = now;
	json_array_foreach (json_object_get(stats, "volumes"), i, volume)
		volume_take(top, volume, seconds);
	if (top->log < 0)
		busy_take(top, json_object_get(stats, "busy"));
}

static struct top_file *file_find(struct top *top, const char *path)
{
	for (unsigned i = 0; i < top->n_files; i++)
		if (strcmp(top->files[i].path, path) == 0)
			return &top->files[i];
	if (top->n_files == TOP_FILES)
		return NULL;
	struct top_file *file = &top->files[top->n_files];

	*file = (struct top_file){.path = strdup(path)};
	return file->path ? (top->n_files++, file) : NULL;
}

/* The value of a field in a line "... op=read ... result=4096 ... path=/gpu0/weights". */
static const char *log_field(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	return at ? at + strlen(name) : NULL;
}

static double *field_counter(struct top_bytes *bytes, const char *operation)
{
	size_t length = strcspn(operation, " ");

	if (length == 4 && strncmp(operation, "read", 4) == 0)
		return &bytes->read;
	if (length == 5 && strncmp(operation, "write", 5) == 0)
		return &bytes->write;
	if (length >= 4 && strncmp(operation, "copy", 4) == 0)
		return &bytes->copy;
	return NULL;
}

static void log_take_line(struct top *top, char *line)
{
	const char *operation = log_field(line, " op="), *result = log_field(line, " result=");
	char *path = (char *)log_field(line, " path=/"), *to = (char *)log_field(line, " to=/");
	uint64_t bytes = result ? strtoull(result, NULL, 10) : 0;

	/* A copy counts for its target. */
	if (to)
		path = to;
	if (!operation || !bytes || !path)
		return;
	path[strcspn(path, " ")] = '\0';
	struct top_gpu *gpu = gpu_find(top, path, strcspn(path, "/"));
	struct top_file *file = file_find(top, path);
	double *of_gpu = gpu ? field_counter(&gpu->log_bytes, operation) : NULL;
	double *of_file = file ? field_counter(&file->bytes, operation) : NULL;

	if (of_gpu)
		*of_gpu += (double)bytes;
	if (of_file)
		*of_file += (double)bytes;
}

void top_take_log(struct top *top, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] != '\n') {
			if (top->rest_length < sizeof(top->rest) - 1)
				top->rest[top->rest_length++] = text[i];
			continue;
		}
		top->rest[top->rest_length] = '\0';
		log_take_line(top, top->rest);
		top->rest_length = 0;
	}
}

static double bytes_sum(const struct top_bytes *bytes)
{
	return bytes->read + bytes->write + bytes->copy;
}

static int file_compare_busy(const void *first, const void *second)
{
	double a = bytes_sum(&((const struct top_file *)first)->rate);
	double b = bytes_sum(&((const struct top_file *)second)->rate);

	return a < b ? 1 : a > b ? -1 : 0;
}

/* The access log may have lost lines, but the counters count all: so the counters give the amount,
 * and the log gives the shares. */
static double rate_share(double bytes, double all_bytes, double rate)
{
	return all_bytes > 0 ? rate * bytes / all_bytes : 0;
}

/* The file's share of its GPU's traffic. */
static struct top_bytes file_share(struct top *top, const struct top_file *file)
{
	const struct top_gpu *gpu = gpu_find(top, file->path, strcspn(file->path, "/"));

	if (!gpu)
		return (struct top_bytes){0};
	return (struct top_bytes){
	    rate_share(file->bytes.read, gpu->log_bytes.read, gpu->rate.read),
	    rate_share(file->bytes.write, gpu->log_bytes.write, gpu->rate.write),
	    rate_share(file->bytes.copy, gpu->log_bytes.copy, gpu->rate.copy)};
}

static void files_end(struct top *top)
{
	for (unsigned i = 0; i < top->n_files; i++) {
		top->files[i].rate = file_share(top, &top->files[i]);
		top->files[i].bytes = (struct top_bytes){0};
	}
	qsort(top->files, top->n_files, sizeof(top->files[0]), file_compare_busy);
	while (top->n_files && bytes_sum(&top->files[top->n_files - 1].rate) <= 0)
		free(top->files[--top->n_files].path);
}

void top_end_interval(struct top *top)
{
	if (top->log >= 0)
		files_end(top);
	for (unsigned i = 0; i < top->n_gpus; i++) {
		struct top_gpu *gpu = &top->gpus[i];

		gpu->log_bytes = (struct top_bytes){0};
		memmove(gpu->history, gpu->history + 1, sizeof(gpu->history) - sizeof(double));
		gpu->history[TOP_HISTORY - 1] = bytes_sum(&gpu->rate);
	}
}

static void sharer_add(void *context, const struct sharer *sharer)
{
	struct top *top = context;

	if (top->n_sharers == TOP_SHARERS)
		return;
	struct top_sharer *row = &top->sharers[top->n_sharers];

	*row = (struct top_sharer){*sharer, facts_command(sharer->pid)};
	row->sharer.path = strdup(sharer->path);
	if (row->sharer.path && row->command) {
		top->n_sharers++;
		return;
	}
	free((char *)row->sharer.path);
	free(row->command);
}

static void log_read(struct top *top)
{
	char text[65536];
	ssize_t n;

	while (top->log >= 0 && (n = read(top->log, text, sizeof(text))) > 0)
		top_take_log(top, text, (size_t)n);
}

int top_sample(struct top *top, double now)
{
	json_t *stats = facts_stats(top->mountpoint);

	if (!stats)
		return -errno;
	log_read(top);
	top_take_stats(top, stats, now);
	json_decref(stats);
	top_end_interval(top);
	sharers_forget(top);
	return facts_sharers(top->mountpoint, sharer_add, top);
}
