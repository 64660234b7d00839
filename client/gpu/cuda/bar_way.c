/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/cuda/bar_way.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/driver/driver.h"
#include "client/core/driver_thread.h"

/* The driver of Vulkan runs in the driver thread. CUDA does not: a process has one CUDA, which is
 * the program's, with its descriptors in the table where the program initialised CUDA. Mappings
 * through CUDA hold a dma-buf or the open file of gdrdrv. */
static bool way_wants_driver_thread(const struct bar_way *way)
{
	return way->needs == BAR_NEEDS_NOTHING;
}

/* A driver that the program uses itself, for Vulkan or OpenGL, does not run in the driver thread
 * either: both uses share the same descriptors. */
static bool driver_is_in_use(void)
{
	static const char *const drivers[] = {"libGLX_nvidia.so.0", "libEGL_nvidia.so.0"};

	for (unsigned i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (driver_is_loaded(drivers[i]))
			return true;
	return false;
}

/* Decided by the first mapping, because a driver stays in the table where it was opened. A process
 * that may not have a second table uses its only one. Under the lock of bar.c. */
static bool driver_thread_usable(void)
{
	static enum { UNDECIDED, DRIVER_THREAD, CALLER_THREAD } chosen_thread;

	if (chosen_thread == UNDECIDED)
		chosen_thread = client_driver_thread_enabled() && !driver_is_in_use()
				    ? DRIVER_THREAD
				    : CALLER_THREAD;
	return chosen_thread == DRIVER_THREAD && client_driver_thread_start() == 0;
}

struct opening {
	struct client_bar *bar;
	char *reason;
};

static int way_open(int fd, void *argument)
{
	const struct opening *opening = argument;
	struct client_bar *bar = opening->bar;

	(void)fd;
	return bar->way->open(&bar->device, &bar->state, opening->reason);
}

int client_way_open(struct client_bar *bar, char *reason)
{
	struct opening opening = {bar, reason};

	bar->on_driver_thread = way_wants_driver_thread(bar->way) && driver_thread_usable();
	return bar->on_driver_thread ? client_driver_thread_call(way_open, &opening, -1)
				     : way_open(-1, &opening);
}

struct chunk_source {
	struct bar_source base; /* first */
	int fd;
};

static int chunk_export_fd(const struct bar_source *source, int *fd)
{
	*fd = fcntl(((const struct chunk_source *)source)->fd, F_DUPFD_CLOEXEC, 0);
	return *fd < 0 ? -errno : 0;
}

struct mapping {
	struct client_bar *bar;
	void *at;
	struct client_bar_piece *piece;
	char *reason;
};

static int way_map(int fd, void *argument)
{
	const struct mapping *mapping = argument;
	struct client_bar_piece *piece = mapping->piece;
	const struct client_bar *bar = mapping->bar;
	const struct chunk_source source = {
	    .base = {.address = piece->gpu, .bytes = piece->bytes, .export = chunk_export_fd},
	    .fd = fd};

	return bar->way->map(bar->state, &source.base, mapping->at, &piece->address,
			     &piece->mapping, mapping->reason);
}

int client_way_map(struct client_bar *bar, int fd, void *at, struct client_bar_piece *piece,
		   char *reason)
{
	struct mapping mapping = {bar, at, piece, reason};

	if (!bar->on_driver_thread)
		return way_map(fd, &mapping);
	reason[0] = '\0';
	int rc = client_driver_thread_call(way_map, &mapping, fd);
	if (rc < 0 && !reason[0])
		snprintf(reason, BAR_REASON_MAX, "handing a chunk over: %s", strerror(-rc));
	return rc;
}

struct unmapping {
	const struct client_bar *bar;
	const struct client_bar_piece *piece;
};

static int way_unmap(int fd, void *argument)
{
	const struct unmapping *unmapping = argument;
	const struct client_bar_piece *piece = unmapping->piece;

	(void)fd;
	unmapping->bar->way->unmap(unmapping->bar->state, piece->address, piece->bytes,
				   piece->mapping);
	return 0;
}

void client_way_unmap(struct client_bar *bar, const struct client_bar_piece *piece)
{
	struct unmapping unmapping = {bar, piece};

	if (bar->on_driver_thread)
		client_driver_thread_call(way_unmap, &unmapping, -1);
	else
		way_unmap(-1, &unmapping);
}
