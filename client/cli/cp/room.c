/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the room of a file's target. One thread makes the room; the others wait for it
 * before their first write. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

/* Sets the size first: a GPU's memory is then allocated in few and large pieces, writes to
 * different places do not wait for each other, and a lack of room is known before the first byte.
 */
static int target_set_size(struct cp_file *file)
{
	/* A single write is one piece anyway. */
	if (file->method == CP_STREAM || (file->size <= CP_PART && !file->sparse))
		return 0;
	if (!file->sparse && file->method == CP_RANGES && cp_is_on_mount(file->out)) {
		if (fallocate(file->out, 0, 0, (off_t)file->size) == 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
			return errno;
	}
	return ftruncate(file->out, (off_t)file->size) < 0 ? errno : 0;
}

static void target_make_room(const struct cp *cp, struct cp_file *file)
{
	int error = atomic_load(&file->error) ? 0 : target_set_size(file);

	if (error)
		cp_file_fail(file, file->to.path, error);
	else if (file->from_mount)
		cp_mapped_begin(cp, file);
}

void cp_room_make(struct cp *cp, struct cp_file *file)
{
	target_make_room(cp, file);
	scoped_lock(&cp->lock);
	atomic_store(&file->room_made, true);
	pthread_cond_broadcast(&cp->room);
}

/* Waits on cp->room: on cp->work this thread could take the signal that is for a worker. */
bool cp_room_await(struct cp *cp, struct cp_file *file)
{
	if (!atomic_load(&file->room_made)) {
		scoped_lock(&cp->lock);
		while (!atomic_load(&file->room_made))
			pthread_cond_wait(&cp->room, &cp->lock);
	}
	return !atomic_load(&file->error);
}
