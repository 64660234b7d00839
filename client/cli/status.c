/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem status: shows every GPU of every mount, as df(1) does. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/gpus.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

#define BAR_CELLS 20
/* Above this share the bar has the colour of a warning. */
#define NEARLY_FULL 0.9

/* The health for people: a GPU that works may have lost bytes before. */
static const char *health_shown(const json_t *gpu)
{
	const char *health = facts_health(gpu);

	return strcmp(health, "ok") == 0 && facts_number(gpu, "lost_bytes") ? "lost bytes" : health;
}

/* Adds a GPU's index, UUID, model and places, and the provider of its BAR, with the reason for
 * "none". */
static void gpu_add_facts(json_t *facts, const json_t *volume)
{
	static const char *const names[] = {"index",	    "uuid",	  "model", "pci",
					    "compute_mode", "lost_bytes", "places"};
	const json_t *bar = json_object_get(volume, "bar");
	json_t *provider = json_object_get(bar, "provider"),
	       *reason = json_object_get(bar, "reason");

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (json_object_get(volume, names[i]))
			json_object_set(facts, names[i], json_object_get(volume, names[i]));
	if (provider)
		json_object_set(facts, "bar_provider", provider);
	if (json_is_string(reason))
		json_object_set(facts, "bar_reason", reason);
}

/* What the kernel of this machine knows of the GPU. */
static void gpu_add_kernel(json_t *facts)
{
	const char *pci = json_string_value(json_object_get(facts, "pci"));
	struct gpu_facts kernel_facts;

	if (!pci || !gpu_facts_read("", pci, &kernel_facts))
		return;
	json_object_set_new(facts, "kernel_driver", json_string(kernel_facts.driver));
	if (kernel_facts.vram)
		json_object_set_new(facts, "vram_bytes",
				    json_integer((json_int_t)kernel_facts.vram));
	if (kernel_facts.visible)
		json_object_set_new(facts, "visible_bytes",
				    json_integer((json_int_t)kernel_facts.visible));
}

/* The facts of a volume that the command shows, from stats.json. */
static json_t *gpu_facts(json_t *volume)
{
	const json_t *bar = json_object_get(volume, "bar");
	const char *name = json_string_value(json_object_get(volume, "name"));
	uint64_t total = facts_number(volume, "total_bytes"),
		 unused = facts_number(volume, "free_bytes");

	if (!name)
		return NULL;
	json_t *facts = json_pack(
	    "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "name", name, "total_bytes",
	    (json_int_t)total, "used_bytes", (json_int_t)(total > unused ? total - unused : 0),
	    "held_bytes", (json_int_t)facts_number(volume, "held_bytes"), "available_bytes",
	    (json_int_t)facts_number(volume, "available_bytes"), "files",
	    (json_int_t)facts_number(volume, "files"), "leases",
	    (json_int_t)facts_number(volume, "leases"), "bar_mapped_bytes",
	    (json_int_t)facts_number(bar, "mapped_bytes"), "bar_budget_bytes",
	    (json_int_t)facts_number(bar, "budget_bytes"), "health", facts_health(volume));

	gpu_add_facts(facts, volume);
	return facts;
}

static const char *params_transport(const char *params)
{
	AUTO_FREE char *uring = params ? facts_line(params, "io_uring") : NULL;

	return uring && strncmp(uring, "on", 2) == 0 ? "io_uring" : "/dev/fuse";
}

static void facts_set_line(json_t *object, const char *key, const char *text, const char *name)
{
	AUTO_FREE char *line = text ? facts_line(text, name) : NULL;

	json_object_set_new(object, key, output_json_text(line ? line : "?"));
}

/* "backend cuda 580.159.04" has the driver's version. For the host backend there is a remark in
 * parentheses instead. */
static void facts_set_driver(json_t *object, const char *version)
{
	AUTO_FREE char *line = facts_line(version, "backend");
	const char *blank = line ? strchr(line, ' ') : NULL;

	if (blank && blank[1] != '(')
		json_object_set_new(object, "driver", output_json_text(blank + 1));
}

/* The facts of a mount: an object, which has "error" and "message" if the mount does not answer. */
static json_t *mount_facts(const struct mount_at *mount, int *error)
{
	json_t *facts = json_pack("{s:o}", "mount", output_json_text(mount->mountpoint)),
	       *gpus = json_array(), *volume;
	AUTO_FREE char *version = NULL, *params = NULL;
	json_t *stats = NULL;
	size_t i;

	*error = -mounts_answers(mount);
	if (!*error)
		stats = facts_stats(mount->mountpoint);
	if (!*error && !stats)
		*error = errno;
	if (stats)
		*error = -facts_text(mount->mountpoint, "version", &version);
	if (!*error)
		*error = -facts_text(mount->mountpoint, "params", &params);
	if (*error) {
		json_object_set_new(facts, "error", json_string(strerrorname_np(*error)));
		json_object_set_new(facts, "message", json_string(cli_words(*error)));
		json_decref(stats);
		json_decref(gpus);
		return facts;
	}
	json_array_foreach (json_object_get(stats, "volumes"), i, volume)
		json_array_append_new(gpus, gpu_facts(volume));
	facts_set_line(facts, "version", version, "gpumemfs");
	facts_set_line(facts, "backend", params, "backend");
	facts_set_driver(facts, version);
	facts_set_line(facts, "libfuse", version, "libfuse");
	json_object_set_new(facts, "transport", json_string(params_transport(params)));
	json_object_set_new(facts, "gpus", gpus);
	json_decref(stats);
	return facts;
}

static void size_cell(struct table *table, const json_t *gpu, const char *name)
{
	char text[OUTPUT_TEXT_MAX];

	table_cell(table, COLOUR_NONE, "%s", output_size(facts_number(gpu, name), text));
}

static void gpu_row(struct table *table, const json_t *gpu)
{
	uint64_t total = facts_number(gpu, "total_bytes"), used = facts_number(gpu, "used_bytes");
	const char *health = health_shown(gpu);
	const char *provider = json_string_value(json_object_get(gpu, "bar_provider"));
	double share = total ? (double)used / (double)total : 0;
	char bar[OUTPUT_BAR_BYTES(BAR_CELLS)];

	table_cell(table, COLOUR_STRONG, "%s", json_string_value(json_object_get(gpu, "name")));
	size_cell(table, gpu, "total_bytes");
	size_cell(table, gpu, "used_bytes");
	size_cell(table, gpu, "held_bytes");
	size_cell(table, gpu, "available_bytes");
	table_cell(table, share >= NEARLY_FULL ? COLOUR_WARN : COLOUR_GOOD, "%s",
		   output_bar(used, total, BAR_CELLS, output_glyphs(), bar));
	table_cell(table, COLOUR_NONE, "%.0f%%", 100 * share);
	table_cell(table, COLOUR_NONE, "%" PRIu64, facts_number(gpu, "files"));
	table_cell(table, COLOUR_NONE, "%" PRIu64, facts_number(gpu, "leases"));
	size_cell(table, gpu, "bar_mapped_bytes");
	/* The reason for "none" is long: gpumem doctor shows the reason. */
	table_cell(table, COLOUR_NONE, "%s", provider ? provider : "-");
	table_cell(table, strcmp(health, "ok") == 0 ? COLOUR_GOOD : COLOUR_BAD, "%s", health);
}

/* "  gpu0: driver amdgpu, ...; compute mode default", where the kernel or CUDA tell any of these.
 */
static void gpu_write_line(const json_t *gpu)
{
	const char *mode = json_string_value(json_object_get(gpu, "compute_mode"));
	const char *pci = json_string_value(json_object_get(gpu, "pci"));
	AUTO_FREE char *text = NULL;
	struct gpu_facts kernel_facts;

	if (pci && gpu_facts_read("", pci, &kernel_facts))
		text = gpu_facts_text(&kernel_facts);
	if (!text && !mode)
		return;
	output_line(stdout, "  %s: %s%s%s%s%s", json_string_value(json_object_get(gpu, "name")),
		    text ? text : "", text && mode ? ", " : "", mode ? "compute mode " : "",
		    mode ? mode : "",
		    mode && strcmp(mode, "default") != 0
			? ": programs fail with CUDA_ERROR_DEVICE_UNAVAILABLE (nvidia-smi -c "
			  "DEFAULT)"
			: "");
}

static void place_row(struct table *table, const json_t *place)
{
	table_cell(table, COLOUR_STRONG, "%s", json_string_value(json_object_get(place, "gpu")));
	table_cell(table, COLOUR_NONE, "%s", json_string_value(json_object_get(place, "name")));
	size_cell(table, place, "size_bytes");
	size_cell(table, place, "held_bytes");
	size_cell(table, place, "file_bytes");
	size_cell(table, place, "moved_bytes");
}

/* A row for each place of each GPU with several places. */
static void places_write(const json_t *gpus)
{
	static const struct table_column columns[] = {
	    {"GPU", 0},
	    {"PLACE", 0},
	    {"SIZE", TABLE_RIGHT},
	    {"HELD", TABLE_RIGHT},
	    {"IN-FILES", TABLE_RIGHT},
	    {"MOVED-IN", TABLE_RIGHT},
	};
	json_t *rows = json_array(), *gpu, *place;
	const char *name;
	size_t i;

	json_array_foreach (gpus, i, gpu) {
		json_t *places = json_object_get(gpu, "places");

		if (json_object_size(places) < 2)
			continue;
		json_object_foreach (places, name, place) {
			json_t *row = json_pack("{s:s, s:O}", "name", name, "gpu",
						json_object_get(gpu, "name"));

			if (json_is_object(place))
				json_object_update_missing(row, place);
			json_array_append_new(rows, row);
		}
	}
	if (json_array_size(rows))
		table_list(TABLE(columns), rows, place_row);
	json_decref(rows);
}

static void mount_write(const json_t *facts)
{
	static const struct table_column columns[] = {
	    {"GPU", 0},
	    {"SIZE", TABLE_RIGHT},
	    {"USED", TABLE_RIGHT},
	    {"MOUNT", TABLE_RIGHT},
	    {"AVAIL", TABLE_RIGHT},
	    {"", TABLE_OPTIONAL},
	    {"USE%", TABLE_RIGHT},
	    {"FILES", TABLE_RIGHT},
	    {"SHARERS", TABLE_RIGHT},
	    {"BAR-MAPPED", TABLE_RIGHT | TABLE_OPTIONAL},
	    {"PROVIDER", TABLE_OPTIONAL},
	    {"HEALTH", 0},
	};

	fputs(output_colour(stdout, COLOUR_STRONG), stdout);
	output_text(stdout, "%s", json_string_value(json_object_get(facts, "mount")));
	fputs(output_colour(stdout, COLOUR_NONE), stdout);
	if (json_object_get(facts, "error")) {
		printf("  %s", output_colour(stdout, COLOUR_BAD));
		output_text(stdout, "%s", json_string_value(json_object_get(facts, "message")));
		printf("%s\n", output_colour(stdout, COLOUR_NONE));
		return;
	}
	const char *driver = json_string_value(json_object_get(facts, "driver"));

	output_line(stdout, "  gpumemfs %s, %s %s, through %s",
		    json_string_value(json_object_get(facts, "version")),
		    json_string_value(json_object_get(facts, "backend")),
		    driver ? driver : "(system memory: no GPU is in use)",
		    json_string_value(json_object_get(facts, "transport")));
	table_list(TABLE(columns), json_object_get(facts, "gpus"), gpu_row);
	const json_t *gpu;
	size_t i;

	json_array_foreach (json_object_get(facts, "gpus"), i, gpu)
		gpu_write_line(gpu);
	places_write(json_object_get(facts, "gpus"));
}

/* The worse of two statuses: a mount that answers does not hide a dead mount. */
static int status_worse(int a, int b)
{
	return b > a ? b : a;
}

static bool gpus_failed(const json_t *facts)
{
	const json_t *gpu;
	size_t i;

	json_array_foreach (json_object_get(facts, "gpus"), i, gpu)
		if (strcmp(health_shown(gpu), "ok") != 0)
			return true;
	return false;
}

/* Mounts that show a part of a file system are left out, unless named. */
static int mounts_facts(const struct mounts *mounts, const struct mount_at *named_mount,
			json_t *all)
{
	int status = CLI_OK, error;

	for (size_t i = 0; i < mounts->count; i++) {
		const struct mount_at *mount = &mounts->at[i];

		if (named_mount ? mount != named_mount : strcmp(mount->root, "/") != 0)
			continue;
		json_t *facts = mount_facts(mount, &error);

		if (error)
			status = status_worse(status, (int)cli_status_of(error));
		else if (gpus_failed(facts))
			status = status_worse(status, CLI_WRONG);
		json_array_append_new(all, facts);
	}
	return status;
}

static void mount_add_kernel(const json_t *mount)
{
	json_t *gpu;
	size_t i;

	json_array_foreach (json_object_get(mount, "gpus"), i, gpu)
		gpu_add_kernel(gpu);
}

/* For the JSON form: the table has a line of text with the same facts. */
static void mounts_add_kernel(const json_t *all)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (all, i, mount)
		mount_add_kernel(mount);
}

static int mounts_show(const struct mounts *mounts, const struct mount_at *named_mount, bool json)
{
	json_t *all = json_array(), *facts;
	int status = mounts_facts(mounts, named_mount, all);
	size_t i;

	if (json) {
		mounts_add_kernel(all);
		output_json(json_pack("{s:o}", "mounts", all));
		return status;
	}
	json_array_foreach (all, i, facts) {
		if (i)
			putchar('\n');
		mount_write(facts);
	}
	json_decref(all);
	return status;
}

static int status_run(struct cli_args *args)
{
	const struct mount_at *named_mount = NULL;
	struct mounts mounts;
	int json, status;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	int error = mounts_find(&mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	if (args->argc)
		named_mount = mounts_named(&mounts, args->argv[0]);
	if (args->argc && !named_mount) {
		cli_error("%s is not on a mount of gpumemfs", args->argv[0]);
		status = CLI_NOT_MOUNTED;
	} else if (!mounts.count) {
		cli_error("no gpumemfs is mounted here (gpumem doctor says more)");
		status = CLI_NOT_MOUNTED;
	} else {
		status = mounts_show(&mounts, named_mount, json);
	}
	mounts_free(&mounts);
	return status;
}

static const struct cli_option status_options[] = {CLI_JSON, {0}};

const struct command command_status = {
    .name = "status",
    .words = "[MOUNT]",
    .summary = "Show every GPU: its memory, files, sharers, mappings and health",
    .help = "Without a mount as argument, the GPUs of all mounts.\n\n"
	    "  SIZE, USED  memory of the GPU, and the part that all programs use\n"
	    "  MOUNT       memory that this mount holds\n"
	    "  AVAIL       memory that files of this mount can still get\n"
	    "  SHARERS     leases: each is one process that shares one file\n"
	    "  BAR-MAPPED  memory that the daemon has mapped for the CPU, through PROVIDER\n\n"
	    "If files can leave a GPU (gpumemfs -o spill=), a second table has the GPU, system\n"
	    "memory (host) and the disk: what files may take there (SIZE), the memory HELD, the\n"
	    "part IN-FILES, and the bytes of files that moved there since the start (MOVED-IN).",
    .options = status_options,
    .max_words = 1,
    .run = status_run,
};
