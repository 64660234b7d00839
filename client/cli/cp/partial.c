/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the partial file beside the target, which gets the bytes until the file is complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/cli/hash/hash.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

#define SUFFIX	 ".gpumem-part"
#define NOTE	 CP_PARTIAL_NOTE
#define NOTE_MAX 160

char *cp_partial_name(const char *name)
{
	char *part;

	/* A long name is cut, and its sum is added to keep names distinct. */
	if (strlen(name) + strlen("." SUFFIX) <= NAME_MAX) {
		if (asprintf(&part, ".%s" SUFFIX, name) < 0)
			return NULL;
	} else if (asprintf(&part, ".%.200s.%016" PRIx64 SUFFIX, name,
			    hash_bytes(name, strlen(name))) < 0) {
		return NULL;
	}
	return part;
}

/* The note: the state of the source, and the number of bytes copied. */
static int note_text(const struct stat *st, uint64_t bytes, char text[NOTE_MAX])
{
	return snprintf(text, NOTE_MAX, "1 %ju:%ju %jd %jd.%09ld %" PRIu64, (uintmax_t)st->st_dev,
			(uintmax_t)st->st_ino, (intmax_t)st->st_size, (intmax_t)st->st_mtim.tv_sec,
			st->st_mtim.tv_nsec, bytes);
}

/* The number of bytes from the start that an earlier run has copied from the same, unchanged
 * source.
 */
static uint64_t note_read(int fd, const struct stat *st)
{
	char note[NOTE_MAX], expected[NOTE_MAX], *end;
	ssize_t length = fgetxattr(fd, NOTE, note, sizeof(note) - 1);

	if (length <= 0)
		return 0;
	note[length] = '\0';
	char *number = strrchr(note, ' ');

	if (!number)
		return 0;
	uint64_t bytes = strtoull(number + 1, &end, 10);

	note_text(st, bytes, expected);
	struct stat now;

	if (*end || strcmp(note, expected) != 0 || fstat(fd, &now) < 0 ||
	    (uint64_t)now.st_size < bytes)
		return 0;
	return bytes;
}

/* Accepts only a regular file of this user, with one name and locked by this process: neither a
 * link nor a file of another user. */
static int partial_check(int fd, int folder, const char *name, struct stat *st)
{
	struct stat named;

	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode) || st->st_uid != geteuid())
		return -EEXIST;
	/* Another copy may have renamed the file before this process had the lock. */
	if (fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) < 0 || !beneath_is_same(&named, st))
		return -ESTALE;
	return st->st_nlink == 1 ? 0 : -EEXIST;
}

/* Another user may have an old file open, unless the file was private from its start on, as note
 * and mode say: then a new file takes its place. */
static int partial_use(int fd, int folder, const char *name, const struct stat *st,
		       const struct stat *part_st, uint64_t *bytes_kept)
{
	if (st && (part_st->st_mode & 07777) == (S_IRUSR | S_IWUSR))
		*bytes_kept = note_read(fd, st);
	if (*bytes_kept)
		return 0;
	return unlinkat(folder, name, 0) < 0 ? -errno : -ESTALE;
}

int cp_partial_open(int folder, const char *name, const struct stat *st, struct stat *part_st,
		    uint64_t *bytes_kept)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

	*bytes_kept = 0;
	for (unsigned attempt = 0; attempt < 100; attempt++) {
		int fd = openat(folder, name, flags | O_CREAT | O_EXCL, 0600);
		bool is_new = fd >= 0;

		if (fd < 0 && errno == EEXIST)
			fd = openat(folder, name, flags);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return -errno;
		int error = partial_check(fd, folder, name, part_st);

		if (!error && !is_new)
			error = partial_use(fd, folder, name, st, part_st, bytes_kept);
		if (!error)
			return fd;
		close(fd);
		if (error != -ESTALE)
			return error;
	}
	return -EWOULDBLOCK;
}

int cp_partial_keep(int fd, const struct stat *st, uint64_t bytes)
{
	char text[NOTE_MAX];

	if (!st)
		return fremovexattr(fd, NOTE) < 0 ? -errno : 0;
	int length = note_text(st, bytes, text);

	return fsetxattr(fd, NOTE, text, (size_t)length, 0) < 0 ? -errno : 0;
}

/* Under cp.lock. */
void cp_partial_note_all(struct cp *cp)
{
	for (struct cp_file *file = cp->open; file; file = file->following) {
		uint64_t bytes_kept = file->method == CP_RANGES && file->phase == CP_COPYING
					  ? cp_marks_prefix(file)
					  : 0;

		if (bytes_kept && file->out >= 0)
			file->noted = cp_partial_keep(file->out, &file->st, bytes_kept) == 0;
	}
}
