/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stand-in libvulkan.so.1: the descriptors of a device. When a program closes the descriptors, the
 * real driver in the kernel takes back the mappings of its client while pointers to the mappings
 * are in use. The stand-in does the same: a thread without the descriptors waits for their end and
 * then replaces the bytes of the mappings. */
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/driver/vulkan.h"

void vulkan_refuse(const char *what)
{
	fprintf(stderr, "standin: Vulkan: %s\n", what);
	abort();
}

/* Call under the device's lock. */
static bool is_mapped(VkDevice device, ino_t inode)
{
	for (const struct VkDeviceMemory_T *at = device->list; at; at = at->next)
		if (inode && at->inode == inode)
			return true;
	return false;
}

/* Replaces the mappings wherever the program moved them. Afterwards the bytes of the real memory
 * are undefined. */
static void take_back(VkDevice device)
{
	char *line = NULL, *end;
	size_t room = 0;
	FILE *maps = fopen("/proc/self/maps", "re");

	pthread_mutex_lock(&device->lock);
	while (maps && getline(&line, &room, maps) > 0) {
		unsigned long from = strtoul(line, &end, 16), to = strtoul(end + 1, &end, 16);

		for (int field = 0; field < 3 && end; field++)
			end = strchr(end + 1, ' ');
		if (end && is_mapped(device, strtoul(end, NULL, 10)))
			syscall(SYS_mmap, from, to - from, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	pthread_mutex_unlock(&device->lock);
	if (maps)
		fclose(maps);
	free(line);
}

static void *watch_client(void *argument)
{
	VkDevice device = argument;
	int closed = device->closed;
	char byte;

	/* Plain system calls: the close of a preload library keeps its own table of descriptors. */
	if (syscall(SYS_close_range, closed + 1, ~0U, CLOSE_RANGE_UNSHARE) < 0)
		vulkan_refuse("no second table of descriptors for the watcher");
	for (int fd = 0; fd < closed; fd++)
		if (fd != STDERR_FILENO)
			syscall(SYS_close, fd);
	sem_post(&device->apart);
	/* A byte, not the end: the program destroys the device. */
	if (syscall(SYS_read, closed, &byte, 1) == 0)
		take_back(device);
	syscall(SYS_close, closed);
	return NULL;
}

static int start_watcher(VkDevice device)
{
	sigset_t all, before;

	sem_init(&device->apart, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&device->watcher, NULL, watch_client, device);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	while (!error && sem_wait(&device->apart) < 0)
		;
	return error ? -1 : 0;
}

static void close_all(VkDevice device)
{
	for (unsigned i = 0; i < CLIENT_DESCRIPTORS; i++)
		if (device->client[i] >= 0)
			close(device->client[i]);
}

int vulkan_client_open(VkDevice device)
{
	struct stat st;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pthread_mutex_init(&device->lock, NULL);
	device->closed = ends[0];
	device->client[0] = ends[1];
	int good = fstat(ends[1], &st) == 0;
	device->client_file = st.st_ino;
	device->client[1] = -1;
	for (unsigned i = 2; i < CLIENT_DESCRIPTORS; i++) {
		device->client[i] = fcntl(ends[1], F_DUPFD_CLOEXEC, 0);
		good = good && device->client[i] >= 0;
	}
	good = good && start_watcher(device) == 0;
	/* The dup fills the gap that the watcher's end left in the program's descriptor numbers. */
	device->client[1] = dup3(ends[1], ends[0], O_CLOEXEC);
	if (good)
		return 0;
	close_all(device);
	return -1;
}

void vulkan_client_check(VkDevice device)
{
	struct stat st;

	for (unsigned i = 0; i < CLIENT_DESCRIPTORS; i++)
		if (fstat(device->client[i], &st) < 0 || st.st_ino != device->client_file)
			vulkan_refuse("a descriptor of the driver's was closed");
}

void vulkan_client_close(VkDevice device)
{
	vulkan_client_check(device);
	if (write(device->client[0], "", 1) != 1)
		vulkan_refuse("the watcher cannot be told");
	pthread_join(device->watcher, NULL);
	pthread_mutex_destroy(&device->lock);
	sem_destroy(&device->apart);
	close_all(device);
}
