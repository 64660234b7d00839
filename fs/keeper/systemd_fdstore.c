/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/systemd_fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/sd_notify.h"

#define FIRST_FD 3

/* The id in a name "gpumemfs-HEX"; 0: the name has another form. */
static uint64_t name_id(const char *name)
{
	char *end;

	if (strncmp(name, NOTIFY_FD_PREFIX, strlen(NOTIFY_FD_PREFIX)) != 0)
		return 0;
	uint64_t id = strtoull(name + strlen(NOTIFY_FD_PREFIX), &end, 16);

	return *end ? 0 : id;
}

int store_take(struct fd_table *held)
{
	AUTO_FREE char *names = strdup(getenv("LISTEN_FDNAMES"));
	char *rest = names, *name;

	for (int fd = FIRST_FD; names && (name = strsep(&rest, ":")); fd++) {
		uint64_t id = name_id(name);
		int error = fcntl(fd, F_SETFD, FD_CLOEXEC) ? -errno : fd_table_put(held, id, fd);

		if (!id || error) {
			log_error("the service manager's descriptor %d, '%s', cannot be kept: %s",
				  fd, name, id ? strerror(-error) : "not one of gpumemfs");
			return -EBADF;
		}
	}
	/* A process that the keeper starts must not take the descriptors for its own. */
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return names ? 0 : -ENOMEM;
}

void store_add(uint64_t id, int fd)
{
	char state[80];

	snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=" NOTIFY_FD_PREFIX "%" PRIx64,
		 id);
	notify_send_fd(state, fd);
}

void store_remove(uint64_t id)
{
	char state[64];

	snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=" NOTIFY_FD_PREFIX "%" PRIx64, id);
	notify_send(state);
}

void store_remove_all(const struct fd_table *held)
{
	uint64_t id = 0;
	int fd;

	while (fd_table_next(held, id, &id, &fd) == 0)
		store_remove(id);
}
