/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

void whole_path(char path[PATH_MAX_], const char *dir, const char *name)
{
	if (snprintf(path, PATH_MAX_, "%s/%s", dir, name) >= PATH_MAX_)
		*path = '\0';
}

int whole_make(const struct bench *bench, const char *path, uint64_t bytes)
{
	const struct data *data = &bench->data;
	int fd AUTO_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	/* The size first, so that the file's memory is a single piece on filesystems for which the
	 * size matters. */
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return -errno;
	for (uint64_t at = 0; at < bytes; at += data->block) {
		size_t piece = bytes - at < data->block ? bytes - at : data->block;

		if (pwrite(fd, data_source(data, 0), piece, (off_t)at) != (ssize_t)piece)
			return errno ? -errno : -EIO;
	}
	return 0;
}

int whole_check(const struct bench *bench, const char *path, uint64_t bytes)
{
	const struct data *data = &bench->data;
	char *sink = data_sink(data, 0);
	int fd AUTO_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size != bytes)
		return -EILSEQ;
	for (uint64_t at = 0; at < bytes; at += data->block) {
		size_t piece = bytes - at < data->block ? bytes - at : data->block;

		data_poison(sink, piece);
		ssize_t n = pread(fd, sink, piece, (off_t)at);

		if (n != (ssize_t)piece)
			return n < 0 ? -errno : -EIO;
		if (!data_is_right(data, 0, at, sink, piece))
			return -EILSEQ;
	}
	return 0;
}

bool whole_is_right(const struct bench *bench, const char *memory, uint64_t bytes)
{
	const struct data *data = &bench->data;

	for (uint64_t at = 0; at < bytes; at += data->block) {
		size_t piece = bytes - at < data->block ? bytes - at : data->block;

		if (!data_is_right(data, 0, at, memory + at, piece))
			return false;
	}
	return true;
}

void whole_explain(struct figure *figure, const char *what, int error)
{
	if (error == -EILSEQ)
		figure_wrong(figure, "%s: not the bytes that were written", what);
	else
		figure_wrong(figure, "%s: %s", what, strerror(-error));
}
