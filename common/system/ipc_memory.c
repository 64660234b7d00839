/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/ipc_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/io.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static const char ipc_magic[8] = "gpumIPC1";

struct ipc_text {
	char magic[sizeof(ipc_magic)];
	struct ipc_memory memory;
};

int ipc_memory_seal(const struct ipc_memory *memory)
{
	struct ipc_text text = {.memory = *memory};
	int fd = memfd_create("gpumem of cudaMalloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	memcpy(text.magic, ipc_magic, sizeof(text.magic));
	int error = io_write_at(fd, &text, sizeof(text), 0, NULL);

	if (!error && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		error = -errno;
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* Only a memfd has seals: reading it never waits, and its bytes stay as they are. */
bool ipc_memory_read(int fd, struct ipc_memory *memory)
{
	struct ipc_text text;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS ||
	    pread(fd, &text, sizeof(text), 0) != sizeof(text) ||
	    memcmp(text.magic, ipc_magic, sizeof(text.magic)) != 0)
		return false;
	*memory = text.memory;
	return true;
}
