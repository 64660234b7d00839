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
	int stop_fd = eventfd(0, EFD_CLOEXEC);

	if (stop_fd < 0)
		return -errno;
	*background = (struct background){.work = work, .context = context, .stop_fd = stop_fd};
	int error = pthread_create(&background->thread, NULL, background_main, background);

	if (error) {
		close(stop_fd);
		background->work = NULL;
	}
	return -error;
}

bool background_wait(const struct background *background, int ms)
{
	struct pollfd stop = {.fd = background->stop_fd, .events = POLLIN};

	return poll(&stop, 1, ms) <= 0;
}

void background_stop(struct background *background)
{
	if (!background->work)
		return;
	eventfd_write(background->stop_fd, 1);
	pthread_join(background->thread, NULL);
	close(background->stop_fd);
	background->work = NULL;
}
