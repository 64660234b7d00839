/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/background.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void *background_main(void *pointer)
{
	struct background *background = pointer;

	background->work(background);
	return NULL;
}

int background_start(struct background *background, void (*work)(struct background *),
		     void *context)
{
	int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (wake_fd < 0)
		return -errno;
	*background = (struct background){.work = work, .context = context, .wake_fd = wake_fd};
	int error = pthread_create(&background->thread, NULL, background_main, background);

	if (error) {
		close(wake_fd);
		background->work = NULL;
	}
	return -error;
}

bool background_wait(struct background *background, int ms)
{
	struct pollfd wake = {.fd = background->wake_fd, .events = POLLIN};
	eventfd_t unused;

	if (!atomic_load(&background->stopping) && poll(&wake, 1, ms) > 0)
		eventfd_read(background->wake_fd, &unused);
	return !atomic_load(&background->stopping);
}

void background_wake(struct background *background)
{
	if (background->work)
		eventfd_write(background->wake_fd, 1);
}

void background_stop(struct background *background)
{
	if (!background->work)
		return;
	atomic_store(&background->stopping, true);
	background_wake(background);
	pthread_join(background->thread, NULL);
	close(background->wake_fd);
	background->work = NULL;
}
