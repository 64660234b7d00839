/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/daemon/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/log.h"
#include "common/sd_notify.h"
#include "fs/core/fs.h"

struct watchdog {
	struct fs *fs;
	int period_ms, stop_fd;
	pthread_t thread;
};

/* The number of stuck workers that means that requests wait: all workers; with rings a single
 * worker, because only the worker of a processor serves the ring of this processor. */
static unsigned workers_needed(const struct fs *fs)
{
	return fs->can.io_uring.on ? 1 : fs->can.threads;
}

static void *watchdog_thread_main(void *pointer)
{
	struct watchdog *watchdog = pointer;
	struct pollfd stop = {.fd = watchdog->stop_fd, .events = POLLIN};
	struct fs *fs = watchdog->fs;
	bool logged = false;

	do {
		unsigned stuck = stats_stuck(&fs->stats);

		if (stuck < workers_needed(fs))
			notify_send(NOTIFY_WATCHDOG);
		else if (!logged)
			log_error("%s: %u workers have not finished their requests for %d ms: the "
				  "service manager gets no more notifications",
				  fs->options.mountpoint, stuck, watchdog->period_ms);
		logged = stuck >= workers_needed(fs);
	} while (poll(&stop, 1, watchdog->period_ms) <= 0);
	return NULL;
}

/* Half of the service manager's time limit, as sd_watchdog_enabled(3) recommends. */
static int watchdog_period_ms(uint64_t us)
{
	uint64_t ms = us / 2000;

	return ms < 1 ? 1 : ms > INT32_MAX ? INT32_MAX : (int)ms;
}

static int watchdog_thread_start(struct watchdog *watchdog)
{
	watchdog->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (watchdog->stop_fd < 0)
		return -errno;
	int error = pthread_create(&watchdog->thread, NULL, watchdog_thread_main, watchdog);

	if (error)
		close(watchdog->stop_fd);
	return -error;
}

int watchdog_start(struct fs *fs, struct watchdog **started)
{
	uint64_t us = notify_watchdog_us();

	*started = NULL;
	if (!us)
		return 0;
	struct watchdog *watchdog = calloc(1, sizeof(*watchdog));
	int error = -ENOMEM;

	if (watchdog) {
		watchdog->fs = fs;
		watchdog->period_ms = watchdog_period_ms(us);
		error = watchdog_thread_start(watchdog);
	}
	if (error) {
		log_error("cannot start the watchdog: %s", strerror(-error));
		free(watchdog);
		return error;
	}
	*started = watchdog;
	return 0;
}

void watchdog_stop(struct watchdog *watchdog)
{
	if (!watchdog)
		return;
	eventfd_write(watchdog->stop_fd, 1);
	pthread_join(watchdog->thread, NULL);
	close(watchdog->stop_fd);
	free(watchdog);
}
