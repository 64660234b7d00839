/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp SRC... -: writes files to standard output in this order, as cat(1) does. */
#include "client/cli/cp/print.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/buffer.h"
#include "client/cli/core/cli.h"
#include "client/cli/cp/cp.h"

/* Pipes take less at a time; a file of the mount gives one MiB for each request. */
#define BUFFER_BYTES (4UL << 20)

bool cp_prints_to(const char *word)
{
	return strcmp(word, "-") == 0 || strcmp(word, "/dev/stdout") == 0;
}

static int bytes_write(const char *from, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, from, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			from += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

/* 0 or -errno; *writing tells which side failed. */
static int source_write(int fd, char *buffer, bool *writing)
{
	ssize_t n;

	*writing = false;
	while ((n = read(fd, buffer, BUFFER_BYTES)) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		int error = n < 0 ? 0 : bytes_write(buffer, (size_t)n);

		if (error) {
			*writing = true;
			return error;
		}
	}
	return 0;
}

static int source_open(const char *word)
{
	struct stat st;
	int fd = strcmp(word, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
					: open(word, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		return fd;
	close(fd);
	return -EISDIR;
}

/* False: standard output takes no more bytes. */
static bool source_print(const char *word, char *buffer, int *status, bool *uses_mount)
{
	int fd = source_open(word);
	bool writing = false;
	int error = fd < 0 ? fd : source_write(fd, buffer, &writing);

	*uses_mount = *uses_mount || error || cp_is_on_mount(fd);

	if (fd >= 0)
		close(fd);
	if (writing)
		cli_error("standard output: %s", strerror(-error));
	else if (error)
		cli_fail(word, -error);
	if (error && !*status)
		*status = (int)cli_status_of(-error);
	return !writing;
}

int cp_print(char **words, int count, bool *uses_mount)
{
	char *buffer = buffer_new(BUFFER_BYTES);
	int status = CLI_OK;

	*uses_mount = cp_is_on_mount(STDOUT_FILENO);
	if (!buffer)
		return cli_fail("standard output", ENOMEM);
	for (int i = 0; i < count && source_print(words[i], buffer, &status, uses_mount); i++)
		;
	buffer_free(buffer, BUFFER_BYTES);
	return status;
}
