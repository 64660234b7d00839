/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: a file, from its opening to its final name. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/cli/core/quota.h"
#include "client/cli/cp/cp.h"
#include "client/cli/output/output.h"
#include "client/core/beneath.h"

#define PIPE_BYTES (1 << 20)

struct cp_file *cp_file_new(const struct cp_source *from, const struct cp_target *to,
			    const struct stat *st)
{
	struct cp_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	*file = (struct cp_file){
	    .from = *from, .folder = -1, .in = -1, .in_direct = -1, .out = -1, .st = *st};
	pthread_mutex_init(&file->stream, NULL);
	file->from.path = from->path ? strdup(from->path) : NULL;
	file->part = cp_partial_name(to->name);
	if (cp_target_copy(&file->to, to) && file->part && (!from->path || file->from.path))
		return file;
	cp_file_free(file);
	return NULL;
}

void cp_file_fail(struct cp_file *file, const char *path, int error)
{
	int no_error = 0;

	if (atomic_compare_exchange_strong(&file->error, &no_error, error))
		file->error_path = path;
}

/* Opens the source, without the links that the walk has not followed. O_NONBLOCK: a thread must not
 * wait for the writer of a pipe without being able to end. Gives the descriptor, or -errno. */
static int source_open(const struct cp *cp, const struct cp_source *from, int flags)
{
	int fd;

	if (!from->path)
		return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
	flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK;
	if (from->base != AT_FDCWD && !cp->options.follow)
		return beneath_open(from->base, from->path + from->prefix, flags, 0);
	fd = openat(from->base, from->path + from->prefix, flags);
	return fd < 0 ? -errno : fd;
}

/* The file must be the file that the walk has found: its name may lead elsewhere by now. */
static int source_use(struct cp_file *file)
{
	const struct stat found = file->st;

	if (!S_ISREG(found.st_mode)) {
		file->method = CP_STREAM;
		fcntl(file->in, F_SETPIPE_SZ, PIPE_BYTES);
		return 0;
	}
	if (fstat(file->in, &file->st) < 0)
		return errno;
	if (!S_ISREG(file->st.st_mode) || !beneath_is_same(&file->st, &found))
		return CLI_REPLACED;
	file->method = CP_RANGES;
	file->size = (uint64_t)file->st.st_size;
	if (file->size > CLI_FILE_MAX)
		return EFBIG;
	file->sparse = (uint64_t)file->st.st_blocks * 512 < file->size;
	return 0;
}

/* A second descriptor of the source, for reads from the disk. -1: none. */
static int source_open_direct(const struct cp *cp, const struct cp_file *file)
{
	int fd = source_open(cp, &file->from, O_DIRECT);
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && beneath_is_same(&st, &file->st)))
		return fd;
	close(fd);
	return -1;
}

static int target_open(const struct cp *cp, struct cp_file *file)
{
	bool is_near = file->to.dir->identity.st_dev == file->st.st_dev;
	bool resumes = cp->options.resume && file->method == CP_RANGES && !is_near;

	file->folder = cp_dir_open(file->to.dir);
	if (file->folder < 0)
		return -file->folder;
	file->out = cp_partial_open(file->folder, file->part, resumes ? &file->st : NULL,
				    &file->part_st, &file->resumed);
	if (file->out < 0)
		return -file->out;
	file->noted = file->resumed > 0;
	if (file->method == CP_RANGES && is_near)
		file->method = CP_ON_MOUNT;
	return 0;
}

/* Verification has parts of CP_PART, and sums are computed while copying: so the copy has parts of
 * the same size. */
static enum cp_step part_choose_step(const struct cp *cp, const struct cp_file *file)
{
	if (file->method != CP_RANGES || file->sparse || cp->options.verify ||
	    file->size < CP_STAGED_FILE_MIN || atomic_load(&cp->bytes_all) < CP_STAGED_ALL_MIN)
		return CP_BUFFER;
	if (cp_is_on_mount(file->out) == file->from_mount)
		return CP_BUFFER;
	return file->from_mount ? CP_STAGED_OUT : CP_STAGED_IN;
}

static uint64_t part_choose_bytes(const struct cp_file *file)
{
	if (file->method == CP_ON_MOUNT)
		return CP_PART_ON_MOUNT;
	return file->step == CP_BUFFER ? CP_PART : CP_PART_STAGED;
}

static int file_set_parts(struct cp *cp, struct cp_file *file)
{
	file->step = part_choose_step(cp, file);
	file->part_bytes = part_choose_bytes(file);
	if (file->method == CP_STREAM) {
		atomic_store(&file->parts, UINT64_MAX);
		return 0;
	}
	uint64_t parts = (file->size + file->part_bytes - 1) / file->part_bytes;
	uint64_t first = file->resumed / file->part_bytes;
	int error = cp_marks_reserve(file, parts, cp->options.verify && file->method == CP_RANGES);

	if (error)
		return error;
	for (uint64_t part = 0; part < first; part++)
		atomic_store(&file->marks[part], CP_DONE);
	atomic_store(&file->parts, parts);
	atomic_store(&file->next, first);
	atomic_fetch_add(&cp->bytes_done, first * file->part_bytes);
	atomic_fetch_add(&cp->bytes_skipped, first * file->part_bytes);
	return 0;
}

static const char *source_path(const struct cp_file *file)
{
	return file->from.path ? file->from.path : "standard input";
}

void cp_file_open(struct cp *cp, struct cp_file *file)
{
	file->in = source_open(cp, &file->from, 0);
	int error = file->in < 0 ? -file->in : source_use(file);

	if (error) {
		cp_file_fail(file, source_path(file), error);
		return;
	}
	error = target_open(cp, file);
	file->from_mount = !error && file->method == CP_RANGES && cp_is_on_mount(file->in);
	if (!error && !atomic_load(&cp->uses_mount))
		atomic_store(&cp->uses_mount,
			     cp_is_on_mount(file->in) || cp_is_on_mount(file->out));
	if (!error)
		error = file_set_parts(cp, file);
	if (!error && cp->options.archive)
		cp_xattrs(file->in, file->out, CP_XATTRS_OURS);
	if (error)
		cp_file_fail(file, file->to.path, error);
	/* O_DIRECT is for disks, not for files of the mount. */
	else if (file->method == CP_RANGES && !file->sparse && !file->from_mount)
		file->in_direct = source_open_direct(cp, file);
}

bool cp_file_copied(struct cp *cp, struct cp_file *file)
{
	if (!cp->options.verify || file->phase == CP_VERIFYING || atomic_load(&file->error) ||
	    cp_stopped(cp) || !file->size)
		return false;
	file->phase = CP_VERIFYING;
	atomic_store(&file->parts, (file->size + CP_PART - 1) / CP_PART);
	atomic_store(&file->next, 0);
	return true;
}

static bool file_is_whole(const struct cp *cp, const struct cp_file *file)
{
	bool verified = !cp->options.verify || file->phase == CP_VERIFYING || !file->size;

	return !atomic_load(&file->error) && file->out >= 0 && verified &&
	       atomic_load(&file->next) >= atomic_load(&file->parts);
}

/* With --no-clobber, a file that was created meanwhile stays too. */
static int file_put_in_place(const struct cp *cp, struct cp_file *file)
{
	unsigned flags = cp->options.no_clobber ? RENAME_NOREPLACE : 0;

	if (renameat2(file->folder, file->part, file->folder, file->to.name, flags) == 0) {
		cp_tell(cp, file->from.path ? file->from.path : "-", file->to.path);
		return 0;
	}
	if (errno != EEXIST)
		return errno;
	unlinkat(file->folder, file->part, 0);
	return 0;
}

static int file_link(const struct cp *cp, struct cp_file *file)
{
	int error = 0;

	if (file->method == CP_STREAM && ftruncate(file->out, (off_t)file->size) < 0)
		return errno;
	/* The finished file does not need the note for a later run. */
	if (file->noted)
		cp_partial_keep(file->out, NULL, 0);
	int attributed = cp->options.archive ? file->in : -1;

	if (file->method != CP_STREAM)
		error = cp_attributes(attributed, file->out, &file->st, &file->part_st);
	else if (fchmod(file->out, 0666 & ~cp->umask) < 0)
		error = errno;
	if (!error)
		error = file_put_in_place(cp, file);
	return error;
}

/* Removes the partial file, or keeps it for a later run. */
static void file_remove_part(const struct cp *cp, struct cp_file *file)
{
	char kept_text[OUTPUT_TEXT_MAX], size[OUTPUT_TEXT_MAX];
	uint64_t bytes_kept = 0;

	if (file->out < 0)
		return;
	if (cp->options.resume && file->method == CP_RANGES && atomic_load(&file->error) != EBADMSG)
		bytes_kept = cp_marks_prefix(file);
	if (bytes_kept && cp_partial_keep(file->out, &file->st, bytes_kept) == 0) {
		cli_error("%s: %s of %s are kept: run the same command to continue", file->to.path,
			  output_size(bytes_kept, kept_text), output_size(file->size, size));
		return;
	}
	unlinkat(file->folder, file->part, 0);
	/* The error's report names the processes that use the file, and the descriptor is closed
	 * after that. */
	if (ftruncate(file->out, 0) < 0)
		return;
}

/* Reports the bytes needed and the bytes free. */
static int error_report_full(const struct cp_file *file, const char *path)
{
	char size[OUTPUT_TEXT_MAX], room[OUTPUT_TEXT_MAX];
	bool on_mount = file->out >= 0 && cp_is_on_mount(file->out);
	struct statvfs fs;

	if (file->method == CP_STREAM || file->out < 0 || fstatvfs(file->out, &fs) < 0)
		cli_error("%s: %s", path, on_mount ? cli_words(ENOSPC) : "no room is left");
	else
		cli_error("%s: %s (needs %s, %s available)", path,
			  on_mount ? cli_words(ENOSPC) : "no room is left",
			  output_size(file->size, size),
			  output_size((uint64_t)fs.f_bavail * fs.f_frsize, room));
	return CLI_FULL;
}

static int error_report(const struct cp_file *file, int error)
{
	const char *path = file->error_path ? file->error_path : file->to.path;
	char size[OUTPUT_TEXT_MAX], text[QUOTA_TEXT_MAX];

	switch (error) {
	case EINTR:
		return CLI_FAILED; /* the message of the signal is enough */
	case EBADMSG:
		cli_error("%s: the bytes read back differ from the bytes written", path);
		return CLI_WRONG;
	case ESTALE:
		cli_error("%s: became shorter during the copy", path);
		return CLI_FAILED;
	case EWOULDBLOCK:
		cli_error("%s: another gpumem cp is writing this file", path);
		return CLI_FAILED;
	case ENOSPC:
		return error_report_full(file, path);
	case EDQUOT:
		cli_error("%s: %s (needs %s)", path, quota_text(path, file->size, text),
			  output_size(file->size, size));
		return CLI_FULL;
	default:
		return cli_fail(path, error);
	}
}

void cp_file_free(struct cp_file *file)
{
	int *const fds[] = {&file->folder, &file->in, &file->in_direct, &file->out};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
	cp_mapped_end(file);
	pthread_mutex_destroy(&file->stream);
	cp_target_free(&file->to);
	free(file->from.path);
	free(file->part);
	free((void *)file->marks);
	free(file->sums);
	free(file);
}

void cp_file_end(struct cp *cp, struct cp_file *file)
{
	bool whole = file_is_whole(cp, file);
	int error = whole ? file_link(cp, file) : atomic_load(&file->error);

	if (whole && !error)
		atomic_fetch_add(&cp->files_done, 1);
	else
		file_remove_part(cp, file);
	if (error)
		cp_failed(cp, error_report(file, error));
	cp_file_free(file);
}
