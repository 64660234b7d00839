/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/park.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

#define POLL_US	    10000
#define SECONDS_MAX 86400

int park_timeout_read(const struct cli_args *args, uint64_t *seconds)
{
	if (parse_u64(args->value, 0, SECONDS_MAX, seconds) == 0)
		return CLI_OK;
	return cli_usage(args->command, "--timeout=%s: seconds from 0 to %d", args->value,
			 SECONDS_MAX);
}

static int answer_add(struct park_answers *answers, const struct gpumem_notified *notified)
{
	struct park_answer *new_array =
	    realloc(answers->at, (answers->count + 1) * sizeof(*answers->at));

	if (!new_array)
		return -ENOMEM;
	answers->at = new_array;
	new_array[answers->count++] = (struct park_answer){.pid = notified->pid,
							   .state = notified->state,
							   .error = notified->error,
							   .files = notified->files};
	return 0;
}

/* Reads the answers so far: how many processes have not answered yet, or -errno. */
static int answers_read(int fd, uint32_t number, struct park_answers *answers)
{
	struct gpumem_notified notified = {.number = number};
	int waiting = 0, error = 0;

	answers->count = 0;
	for (;;) {
		if (ioctl(fd, GPUMEM_IOC_NOTIFIED, &notified) < 0)
			return -errno;
		if (notified.state == GPUMEM_NOTIFIED_END)
			return waiting;
		waiting += notified.state == GPUMEM_NOTIFIED_WAITS;
		error = answer_add(answers, &notified);
		if (error)
			return error;
	}
}

int park_ask(const char *path, const struct park_request *request, struct park_answers *answers)
{
	struct gpumem_notify notify = {
	    .version = GPUMEM_PROTOCOL_VERSION,
	    .what = request->notice,
	    .flags = request->timing == PARK_NOW ? GPUMEM_NOTICE_NOW : 0,
	    .pid = request->pid,
	};
	double end = cli_seconds() + request->seconds;
	AUTO_CLOSE int fd = beneath_open_real(path, O_RDONLY);

	*answers = (struct park_answers){0};
	if (fd < 0)
		return fd;
	for (;;) {
		/* Again if the daemon was replaced, which has forgotten the notice. */
		if (!answers->count && ioctl(fd, GPUMEM_IOC_NOTIFY, &notify) < 0)
			return -errno;
		int waiting = answers_read(fd, notify.number, answers);

		if (waiting < 0 || (!waiting && answers->count) || cli_seconds() >= end)
			return waiting < 0 ? waiting : 0;
		usleep(POLL_US);
	}
}

void park_answers_free(struct park_answers *answers)
{
	free(answers->at);
	*answers = (struct park_answers){0};
}
