/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/file_stats.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/preload/core/access.h"
#include "client/preload/core/identity.h"
#include "client/preload/core/line.h"
#include "client/preload/core/own.h"
#include "common/cleanup.h"
#include "common/text/utf8.h"

static const char *const manner_names[MANNER_END] = {
    [MANNER_IN_PLACE] = "in place",	[MANNER_COPIED] = "copied by the GPU",
    [MANNER_PAGE_CACHE] = "page cache", [MANNER_READ] = "read",
    [MANNER_WRITTEN] = "written",
};

#define PATH_SHOWN 255

struct file_stats {
	struct slot_identity identity;
	bool is_on_mount;
	char path[UTF8_ESCAPED_BYTES(PATH_SHOWN)];
	uint64_t bytes[MANNER_END];
};

static bool is_counting;
static pthread_mutex_t file_stats_lock = PTHREAD_MUTEX_INITIALIZER; /* of the members below */
static struct file_stats counted_files[FILE_STATS_MAX];
static unsigned n_files, n_uncounted;

void file_stats_start(void)
{
	is_counting = true;
}

/* Of a longer path the end. Other users choose names of files. */
static void path_get(int fd, char *path, size_t bytes)
{
	char link[BENEATH_THROUGH_MAX], full[PATH_MAX];
	ssize_t n = readlink(beneath_through(fd, link), full, sizeof(full) - 1);
	full[n > 0 ? n : 0] = 0;
	utf8_escape(full + (n > PATH_SHOWN ? n - PATH_SHOWN : 0), "", path, bytes);
}

/* Under file_stats_lock. NULL: the table is full. */
static struct file_stats *file_find(int fd, const struct slot_identity *identity)
{
	for (unsigned i = 0; i < n_files; i++)
		if (slot_same(&counted_files[i].identity, identity))
			return &counted_files[i];
	bool is_on_mount = access_is_on_mount(fd);
	if (n_files == FILE_STATS_MAX) {
		n_uncounted += is_on_mount;
		return NULL;
	}
	struct file_stats *file = &counted_files[n_files++];
	*file = (struct file_stats){.identity = *identity, .is_on_mount = is_on_mount};
	path_get(fd, file->path, sizeof(file->path));
	return file;
}

static void file_count(int fd, enum file_stats_manner manner, uint64_t bytes)
{
	struct slot_identity identity;
	int error = errno;

	INSIDE();
	if (identity_get(fd, &identity)) {
		scoped_lock(&file_stats_lock);
		struct file_stats *file = file_find(fd, &identity);
		if (file)
			file->bytes[manner] += bytes;
	}
	errno = error;
}

void file_stats_open(int fd)
{
	int error = errno;

	if (is_counting && !own_inside && own_process() && access_may_be(fd))
		file_count(fd, MANNER_READ, 0);
	errno = error;
}

void file_stats_add(int fd, enum file_stats_manner manner, uint64_t bytes)
{
	if (is_counting)
		file_count(fd, manner, bytes);
}

void file_stats_forked(void)
{
	pthread_mutex_init(&file_stats_lock, NULL);
	n_files = n_uncounted = 0;
}

static void file_print(int out, const struct file_stats *file)
{
	const char *separator = "";
	struct line line;

	line_begin(&line);
	line_add(&line, ": %s:", file->path);
	for (unsigned i = 0; i < MANNER_END; i++) {
		if (!file->bytes[i])
			continue;
		line_add(&line, "%s %s %" PRIu64 " bytes", separator, manner_names[i],
			 file->bytes[i]);
		separator = ",";
	}
	if (!*separator)
		line_add(&line, " only by calls that the library does not see");
	line_write(&line, out);
}

void file_stats_print(int out)
{
	struct line line;

	scoped_lock(&file_stats_lock);
	for (unsigned i = 0; i < n_files; i++)
		if (counted_files[i].is_on_mount)
			file_print(out, &counted_files[i]);
	if (!n_uncounted)
		return;
	line_begin(&line);
	line_add(&line, ": %u times a further file", n_uncounted);
	line_write(&line, out);
}
