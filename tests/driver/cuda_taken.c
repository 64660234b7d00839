/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* GPU memory that other programs take: the lines "device0=128M" of a file that a test changes while
 * the program runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/standin.h"

static struct {
	pthread_mutex_t lock; /* taken after standin.lock */
	struct changing_file file;
	uint64_t bytes[STANDIN_GPUS_MAX]; /* by CUDA ordinal */
} taken = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool parse_line(const char *line)
{
	static const char prefix[] = "device";
	unsigned long device;
	char *end;

	if (strncmp(line, prefix, strlen(prefix)) != 0)
		return false;
	device = strtoul(line + strlen(prefix), &end, 10);
	return *end == '=' && device < STANDIN_GPUS_MAX &&
	       size_parse(end + 1, &taken.bytes[device]);
}

static void parse(char *text)
{
	char *rest, *line = strtok_r(text, ";\n", &rest);

	memset(taken.bytes, 0, sizeof(taken.bytes));
	for (; line; line = strtok_r(NULL, ";\n", &rest)) {
		if (line[0] != '#' && !parse_line(line)) {
			fprintf(stderr, "standin: not taken memory: %s\n", line);
			abort();
		}
	}
}

static void load(void)
{
	taken.file.path = getenv("GPUMEM_STANDIN_TAKEN_FILE");
}

static uint64_t taken_bytes(unsigned device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char text[4096];
	uint64_t bytes;

	pthread_once(&once, load);
	if (!taken.file.path)
		return 0;
	pthread_mutex_lock(&taken.lock);
	if (changing_file_read(&taken.file, text, sizeof(text)))
		parse(text);
	bytes = taken.bytes[device];
	pthread_mutex_unlock(&taken.lock);
	return bytes;
}

uint64_t device_available(unsigned device)
{
	uint64_t used = standin.devices[device].used + taken_bytes(device);
	uint64_t total = standin_gpu_memory(standin_physical(device));

	return used < total ? total - used : 0;
}
