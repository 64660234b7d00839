/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/window.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "client/preload/stage.h"
#include "common/clock.h"

static uint64_t configured_use =
    UINT64_MAX;			/* GPUMEM_PRELOAD_AFTER; UINT64_MAX: use the defaults */
static atomic_bool is_bar_open; /* a way to a BAR is open in this process */

void window_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_AFTER");
	char *end;

	if (!text || *text < '0' || *text > '9')
		return;
	unsigned long long bytes = strtoull(text, &end, 10);
	if (!*end)
		configured_use = bytes;
}

uint64_t window_use_first(void)
{
	return configured_use < WINDOW_USE_FIRST ? configured_use : WINDOW_USE_FIRST;
}

static uint64_t window_worth(const struct slot *slot)
{
	if (configured_use != UINT64_MAX)
		return configured_use;
	if (slot->kind == ACCESS_SIMULATED)
		return WINDOW_USE_FIRST;
	return atomic_load(&is_bar_open) ? WINDOW_USE_GPU : WINDOW_USE_OPEN;
}

static uint64_t staging_worth(void)
{
	return configured_use != UINT64_MAX ? configured_use : STAGE_USE;
}

static void window_refuse(struct slot *slot, enum stats_left reason)
{
	slot->refused = true;
	slot->reason = reason;
	atomic_store(&slot->next_attempt, UINT64_MAX);
}

/* Tries again when the kernel has moved as many bytes once more. */
static void window_retry_later(struct slot *slot)
{
	uint64_t used = atomic_load(&slot->used);

	atomic_store(&slot->next_attempt, 2 * used);
}

/* A lease fills holes, and allocates separate memory for small files: some reads do not justify
 * that. */
static bool file_fits(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= WINDOW_SIZE_MIN &&
	       (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size;
}

static bool window_take_mapping(struct slot *slot)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	void *base;

	if (gpumem_map_host(slot->file, &base, NULL) < 0 || gpumem_get_info(slot->file, &info) < 0)
		return false;
	slot->base = base;
	slot->bytes = info.host_mapped;
	atomic_store(&slot->size, info.size);
	atomic_store(&slot->reach, info.size < slot->bytes ? info.size : slot->bytes);
	return true;
}

static void window_open(struct slot *slot, int fd)
{
	enum stats_left reason;

	slot->file = access_lease(fd, ACCESS_TIMED, &slot->writable, &reason);
	if (!slot->file) {
		window_refuse(slot, reason);
		return;
	}
	if (!window_take_mapping(slot)) {
		window_close(slot);
		window_refuse(slot, LEFT_FAILED);
		return;
	}
	if (slot->kind == ACCESS_GPU)
		atomic_store(&is_bar_open, true);
}

/* A mapping without room behind it is replaced by a new mapping elsewhere. */
static void window_grow(struct slot *slot)
{
	int rc = gpumem_extend(slot->file);

	if (rc < 0 && errno == ENOSPC)
		rc = gpumem_unmap_host(slot->file);
	if (rc < 0 || !window_take_mapping(slot)) {
		window_close(slot);
		window_retry_later(slot);
	}
}

bool window_look(struct slot *slot, int fd)
{
	enum stats_left reason;

	if (slot->kind == ACCESS_NONE && !slot->refused) {
		slot->kind = access_kind(fd, &reason);
		if (slot->kind == ACCESS_NONE)
			window_refuse(slot, reason);
	}
	return !slot->refused;
}

void window_follow(struct slot *slot, int fd, uint64_t end)
{
	if (slot->file && end <= slot->bytes && end <= atomic_load(&slot->size))
		return;
	if (!window_look(slot, fd))
		return;
	bool stages = slot->kind == ACCESS_GPU && !stage_was_tried();
	uint64_t used = atomic_load(&slot->used);

	if (stages && used >= staging_worth()) {
		stage_open(slot, fd);
		stages = false;
	}
	if (!slot->file && used < window_worth(slot)) {
		atomic_store(&slot->next_attempt, stages && staging_worth() < window_worth(slot)
						      ? staging_worth()
						      : window_worth(slot));
		return;
	}
	if (!file_fits(fd)) {
		if (!slot->file)
			window_retry_later(slot);
		return;
	}
	int64_t start = clock_ns();
	if (slot->file)
		window_grow(slot);
	else
		window_open(slot, fd);
	stats_window(clock_ns() - start);
}

void window_close(struct slot *slot)
{
	if (slot->file)
		gpumem_close(slot->file);
	slot->file = NULL;
	slot->base = NULL;
	slot->bytes = 0;
	atomic_store(&slot->reach, 0);
}
