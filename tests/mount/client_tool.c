/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls of libgpumem for the shell tests: reads a command per line on standard input, and prints an
 * answer per line on standard output: "ok ...", or the name of an errno and the library's message.
 *
 *   open PATH r|w    map    read OFFSET    store OFFSET VALUE    write OFFSET VALUE (and flush)
 *   extend    size    flags    close    device (map, for read and store)    number    undevice
 *   share PATH BYTES (memory of its own)    park    pieces
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/gpumem.h"

static gpumem *file;
static unsigned char *mapped;
static size_t bytes;

static void answer(bool good, unsigned long long value)
{
	if (good)
		printf("ok %llu\n", value);
	else
		printf("%s %s\n", strerrorname_np(errno), gpumem_error());
}

static struct gpumem_info info(void)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	if (gpumem_get_info(file, &info) < 0)
		memset(&info, 0xff, sizeof(info));
	return info;
}

/* Shares memory of a simulated GPU. */
static void share(const char *path, size_t shared_bytes)
{
	const size_t piece = 2 << 20;
	int fd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)piece) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		file = gpumem_share_fds(path, &fd, &piece, 1, 0, shared_bytes, 0644, 0);
	answer(file, 0);
	close(fd);
}

static void run(const char *command, const char *argument, const char *value)
{
	size_t at = strtoull(argument, NULL, 0);

	if (!strcmp(command, "open")) {
		file = gpumem_open(argument, *value == 'w' ? O_RDWR : O_RDONLY);
		answer(file, 0);
	} else if (!strcmp(command, "share")) {
		share(argument, strtoull(value, NULL, 0));
	} else if (!strcmp(command, "close")) {
		answer(gpumem_close(file) == 0, 0);
	} else if (!file || (!mapped && (!strcmp(command, "read") || !strcmp(command, "store") ||
					 !strcmp(command, "write")))) {
		printf("EBADF nothing is open or mapped\n");
	} else if (!strcmp(command, "map")) {
		bool good = gpumem_map_host(file, (void **)&mapped, &bytes) == 0;
		answer(good, bytes);
	} else if (!strcmp(command, "device")) {
		unsigned long long address;
		bool good = gpumem_map_device(file, &address, &bytes) == 0;
		mapped = good ? (unsigned char *)(uintptr_t)address : NULL;
		answer(good, bytes);
	} else if (!strcmp(command, "undevice")) {
		answer(gpumem_unmap_device(file) == 0, 0);
		mapped = NULL;
	} else if (!strcmp(command, "number")) {
		printf("ok %s %d\n", info().driver, info().number);
	} else if (!strcmp(command, "park")) {
		answer(gpumem_park(file) == 0, 0);
	} else if (!strcmp(command, "pieces")) {
		size_t n = 0;
		bool good = gpumem_export(file, 0, NULL, &n) == 0;
		answer(good, n);
	} else if (!strcmp(command, "read")) {
		answer(true, mapped[at]);
	} else if (!strcmp(command, "store")) {
		mapped[at] = (unsigned char)strtoull(value, NULL, 0);
		answer(true, 0);
	} else if (!strcmp(command, "write")) {
		mapped[at] = (unsigned char)strtoull(value, NULL, 0);
		answer(gpumem_flush(file) == 0, 0);
	} else if (!strcmp(command, "extend")) {
		bool good = gpumem_extend(file) == 0;
		answer(good, good ? info().size : 0);
	} else if (!strcmp(command, "size")) {
		answer(true, info().size);
	} else if (!strcmp(command, "flags")) {
		answer(true, info().flags);
	} else {
		printf("what is '%s'?\n", command);
	}
}

int main(void)
{
	char line[4096], command[32], argument[4096], value[32];

	setlinebuf(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		*argument = *value = '\0';
		if (sscanf(line, "%31s %4095s %31s", command, argument, value) >= 1)
			run(command, argument, value);
	}
	return 0;
}
