/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared code of the tests of the Vulkan provider, which run on Mesa's lavapipe, or on the drivers
 * that VK_DRIVER_FILES names. Every test runs in its own process, as threads of a driver do not
 * survive a fork. */
#ifndef TESTS_UNIT_VULKAN_FIXTURE_H
#define TESTS_UNIT_VULKAN_FIXTURE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/copy.h"
#include "backend/vulkan/copier.h"
#include "common/log.h"
#include "tests/unit/unit.h"

#define MIB (1ULL << 20)

static struct backend *backend;
static struct copier *copier;
static uint64_t seed;

static inline struct backend_config vulkan_config(enum bar_provider bar)
{
	return (struct backend_config){.kind = BACKEND_VULKAN, .bar = bar};
}

static inline void open_with(enum bar_provider bar)
{
	struct backend_config config = vulkan_config(bar);

	seed = unit_seed();
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_int_eq(copier_open(backend, &copier), 0);
}

static inline void open_plain(void)
{
	open_with(BAR_AUTO);
}

static inline void close_all(void)
{
	copier_close(copier);
	backend_close(backend);
}

static inline struct chunk *new_chunk(uint64_t bytes)
{
	struct chunk *chunk;

	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, bytes, &chunk), 0);
	return chunk;
}

static inline struct span whole(struct chunk *chunk)
{
	return (struct span){.chunk = chunk, .offset = 0, .bytes = chunk->bytes};
}

static inline void put(struct chunk *chunk, uint64_t offset, const void *from, size_t bytes)
{
	struct span span = whole(chunk);

	ck_assert_int_eq(copy_in(copier, &span, offset, from, bytes, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
}

static inline void expect_bytes(struct chunk *chunk, uint64_t offset, const void *wanted,
				size_t bytes)
{
	struct span span = whole(chunk);
	char *seen = malloc(bytes);

	ck_assert_ptr_nonnull(seen);
	memset(seen, 0x11, bytes);
	ck_assert_int_eq(copy_out(copier, seen, &span, offset, bytes, COPY_DMA), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_msg(memcmp(seen, wanted, bytes) == 0, "%zu bytes at %llu differ", bytes,
		      (unsigned long long)offset);
	free(seen);
}

/* Lavapipe never frees some memory of its own. The leak checker knows the library only while the
 * library is loaded, see vulkan_main. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libVkLayer\nleak:libvulkan_lvp\nleak:libvulkan.so\nleak:libLLVM\n";
}

#define LAYER	   "VK_LAYER_KHRONOS_validation"
#define LAYER_FILE "/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"

/* Sends standard output, where the validation layer reports, to a file, if the layer is there. */
static inline FILE *layer_begin(void)
{
	FILE *said = access(LAYER_FILE, R_OK) == 0 ? tmpfile() : NULL;

	if (!said)
		return NULL;
	fflush(stdout);
	fcntl(fileno(said), F_SETFL, O_APPEND);
	dup2(fileno(said), STDOUT_FILENO);
	setenv("VK_INSTANCE_LAYERS", LAYER, 1);
	return said;
}

/* Shows what was said: 1 if the layer reported anything, else 0. */
static inline int layer_end(FILE *said)
{
	char line[4096];
	int reports = 0;

	if (!said)
		return 0;
	fflush(stdout);
	rewind(said);
	while (fgets(line, sizeof(line), said)) {
		reports |= strstr(line, "VUID-") != NULL;
		fputs(line, stderr);
	}
	fclose(said);
	return reports;
}

/* Runs the program once more on the driver of tests/driver/discrete.c, if that was built. */
static inline int discrete_run(char **argv)
{
	char path[PATH_MAX];
	int status = 0;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	path[n > 0 ? n : 0] = '\0';
	char *end = strstr(path, "/tests/unit/");
	if (!end)
		return 0;
	strcpy(end, "/driver/discrete.json");
	if (access(path, R_OK) != 0)
		return 0;
	pid_t child = fork();
	if (child == 0) {
		setenv("VK_DRIVER_FILES", path, 1);
		setenv("VK_ICD_FILENAMES", path, 1);
		execv("/proc/self/exe", argv);
		_exit(1);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Stand-ins of the drivers' libraries may come first: the program begins again without them. The
 * loader looks for drivers only in the file of lavapipe. Returns the exit status. */
static inline int vulkan_main(const char *name, char **argv, void (*tests)(TCase *))
{
	glob_t found;
	bool named = getenv("VK_DRIVER_FILES") || getenv("VK_ICD_FILENAMES");

	if (getenv("LD_LIBRARY_PATH")) {
		unsetenv("LD_LIBRARY_PATH");
		execv("/proc/self/exe", argv);
	}
	if (!named && glob("/usr/share/vulkan/icd.d/lvp_icd*.json", 0, NULL, &found) == 0) {
		setenv("VK_DRIVER_FILES", found.gl_pathv[0], 1);
		setenv("VK_ICD_FILENAMES", found.gl_pathv[0], 1);
		globfree(&found);
		if (discrete_run(argv))
			return 1;
	} else if (!named) {
		printf("%s: skipped: no lavapipe (package mesa-vulkan-drivers)\n", name);
		return 77;
	}
	TCase *tcase;
	Suite *suite = unit_suite(name, &tcase, 300);

	dlopen("libvulkan_lvp.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
	tests(tcase);
	FILE *said = layer_begin();
	int status = unit_main(suite);

	return layer_end(said) ? 1 : status;
}

#endif
