/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Answers to the process that asked the keeper for another program (upgrade_client.h). */
#include <stdio.h>
#include <unistd.h>

#include "fs/keeper/internal.h"
#include "fs/keeper/ipc.h"

void upgrade_answer(int connection, int error, const char *text)
{
	struct ipc_message message = ipc_message(IPC_LOGGED, 0);

	message.value = (uint64_t)error;
	snprintf(message.text, sizeof(message.text), "%s", text);
	ipc_offer(connection, &message, -1);
	close(connection);
}

void upgrade_tell(struct keeper *keeper, int error, const char *text)
{
	if (keeper->upgrade_fd >= 0)
		upgrade_answer(keeper->upgrade_fd, error, text);
	keeper->upgrade_fd = -1;
}
