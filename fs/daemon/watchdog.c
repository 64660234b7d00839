/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/daemon/watchdog.h"

#include <string.h>

#include "common/background.h"
#include "common/log.h"
#include "common/system/sd_notify.h"
#include "fs/core/fs.h"

/* The number of stuck workers that means that requests wait: all workers; with rings a single
 * worker, because only the worker of a processor serves the ring of this processor. */
static unsigned workers_needed(const struct fs *fs)
{
	return fs->can.io_uring.on ? 1 : fs->can.threads;
}

/* Half of the service manager's time limit, as sd_watchdog_enabled(3) recommends. */
static int watchdog_period_ms(void)
{
	uint64_t ms = notify_watchdog_us() / 2000;

	return ms < 1 ? 1 : ms > INT32_MAX ? INT32_MAX : (int)ms;
}

static void watchdog_work(struct background *background)
{
	struct fs *fs = background->context;
	int period_ms = watchdog_period_ms();
	bool logged = false;

	do {
		unsigned stuck = stats_stuck(&fs->stats);

		if (stuck < workers_needed(fs))
			notify_send(NOTIFY_WATCHDOG);
		else if (!logged)
			log_error("%s: %u workers have not finished their requests for %d ms: the "
				  "service manager gets no more notifications",
				  fs->options.mountpoint, stuck, period_ms);
		logged = stuck >= workers_needed(fs);
	} while (background_wait(background, period_ms));
}

int watchdog_start(struct fs *fs, struct background *watchdog)
{
	int error = notify_watchdog_us() ? background_start(watchdog, watchdog_work, fs) : 0;

	if (error)
		log_error("cannot start the watchdog: %s", strerror(-error));
	return error;
}
