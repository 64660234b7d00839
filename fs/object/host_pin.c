/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/object/host_pin.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "fs/object/object.h"

#define WINDOWS 128

/* A stretch gets a window after a quarter of the stretch was copied. */
#define WORTH 4

/* Identifies the state of an object: with an equal stamp the pages are the same. */
struct object_stamp {
	off_t size;
	blkcnt_t blocks;
	struct timespec changed;
};

/* In the order of a window's life. */
enum window_state { UNUSED, COUNTED, MAPPING, READY };

struct host_window {
	enum window_state state;
	const struct file *file;
	struct device *device;
	uint64_t from;		   /* offset in the file */
	uint64_t bytes;		   /* MAPPING, READY: length of the mapping */
	char *base;		   /* READY */
	struct object_stamp stamp; /* MAPPING, READY */
	uint64_t copied;	   /* COUNTED: bytes copied so far */
	uint64_t used;		   /* clock at the last use */
	unsigned users;
};

struct host_windows {
	pthread_mutex_t lock; /* protects the members below */
	struct host_window windows[WINDOWS];
	uint64_t clock;
	uint64_t pinned; /* total of windows that are MAPPING or READY */
	uint64_t pinned_max;
	atomic_uint n; /* windows in use; read without the lock */
};

int host_windows_new(uint64_t pinned_max, struct host_windows **windows)
{
	struct host_windows *new_windows = calloc(1, sizeof(*new_windows));

	if (!new_windows)
		return -ENOMEM;
	pthread_mutex_init(&new_windows->lock, NULL);
	new_windows->pinned_max = pinned_max;
	*windows = new_windows;
	return 0;
}

/* Under the lock: empties the slot. The caller must pass the returned window to window_release. */
static struct host_window window_detach(struct host_windows *windows, struct host_window *window)
{
	struct host_window allocated = *window;

	if (allocated.state == READY)
		windows->pinned -= allocated.bytes;
	*window = (struct host_window){.state = UNUSED};
	atomic_fetch_sub(&windows->n, 1);
	return allocated;
}

static void window_release(const struct host_window *allocated)
{
	if (allocated->state != READY)
		return;
	device_unpin(allocated->device, allocated->base);
	munmap(allocated->base, allocated->bytes);
}

static void window_close(struct host_windows *windows, struct host_window *window)
{
	struct host_window allocated = window_detach(windows, window);

	window_release(&allocated);
}

/* Detaches the next window of the file. */
static bool window_detach_of_file(struct host_windows *windows, const struct file *file,
				  struct host_window *allocated)
{
	scoped_lock(&windows->lock);
	for (unsigned i = 0; i < WINDOWS; i++) {
		struct host_window *window = &windows->windows[i];

		if (window->state != UNUSED && window->file == file) {
			*allocated = window_detach(windows, window);
			return true;
		}
	}
	return false;
}

void host_windows_forget(struct host_windows *windows, const struct file *file)
{
	struct host_window allocated;

	/* Without the lock: unregistering takes half a millisecond, and other threads must not wait
	 * for that. */
	while (atomic_load(&windows->n) && window_detach_of_file(windows, file, &allocated))
		window_release(&allocated);
}

void host_windows_free(struct host_windows *windows)
{
	if (!windows)
		return;
	for (unsigned i = 0; i < WINDOWS; i++)
		if (windows->windows[i].state != UNUSED)
			window_close(windows, &windows->windows[i]);
	pthread_mutex_destroy(&windows->lock);
	free(windows);
}

static bool stamp_read(int fd, struct object_stamp *stamp)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	*stamp = (struct object_stamp){st.st_size, st.st_blocks, st.st_ctim};
	return true;
}

static bool stamp_equal(const struct object_stamp *a, const struct object_stamp *b)
{
	return a->size == b->size && a->blocks == b->blocks &&
	       a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static bool window_matches(const struct host_window *window, const struct file *file,
			   const struct device *device, uint64_t from)
{
	return window->state != UNUSED && window->file == file && window->device == device &&
	       window->from == from;
}

static bool window_is_busy(const struct host_window *window)
{
	return window->users || window->state == MAPPING;
}

/* The least recently used window in this state or a later state; NULL: all are busy. Under the
 * lock. */
static struct host_window *window_oldest(struct host_windows *windows, enum window_state state)
{
	struct host_window *oldest = NULL;

	for (unsigned i = 0; i < WINDOWS; i++) {
		struct host_window *window = &windows->windows[i];
		if (window->state >= state && !window_is_busy(window) &&
		    (!oldest || window->used < oldest->used))
			oldest = window;
	}
	return oldest;
}

/* The window of the stretch, else a window to replace; NULL: all are busy. Under the lock. */
static struct host_window *window_find(struct host_windows *windows, const struct file *file,
				       const struct device *device, uint64_t from)
{
	for (unsigned i = 0; i < WINDOWS; i++)
		if (window_matches(&windows->windows[i], file, device, from))
			return &windows->windows[i];
	return window_oldest(windows, UNUSED);
}

static uint64_t window_length(const struct object_stamp *stamp, uint64_t from)
{
	uint64_t remaining = (uint64_t)stamp->size > from ? (uint64_t)stamp->size - from : 0;

	return remaining < HOST_WINDOW_BYTES ? remaining : HOST_WINDOW_BYTES;
}

/* Registering would fill holes without charging the memory. */
static bool range_is_data(int fd, uint64_t from, uint64_t bytes)
{
	struct data_run run;

	return object_next_run(fd, from, from + bytes, &run) && run.data && run.to == from + bytes;
}

/* Writes to the pages first, which may change the object's times, so that the times stay as in the
 * stamp from then on. */
static bool window_pin(struct host_window *window, int fd)
{
	struct object_stamp new_stamp;

	if (madvise(window->base, window->bytes, MADV_POPULATE_WRITE) < 0 ||
	    !stamp_read(fd, &window->stamp) || !range_is_data(fd, window->from, window->bytes) ||
	    device_pin(window->device, window->base, window->bytes) < 0)
		return false;
	if (stamp_read(fd, &new_stamp) && stamp_equal(&new_stamp, &window->stamp))
		return true;
	device_unpin(window->device, window->base);
	return false;
}

/* Without the lock: the window is MAPPING. */
static bool window_map(struct host_window *window, int fd)
{
	if (!window->bytes || !range_is_data(fd, window->from, window->bytes))
		return false;
	window->base =
	    mmap(NULL, window->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)window->from);
	if (window->base == MAP_FAILED)
		return false;
	if (window_pin(window, fd))
		return true;
	munmap(window->base, window->bytes);
	return false;
}

/* Only a single window of a file at a time, because mapping changes the times that the file's other
 * windows compare. */
static bool file_is_mapping(const struct host_windows *windows, const struct file *file)
{
	for (unsigned i = 0; i < WINDOWS; i++)
		if (windows->windows[i].state == MAPPING && windows->windows[i].file == file)
			return true;
	return false;
}

/* Gives the new stamp to windows of the file that had the stamp from before the mapping. */
static void windows_restamp(struct host_windows *windows, const struct host_window *new_window,
			    const struct object_stamp *old_stamp)
{
	if (new_window->stamp.size != old_stamp->size ||
	    new_window->stamp.blocks != old_stamp->blocks)
		return;
	for (unsigned i = 0; i < WINDOWS; i++) {
		struct host_window *window = &windows->windows[i];
		if (window->state == READY && window->file == new_window->file &&
		    stamp_equal(&window->stamp, old_stamp))
			window->stamp = new_window->stamp;
	}
}

/* Starts counting copies of a stretch that is new or has changed. */
static void window_start_count(struct host_windows *windows, struct host_window *window,
			       const struct host_window *as)
{
	if (window->state != UNUSED)
		window_close(windows, window);
	*window = *as;
	atomic_fetch_add(&windows->n, 1);
}

/* Closes the least recently used windows until bytes more may be pinned. */
static bool windows_make_room(struct host_windows *windows, uint64_t bytes)
{
	while (windows->pinned + bytes > windows->pinned_max) {
		struct host_window *oldest = window_oldest(windows, READY);

		if (!oldest)
			return false;
		window_close(windows, oldest);
	}
	windows->pinned += bytes;
	return true;
}

static void window_make(struct host_windows *windows, struct host_window *window,
			const struct object_stamp *now, int fd)
{
	uint64_t bytes = window_length(now, window->from);

	if (!windows_make_room(windows, bytes))
		return;
	window->state = MAPPING;
	window->stamp = *now;
	window->bytes = bytes;
	pthread_mutex_unlock(&windows->lock);
	bool is_mapped = window_map(window, fd);
	pthread_mutex_lock(&windows->lock);
	if (is_mapped)
		windows_restamp(windows, window, now);
	else
		windows->pinned -= bytes;
	window->state = is_mapped ? READY : COUNTED;
	window->copied = 0;
}

/* A READY window with a current stamp, or NULL. Under the lock, which is dropped while a window is
 * mapped. */
static struct host_window *window_get_ready(struct host_windows *windows,
					    const struct host_range *range, struct device *device,
					    uint64_t from)
{
	const struct file *file = range->file;
	struct host_window *window = window_find(windows, file, device, from);
	struct object_stamp stamp;

	if (!window || window->state == MAPPING || !stamp_read(range->fd, &stamp))
		return NULL;
	bool matches = window_matches(window, file, device, from);
	if (matches && window->state == READY && stamp_equal(&stamp, &window->stamp))
		return window;
	if (matches && window->users)
		return NULL;
	if (!matches || window->state == READY)
		window_start_count(
		    windows, window,
		    &(struct host_window){
			.state = COUNTED, .file = file, .device = device, .from = from});
	window->used = ++windows->clock;
	window->copied += range->bytes;
	if (window->copied < window_length(&stamp, from) / WORTH || file_is_mapping(windows, file))
		return NULL;
	window_make(windows, window, &stamp, range->fd);
	return window->state == READY ? window : NULL;
}

char *host_window_enter(struct host_windows *windows, const struct host_range *range,
			struct device *device, struct host_window **window)
{
	uint64_t from = range->offset / HOST_WINDOW_BYTES * HOST_WINDOW_BYTES;

	if (range->bytes < HOST_WINDOW_COPY_MIN || !device->backend->ops->pin_for_all)
		return NULL;
	scoped_lock(&windows->lock);
	struct host_window *found = window_get_ready(windows, range, device, from);
	/* Pin again: when an idle context was released, the registration went too. */
	if (!found || range->offset + range->bytes > from + found->bytes ||
	    device_pin(device, found->base, found->bytes) < 0)
		return NULL;
	found->users++;
	found->used = ++windows->clock;
	*window = found;
	return found->base + (range->offset - from);
}

void host_window_leave(struct host_windows *windows, struct host_window *window)
{
	scoped_lock(&windows->lock);
	window->users--;
}
