/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "backend/copy.h"
#include "common/log.h"
#include "tests/unit/unit.h"

#define MIB (1ULL << 20)

static struct backend_config host_config(const char *gpus, unsigned host_gpus)
{
	return (struct backend_config){
	    .kind = BACKEND_HOST, .gpus = gpus, .host_bytes = 16 * MIB, .host_gpus = host_gpus};
}

/* The log file that replaces the terminal between log_begin and log_end. */
static FILE *logged;
static int terminal;

static void log_begin(void)
{
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	logged = tmpfile();
	terminal = dup(STDERR_FILENO);
	dup2(fileno(logged), STDERR_FILENO);
}

static void log_end(char *text, size_t size)
{
	dup2(terminal, STDERR_FILENO);
	close(terminal);
	rewind(logged);
	text[fread(text, 1, size - 1, logged)] = '\0';
	fclose(logged);
}

struct selection {
	const char *list;
	unsigned available;
	int rc;
	unsigned n, indices[4];
	const char *line; /* the expected log line */
};

#define SEES_FOUR " here (this process sees gpu0, gpu1, gpu2, gpu3)\n"

static const struct selection selections[] = {
    {NULL, 3, 0, 3, {0, 1, 2}, NULL},
    {NULL, 0, 0, 0, {0}, NULL},
    {"0", 1, 0, 1, {0}, NULL},
    {"0,2", 4, 0, 2, {0, 2}, NULL},
    {"2,0", 4, 0, 2, {0, 2}, NULL},
    {"0-3", 4, 0, 4, {0, 1, 2, 3}, NULL},
    {"3,0-1", 4, 0, 3, {0, 1, 3}, NULL},
    {"63", 64, 0, 1, {63}, NULL},
    {"1-1", 4, 0, 1, {1}, NULL},
    {"9", 1, -ENODEV, 0, {0}, "gpus=9: there is no GPU gpu9 here (this process sees gpu0)\n"},
    {"0,4", 4, -ENODEV, 0, {0}, "gpus=0,4: there is no GPU gpu4" SEES_FOUR},
    {"2-7", 4, -ENODEV, 0, {0}, "gpus=2-7: there is no GPU gpu4" SEES_FOUR},
    {"0", 0, -ENODEV, 0, {0}, "gpus=0: there is no GPU gpu0 here"},
    {"4000000000", 64, -ENODEV, 0, {0}, "there is no GPU gpu4000000000 here"},
    {"", 4, -EINVAL, 0, {0}, "gpus=: not a list of GPUs"},
    {"0,", 4, -EINVAL, 0, {0}, "gpus=0,: not a list of GPUs"},
    {",0", 4, -EINVAL, 0, {0}, "not a list"},
    {"0,,1", 4, -EINVAL, 0, {0}, "not a list"},
    {"0,0", 4, -EINVAL, 0, {0}, "not a list"},
    {"0-2,1", 4, -EINVAL, 0, {0}, "not a list"},
    {"2-1", 4, -EINVAL, 0, {0}, "not a list"},
    {"0-", 4, -EINVAL, 0, {0}, "not a list"},
    {"-1", 4, -EINVAL, 0, {0}, "not a list"},
    {"0-1-2", 4, -EINVAL, 0, {0}, "not a list"},
    {"all", 4, -EINVAL, 0, {0}, "not a list"},
    {"0 ", 4, -EINVAL, 0, {0}, "not a list"},
    {"+1", 4, -EINVAL, 0, {0}, "not a list"},
    {"0x1", 4, -EINVAL, 0, {0}, "not a list"},
    {"18446744073709551616", 4, -EINVAL, 0, {0}, "not a list"},
};
#define SELECTIONS ((int)(sizeof(selections) / sizeof(selections[0])))

START_TEST(gpus)
{
	const struct selection *s = &selections[_i];
	struct device all[BACKEND_DEVICES_MAX] = {0}, *devices[BACKEND_DEVICES_MAX];
	uint64_t selected = 77, wanted = s->list ? 0 : UINT64_MAX;
	char text[1024];

	for (unsigned i = 0; i < s->available; i++) {
		devices[i] = &all[i];
		all[i].index = i;
		snprintf(all[i].label, sizeof(all[i].label), "gpu%u", i);
	}
	for (unsigned i = 0; i < s->n; i++)
		wanted |= 1ULL << s->indices[i];
	log_begin();
	int rc = backend_select_gpus(s->list, devices, s->available, &selected);
	log_end(text, sizeof(text));

	ck_assert_int_eq(rc, s->rc);
	ck_assert_uint_eq(selected, rc < 0 ? 77 : wanted);
	if (rc < 0) {
		ck_assert_msg(strstr(text, s->line), "logged: %s", text);
		ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	} else {
		ck_assert_str_eq(text, "");
	}
}
END_TEST

#define INSTANCE "MIG-57a2d19c-6e40-4b13-9f08-3d71c5e20042"
#define SEES	 " here (this process sees gpu0.mig0, gpu0.mig1, gpu2)\n"

/* Two instances of GPU 0, and GPU 2. */
static const struct {
	const char *list;
	int rc;
	uint64_t selected;
	const char *line;
} names[] = {
    {NULL, 0, UINT64_MAX, NULL},
    {"0", 0, 3, NULL},
    {"gpu0", 0, 3, NULL},
    {"2", 0, 4, NULL},
    {"gpu0.mig1", 0, 2, NULL},
    {INSTANCE ",2", 0, 6, NULL},
    {"mig-57A2D19C-6E40-4B13-9F08-3D71C5E20042", 0, 2, NULL},
    {"gpu0.mig0,gpu0.mig1,gpu2", 0, 7, NULL},
    {"1", -ENODEV, 0, "gpus=1: there is no GPU gpu1" SEES},
    {"0-2", -ENODEV, 0, "gpus=0-2: there is no GPU gpu1" SEES},
    {"gpu0.mig2", -ENODEV, 0, "gpus=gpu0.mig2: there is no GPU gpu0.mig2" SEES},
    {"gpu2.mig0", -ENODEV, 0, "there is no GPU gpu2.mig0" SEES},
    {"gpu0.mig1," INSTANCE, -EINVAL, 0, "not a list"},
    {"0,gpu0.mig1", -EINVAL, 0, "not a list"},
    {"gpu2,", -EINVAL, 0, "not a list"},
    {"0-2-3", -EINVAL, 0, "not a list"},
    {"0-4294967295", -ENODEV, 0, "there is no GPU gpu1"},
};
#define NAMES ((int)(sizeof(names) / sizeof(names[0])))

START_TEST(gpus_by_name)
{
	struct device instances[] = {{.label = "gpu0.mig0", .uuid = "MIG-0"},
				     {.label = "gpu0.mig1", .uuid = INSTANCE}};
	struct device whole = {.label = "gpu2", .index = 2, .uuid = "GPU-2"};
	struct device *devices[] = {&instances[0], &instances[1], &whole};
	uint64_t selected = 77;
	char text[512];

	log_begin();
	int rc = backend_select_gpus(names[_i].list, devices, 3, &selected);
	log_end(text, sizeof(text));

	ck_assert_int_eq(rc, names[_i].rc);
	ck_assert_uint_eq(selected, rc < 0 ? 77 : names[_i].selected);
	ck_assert_msg(rc == 0 ? !*text : strstr(text, names[_i].line) != NULL, "logged: %s", text);
}
END_TEST

START_TEST(host_devices)
{
	struct backend_config config = host_config("1,3", 4);
	struct backend *backend;
	struct device_memory memory;
	const char *why;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_str_eq(backend->name, "host");
	ck_assert_uint_eq(backend->n_devices, 2);
	struct device *device = backend->devices[1];
	ck_assert_ptr_eq(device->backend, backend);
	ck_assert_uint_eq(device->index, 3);
	ck_assert_uint_eq(device->slot, 1);
	ck_assert_str_eq(device->name, "host-backed GPU 3");
	ck_assert_str_eq(device->uuid, "GPU-00000000-0000-4000-8000-000000000003");
	ck_assert_str_eq(device->pci, "");
	ck_assert_uint_eq(device->total, 16 * MIB);
	ck_assert_str_eq(device_bar_name(device, &why), "direct");
	ck_assert_ptr_null(why);
	ck_assert_int_eq(device_memory(device, &memory), 0);
	ck_assert_uint_eq(memory.total, 16 * MIB);
	ck_assert_uint_eq(memory.free, 16 * MIB);
	backend_close(backend);
}
END_TEST

START_TEST(host_without_bar)
{
	struct backend_config config = host_config(NULL, 1);
	struct backend *backend;
	const char *why;

	config.bar = BAR_OFF;
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_str_eq(device_bar_name(backend->devices[0], &why), "none");
	ck_assert_str_eq(why, "turned off (bar=off)");
	ck_assert_uint_eq(backend->devices[0]->bar_bytes, 0);
	ck_assert(!copy_bar_possible(backend->devices[0]));
	backend_close(backend);
}
END_TEST

START_TEST(host_refuses)
{
	struct backend_config none = host_config(NULL, 0), many = host_config(NULL, 65),
			      empty = host_config(NULL, 1), missing = host_config("1", 1);
	struct backend *backend;

	empty.host_bytes = 0;
	ck_assert_int_eq(backend_open(&none, &backend), -EINVAL);
	ck_assert_int_eq(backend_open(&many, &backend), -EINVAL);
	ck_assert_int_eq(backend_open(&empty, &backend), -EINVAL);
	ck_assert_int_eq(backend_open(&missing, &backend), -ENODEV);
}
END_TEST

static bool machine_has_gpu(void)
{
	struct backend_config config = host_config(NULL, 1);
	struct backend *backend;

	config.kind = BACKEND_CUDA;
	if (backend_open(&config, &backend) < 0)
		return false;
	backend_close(backend);
	return true;
}

/* Without a GPU the backend is host memory and logs the choice, with the reason against each other
 * backend, in a line; with a GPU the backend is CUDA or Vulkan. */
START_TEST(automatic)
{
	struct backend_config config = host_config(NULL, 1);
	bool has_gpu = machine_has_gpu();
	struct backend *backend;
	char text[4096];

	config.kind = BACKEND_AUTO;
	log_begin();
	int rc = backend_open(&config, &backend);
	log_end(text, sizeof(text));
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(strcmp(backend->name, "cuda") == 0, has_gpu);
	const char *line = strstr(text, "backend: host");
	ck_assert_int_eq(line != NULL, strcmp(backend->name, "host") == 0);
	if (line) {
		ck_assert_ptr_null(strstr(line + 1, "backend: host"));
		ck_assert_ptr_nonnull(strstr(line, "NVIDIA"));
		ck_assert_ptr_nonnull(strstr(line, "Vulkan"));
	}
	backend_close(backend);
}
END_TEST

/* A missing GPU is simulated only on a machine without any GPU. */
START_TEST(automatic_with_a_list)
{
	struct backend_config config = host_config("63", BACKEND_DEVICES_MAX);
	struct backend *backend;

	config.kind = BACKEND_AUTO;
	if (machine_has_gpu()) {
		ck_assert_int_eq(backend_open(&config, &backend), -ENODEV);
		return;
	}
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_str_eq(backend->name, "host");
	ck_assert_uint_eq(backend->devices[0]->index, 63);
	backend_close(backend);
	config.host_gpus = 1;
	ck_assert_int_eq(backend_open(&config, &backend), -ENODEV);
}
END_TEST

START_TEST(full_device)
{
	struct backend_config config = host_config(NULL, 2);
	struct backend *backend;
	struct chunk *chunks[8], *one_more = NULL;
	struct device_memory memory;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 2 * MIB, &chunks[i]), 0);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 2 * MIB, &one_more), -ENOSPC);
	ck_assert_ptr_null(one_more);
	device_memory(backend->devices[0], &memory);
	ck_assert_uint_eq(memory.free, 0);
	device_memory(backend->devices[1], &memory);
	ck_assert_uint_eq(memory.free, 16 * MIB);

	chunk_free(chunks[3]);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 4 * MIB, &one_more), -ENOSPC);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 2 * MIB, &chunks[3]), 0);
	for (int i = 0; i < 8; i++)
		chunk_free(chunks[i]);
	chunk_free(NULL);
	device_memory(backend->devices[0], &memory);
	ck_assert_uint_eq(memory.free, 16 * MIB);
	backend_close(backend);
}
END_TEST

/* System memory takes nothing of the device and nothing of its BAR, whose use is off here. */
START_TEST(system_memory)
{
	struct backend_config config = host_config(NULL, 1);
	struct backend *backend;
	struct device_memory memory;
	struct chunk *chunk, *again, *other;
	struct copier *copier;
	char seen[5000], pattern[5000];
	int fd;

	config.bar = BAR_OFF;
	memset(pattern, 0x5a, sizeof(pattern));
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(copier_open(backend, &copier), 0);
	struct device *device = backend->devices[0];

	/* More than the device has. */
	ck_assert_int_eq(chunk_new(device, PLACE_HOST, 32 * MIB, &chunk), 0);
	ck_assert_int_eq(chunk->place, PLACE_HOST);
	ck_assert_int_eq(device_memory(device, &memory), 0);
	ck_assert_uint_eq(memory.free, 16 * MIB);
	struct span span = {chunk, 0, 32 * MIB}, device_span;

	ck_assert_int_eq(copy_in(copier, &span, 31 * MIB, pattern, sizeof(pattern), COPY_AUTO), 0);
	ck_assert_uint_eq(copier->bytes_dma, 0);
	ck_assert_uint_eq(bar_usage(device).mapped, 0);
	ck_assert_int_eq(copy_zero(copier, &span, 0, 4 * MIB), 0);

	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &other), 0);
	device_span = (struct span){other, 0, 2 * MIB};
	ck_assert_int_eq(copy_across(copier, &device_span, 0, &span, 31 * MIB, 4096), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_int_eq(copy_out(copier, seen, &device_span, 0, 4096, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_mem_eq(seen, pattern, 4096);

	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	chunk_free(chunk);
	ck_assert_int_eq(chunk_import(device, PLACE_HOST, 32 * MIB, fd, &again), 0);
	span.chunk = again;
	for (enum copy_path path = COPY_AUTO; path <= COPY_DMA; path++) {
		memset(seen, 0, sizeof(seen));
		ck_assert_int_eq(copy_out(copier, seen, &span, 31 * MIB, sizeof(seen), path), 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_mem_eq(seen, pattern, sizeof(seen));
	}
	copier_close(copier);
	chunk_free(again);
	chunk_free(other);
	ck_assert_int_eq(device_memory(device, &memory), 0);
	ck_assert_uint_eq(memory.free, 16 * MIB);
	backend_close(backend);
}
END_TEST

START_TEST(failed_device)
{
	struct backend_config config = host_config(NULL, 2);
	struct backend *backend;
	struct device_memory memory;
	struct chunk *chunk, *other;
	char text[1024];
	int fd;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	struct device *device = backend->devices[0];
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &chunk), 0);
	log_begin();
	device_fail(device, "uncorrectable memory error");
	device_fail(device, "uncorrectable memory error");
	log_end(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "gpu0 (host-backed GPU 0): uncorrectable memory error"));
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);

	ck_assert_int_eq(device_memory(device, &memory), -EIO);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &other), -EIO);
	ck_assert_int_eq(chunk_export(chunk, &fd), -EIO);
	ck_assert_int_eq(chunk_new(backend->devices[1], PLACE_GPU, 2 * MIB, &other), 0);
	chunk_free(other);
	chunk_free(chunk);
	backend_close(backend);
}
END_TEST

/* A later backend imports the memory of an exported chunk, repeatedly. */
START_TEST(import)
{
	struct backend_config config = host_config(NULL, 1);
	struct backend *backend;
	struct chunk *chunk, *none;
	struct copier *copier;
	char seen[4] = "";
	int fd, wrong = memfd_create("short", MFD_CLOEXEC);

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(copier_open(backend, &copier), 0);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 4 * MIB, &chunk), 0);
	ck_assert_int_eq(
	    copy_in(copier, &(struct span){chunk, 0, 4 * MIB}, MIB, "seen", 4, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	for (int generation = 0; generation < 3; generation++) {
		struct device_memory memory;

		ck_assert_int_eq(chunk_export(chunk, &fd), 0);
		copier_close(copier);
		chunk_free(chunk);
		backend_close(backend);
		ck_assert_int_eq(backend_open(&config, &backend), 0);
		ck_assert_int_eq(copier_open(backend, &copier), 0);
		ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, fd, &chunk),
				 0);
		ck_assert_int_eq(device_memory(backend->devices[0], &memory), 0);
		ck_assert_uint_eq(memory.total - memory.free, 4 * MIB);
		ck_assert_int_eq(
		    copy_out(copier, seen, &(struct span){chunk, 0, 4 * MIB}, MIB, 4, COPY_AUTO),
		    0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_mem_eq(seen, "seen", 4);
	}
	/* A descriptor that is no chunk of the given size stays the caller's. */
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, wrong, &none),
			 -EINVAL);
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 0, wrong, &none), -EINVAL);
	ck_assert_int_eq(close(wrong), 0);
	copier_close(copier);
	chunk_free(chunk);
	backend_close(backend);
}
END_TEST

/* The fd refers to the chunk's memory and keeps the memory after the chunk is freed. */
START_TEST(export)
{
	struct backend_config config = host_config(NULL, 1);
	struct backend *backend;
	struct copier *copier;
	struct chunk *chunk;
	struct stat st;
	int fd;

	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(copier_open(backend, &copier), 0);
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 4 * MIB, &chunk), 0);
	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 4 * MIB);
	char *memory = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);

	struct span span = {.chunk = chunk, .offset = 0, .bytes = 4 * MIB};
	ck_assert_int_eq(copy_in(copier, &span, 3 * MIB, "seen", 4, COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_mem_eq(memory + 3 * MIB, "seen", 4);
	/* The fd also shows zeroed whole pages and the zeroed bytes beyond the pages. */
	memory[0] = memory[2 * MIB - 1] = memory[4 * MIB - 1] = 'x';
	ck_assert_int_eq(copy_zero(copier, &span, 0, 3 * MIB + 2), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert(memory[0] == 0 && memory[2 * MIB - 1] == 0);
	ck_assert_mem_eq(memory + 3 * MIB, "\0\0en", 4);
	ck_assert_int_eq(memory[4 * MIB - 1], 'x');

	copier_close(copier);
	chunk_free(chunk);
	backend_close(backend);
	ck_assert_int_eq(memory[4 * MIB - 1], 'x');
	munmap(memory, 4 * MIB);
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("backend", &tcase, 60);
	tcase_add_loop_test(tcase, gpus, 0, SELECTIONS);
	tcase_add_loop_test(tcase, gpus_by_name, 0, NAMES);
	tcase_add_test(tcase, host_devices);
	tcase_add_test(tcase, host_without_bar);
	tcase_add_test(tcase, host_refuses);
	tcase_add_test(tcase, automatic);
	tcase_add_test(tcase, automatic_with_a_list);
	tcase_add_test(tcase, full_device);
	tcase_add_test(tcase, system_memory);
	tcase_add_test(tcase, failed_device);
	tcase_add_test(tcase, import);
	tcase_add_test(tcase, export);
	return unit_main(suite);
}
