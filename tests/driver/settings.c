/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The stand-in's configuration, from the environment; README.md describes each variable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/driver/standin.h"

struct settings settings;

/* Ends the process: a mistake in a test's settings must not pass for a mistake of the program under
 * test. */
static void refuse(const char *name, const char *text)
{
	fprintf(stderr, "standin: %s=%s makes no sense\n", name, text);
	abort();
}

bool size_parse(const char *text, uint64_t *size)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	unsigned shift = 0;
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (end == text)
		return false;
	if (*end) {
		suffix = strchr(suffixes, *end++);
		if (!suffix || *end)
			return false;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
	}
	*size = value << shift;
	return true;
}

static uint64_t size_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	uint64_t value = otherwise;

	if (text && *text && !size_parse(text, &value))
		refuse(name, text);
	return value;
}

bool changing_file_read(struct changing_file *file, char *text, size_t size)
{
	struct stat state;
	FILE *stream;
	size_t length = 0;

	if (stat(file->path, &state))
		memset(&state, 0, sizeof(state));
	if (state.st_mtim.tv_sec == file->mtime.tv_sec &&
	    state.st_mtim.tv_nsec == file->mtime.tv_nsec && state.st_ino == file->inode &&
	    state.st_size == file->size)
		return false;
	file->mtime = state.st_mtim;
	file->inode = state.st_ino;
	file->size = state.st_size;
	stream = fopen(file->path, "re");
	if (stream) {
		length = fread(text, 1, size - 1, stream);
		fclose(stream);
	}
	text[length] = '\0';
	return true;
}

static enum dmabuf_mode dmabuf_setting(void)
{
	const char *text = getenv("GPUMEM_STANDIN_DMABUF");

	if (!text || !*text || !strcmp(text, "0"))
		return DMABUF_OFF;
	if (!strcmp(text, "1"))
		return DMABUF_ON;
	if (!strcmp(text, "lie"))
		return DMABUF_LIE;
	if (!strcmp(text, "nommap"))
		return DMABUF_NO_MMAP;
	refuse("GPUMEM_STANDIN_DMABUF", text);
	return DMABUF_OFF;
}

static void compute_mode_load(void)
{
	static const char exclusive[] = "exclusive:";
	const char *text = getenv("GPUMEM_STANDIN_COMPUTE_MODE");

	if (!text || !*text)
		return;
	if (!strcmp(text, "prohibited")) {
		settings.compute_mode = COMPUTE_PROHIBITED;
	} else if (!strncmp(text, exclusive, strlen(exclusive))) {
		settings.compute_mode = COMPUTE_EXCLUSIVE;
		settings.exclusive_path = text + strlen(exclusive);
	} else {
		refuse("GPUMEM_STANDIN_COMPUTE_MODE", text);
	}
}

static bool word_setting(const char *name, const char *word)
{
	const char *text = getenv(name);

	return text && !strcmp(text, word);
}

static void load(void)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");

	settings.whole_gpus = (unsigned)size_setting("GPUMEM_STANDIN_GPUS", 2);
	if (settings.whole_gpus > STANDIN_GPUS_MAX)
		refuse("GPUMEM_STANDIN_GPUS", getenv("GPUMEM_STANDIN_GPUS"));
	settings.mig = (unsigned)size_setting("GPUMEM_STANDIN_MIG", 0);
	if (settings.mig > STANDIN_MIG_MAX || (settings.mig && !settings.whole_gpus))
		refuse("GPUMEM_STANDIN_MIG", getenv("GPUMEM_STANDIN_MIG"));
	settings.memory = size_setting("GPUMEM_STANDIN_MEMORY", 512ULL << 20);
	settings.host_memory = size_setting("GPUMEM_STANDIN_HOST_MEMORY", 64ULL << 30);
	settings.bar = size_setting("GPUMEM_STANDIN_BAR", 256ULL << 30);
	settings.context_memory = size_setting("GPUMEM_STANDIN_CONTEXT_MEMORY", 0);
	settings.delay_us = (unsigned)size_setting("GPUMEM_STANDIN_DELAY_US", 0);
	settings.hold_path = getenv("GPUMEM_STANDIN_HOLD_FILE");
	settings.fill = (int)(size_setting("GPUMEM_STANDIN_FILL", 0xA5) & 0xff);
	if (word_setting("GPUMEM_STANDIN_FILL", "0"))
		settings.fill = -1;
	settings.peer = !settings.mig && !word_setting("GPUMEM_STANDIN_PEER", "0");
	settings.peer_refused = word_setting("GPUMEM_STANDIN_PEER", "refuse");
	settings.pageable_is_error = word_setting("GPUMEM_STANDIN_PAGEABLE", "error");
	numbers_load(word_setting("GPUMEM_STANDIN_ORDER", "reverse") &&
		     (!order || strcmp(order, "PCI_BUS_ID")));
	settings.no_kernels = word_setting("GPUMEM_STANDIN_KERNELS", "0");
	settings.checkpoints = word_setting("GPUMEM_STANDIN_CHECKPOINTS", "1");
	settings.kernels_lie = word_setting("GPUMEM_STANDIN_KERNELS", "lie");
	settings.dmabuf = dmabuf_setting();
	compute_mode_load();
	/* Drivers of CUDA 13.3 and later can map dma-bufs of device memory. */
	settings.driver_version = (int)size_setting(
	    "GPUMEM_STANDIN_DRIVER",
	    settings.dmabuf == DMABUF_ON || settings.dmabuf == DMABUF_LIE ? 13030 : 13000);
	settings.leakcheck = getenv("GPUMEM_STANDIN_LEAKCHECK");
	if (settings.leakcheck && !*settings.leakcheck)
		settings.leakcheck = NULL;
}

void settings_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
}
