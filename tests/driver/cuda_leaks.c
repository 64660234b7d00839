/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The leak line at the end of the process: the objects that are still allocated. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/standin.h"

static unsigned long long used_memory(void)
{
	unsigned long long used = standin.host_used;

	for (unsigned i = 0; i < settings.gpus; i++)
		used += standin.devices[i].used;
	return used;
}

static unsigned long live_contexts(void)
{
	unsigned long live = 0;

	for (size_t i = 0; i < standin.contexts.count; i++) {
		const struct context *context = standin.contexts.entries[i].object;

		live += !atomic_load(&context->destroyed);
	}
	return live;
}

__attribute__((destructor)) static void report(void)
{
	char line[512];
	int fd, length;

	if (!settings.leakcheck || !standin_is_initialised())
		return;
	streams_wait_retired();

	STANDIN_LOCKED(SHARED);
	length = snprintf(line, sizeof(line),
			  "standin: pid=%d memory=%llu handles=%zu mappings=%zu reservations=%zu "
			  "pinned=%zu streams=%zu events=%zu contexts=%lu pageable_copies=%lu "
			  "violations=%lu\n",
			  (int)getpid(), used_memory(), standin.handles.count,
			  standin.mappings.count, standin.reservations.count, standin.pinned.count,
			  standin.streams.count, standin.events.count, live_contexts(),
			  atomic_load(&standin.pageable_copies), atomic_load(&standin.violations));
	fd = !strcmp(settings.leakcheck, "stderr")
		 ? STDERR_FILENO
		 : open(settings.leakcheck, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd >= 0 && write(fd, line, (size_t)length) != length)
		perror("standin: leak check");
}
