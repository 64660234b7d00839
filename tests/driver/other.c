/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/driver/other.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct helpers helpers;

static void load(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (!cuda)
		cuda = dlopen("libcuda.so.1", RTLD_LAZY);
	if (cuda) {
		*(void **)&helpers.gpu_info = dlsym(cuda, "standin_gpu_info");
		*(void **)&helpers.bar_take = dlsym(cuda, "standin_bar_take");
		*(void **)&helpers.range_fd = dlsym(cuda, "standin_range_fd");
		*(void **)&helpers.reopen = dlsym(cuda, "standin_reopen");
	}
	if (!helpers.gpu_info || !helpers.bar_take || !helpers.range_fd || !helpers.reopen) {
		fprintf(stderr, "standin: libcuda.so.1 is not the stand-in (LD_LIBRARY_PATH?)\n");
		abort();
	}
}

const struct helpers *other_helpers(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return &helpers;
}

unsigned other_gpus(void)
{
	struct standin_gpu info;
	unsigned n = 0;

	while (!other_helpers()->gpu_info(n, &info))
		n++;
	return n;
}

bool other_setting_is(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

void other_uuid_text(unsigned gpu, const uint8_t uuid[16], char text[UUID_TEXT_MAX])
{
	int at = snprintf(text, UUID_TEXT_MAX, gpu < STANDIN_MIG_FIRST ? "GPU-" : "MIG-");

	for (unsigned i = 0; i < 16; i++)
		at += snprintf(text + at, (size_t)(UUID_TEXT_MAX - at), "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

void other_leak_line(const char *format, ...)
{
	const char *path = getenv("GPUMEM_STANDIN_LEAKCHECK");
	char line[256];
	va_list arguments;
	int length, fd;

	if (!path || !*path)
		return;
	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fd = !strcmp(path, "stderr") ? STDERR_FILENO
				     : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd >= 0 && write(fd, line, (size_t)length) != length)
		perror("standin: leak check");
	if (fd > STDERR_FILENO)
		close(fd);
}
