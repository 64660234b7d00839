/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* share MOUNTPOINT [-o OPTIONS]: tests that a file's memory is the GPU's own memory and not a copy.
 *
 * This program serves a mount as gpumemfs does. It has dd write files into the mount, exports the
 * files' chunks and passes the descriptors to another process with a CUDA context of its own
 * (import.c). The importing process must see the bytes written by dd, and cat must show the changes
 * made by the importing process. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/number.h"
#include "fs/control/access_log_file.h"
#include "fs/core/fs.h"
#include "fs/file/internal.h"
#include "fs/fuse/session.h"
#include "fs/ops/ops.h"
#include "fs/tree/inode.h"
#include "tests/gpu/share.h"

#define PIECES_MAX 4096

/* A shared file: the bytes for dd to write, and the place of the file in GPU memory. */
struct shared {
	const char *name;
	uint64_t bytes;
	uint8_t *content; /* a mapping of source_fd */
	int source_fd;
	char source[64], path[PATH_MAX];
	struct share_piece pieces[PIECES_MAX];
	unsigned n_pieces;
};

static int complain(const char *what, const char *why)
{
	printf("share: %s: %s\n", what, why);
	return -1;
}

/* Runs a program to its end. Returns the exit status, or -1. in and out are -1 for this process's
 * own descriptors. */
static int run_program(char *const argv[], int in, int out)
{
	extern char **environ;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int status;

	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_init(&actions);
	if (in >= 0)
		posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	fflush(stdout);
	int error = posix_spawnp(&pid, argv[0], &actions, &attr, argv, environ);

	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	if (error)
		return complain(argv[0], strerror(error));
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return complain(argv[0], "did not end by itself");
	return WEXITSTATUS(status);
}

/* Memory that other programs can open by a path. */
static int memory_file(const char *name, uint64_t bytes, uint8_t **content, int *fd)
{
	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)bytes))
		return complain("memfd", strerror(errno));
	*content = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	return *content == MAP_FAILED ? complain("mmap", strerror(errno)) : 0;
}

static void fill_random(uint8_t *bytes, uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		bytes[i] = (uint8_t)(seed >> 56);
	}
}

static int write_with_dd(struct shared *file)
{
	char from[PATH_MAX], to[PATH_MAX + 4];

	snprintf(from, sizeof(from), "if=%s", file->source);
	snprintf(to, sizeof(to), "of=%s", file->path);
	if (run_program((char *[]){"dd", from, to, "bs=1M", "status=none", NULL}, -1, -1))
		return complain("dd", "failed");
	return 0;
}

/* Called under the file's reader-writer lock. Exports only extents that hold data: memory
 * preallocated beyond the end may be freed at any time. */
static int export_extents(struct shared *file, const struct extents *extents)
{
	uint64_t covered = 0;

	EXTENTS_FOREACH (extent, extents) {
		uint64_t end = extent_end(extent) < file->bytes ? extent_end(extent) : file->bytes;
		struct share_piece *piece = &file->pieces[file->n_pieces];

		if (extent->offset >= end)
			break;
		if (file->n_pieces == PIECES_MAX)
			return complain(file->path, "in too many pieces");
		*piece = (struct share_piece){.chunk_bytes = extent->span.chunk->bytes,
					      .chunk_offset = extent->span.offset,
					      .file_offset = extent->offset,
					      .bytes = end - extent->offset};
		if (chunk_export(extent->span.chunk, &piece->fd))
			return complain(file->path, "a chunk cannot be exported");
		file->n_pieces++;
		fcntl(piece->fd, F_SETFD, 0); /* inherited by import */
		covered += piece->bytes;
	}
	return covered == file->bytes ? 0 : complain(file->path, "not all of it has memory");
}

static int export_file(struct fs *fs, struct shared *file)
{
	struct stat st;

	if (stat(file->path, &st))
		return complain(file->path, strerror(errno));
	if ((uint64_t)st.st_size != file->bytes)
		return complain(file->path, "not as long as what dd wrote");
	struct inode *inode = inode_find(fs, st.st_ino);

	if (!inode || !S_ISREG(inode->mode))
		return complain(file->path, "its inode is not found");
	brlock_token token = brlock_read_lock(&inode->file->layout_lock);
	int rc = export_extents(file, &inode->file->extents);

	brlock_read_unlock(&inode->file->layout_lock, token);
	return rc;
}

/* Runs the importing process. 0: also applies the process's changes to the expected content. */
static int import(const struct fs *fs, struct shared *file)
{
	char program[PATH_MAX] = {0};
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - sizeof("import"));
	AUTO_CLOSE int request = memfd_create("pieces", MFD_CLOEXEC);
	size_t bytes = file->n_pieces * sizeof(file->pieces[0]);

	if (length < 0 || write(request, file->pieces, bytes) != (ssize_t)bytes ||
	    lseek(request, 0, SEEK_SET))
		return complain("import", strerror(errno));
	strcpy(strrchr(program, '/') + 1, "import");
	char *const argv[] = {program, fs->backend->devices[0]->uuid, file->source, NULL};
	int status = run_program(argv, request, -1);

	if (status != SHARE_BY_KERNEL && status != SHARE_BY_MEMSET)
		return complain("import", "failed");
	for (unsigned i = 0; i < file->n_pieces; i++) {
		uint8_t *at = file->content + file->pieces[i].file_offset;
		uint64_t filled = share_filled(file->pieces[i].bytes);
		uint64_t words = status == SHARE_BY_KERNEL ? share_words(file->pieces[i].bytes) : 0;

		memset(at, SHARE_FILL, filled);
		for (uint64_t n = 0; n < words; n++) {
			uint32_t word;

			memcpy(&word, at + filled + n * sizeof(word), sizeof(word));
			word ^= SHARE_WORD;
			memcpy(at + filled + n * sizeof(word), &word, sizeof(word));
		}
	}
	return 0;
}

static int compare_with_cat(struct shared *file)
{
	uint8_t *shown;
	AUTO_CLOSE int fd = -1;
	struct stat st;

	if (memory_file("shown", file->bytes, &shown, &fd))
		return -1;
	if (run_program((char *[]){"cat", file->path, NULL}, -1, fd))
		return complain("cat", "failed");
	int rc = fstat(fd, &st) || (uint64_t)st.st_size != file->bytes
		     ? complain(file->path, "cat shows another length")
		     : 0;

	for (uint64_t i = 0; rc == 0 && i < file->bytes; i++)
		if (shown[i] != file->content[i]) {
			printf("share: byte %llu: cat shows %02x, expected %02x\n",
			       (unsigned long long)i, shown[i], file->content[i]);
			rc = -1;
		}
	munmap(shown, file->bytes);
	if (rc == 0)
		printf("share: %s: cat shows what the other process wrote\n", file->name);
	return rc;
}

static int share_file(struct fs *fs, const char *name, uint64_t bytes)
{
	struct shared *file AUTO_FREE = calloc(1, sizeof(*file));
	int rc = -1;

	if (!file || memory_file(name, bytes, &file->content, &file->source_fd))
		return -1;
	file->name = name;
	file->bytes = bytes;
	fill_random(file->content, bytes, bytes);
	snprintf(file->source, sizeof(file->source), "/proc/%d/fd/%d", (int)getpid(),
		 file->source_fd);
	snprintf(file->path, sizeof(file->path), "%s/%s/%s", fs->options.mountpoint,
		 fs->volumes[0].name, name);
	if (write_with_dd(file) == 0 && export_file(fs, file) == 0 && import(fs, file) == 0)
		rc = compare_with_cat(file);
	unlink(file->path);
	for (unsigned i = 0; i < file->n_pieces; i++)
		close(file->pieces[i].fd);
	munmap(file->content, bytes);
	close(file->source_fd);
	return rc;
}

/* Shares a file of many whole chunks, then a file inside a chunk that other files use too. */
static int share_files(struct fs *fs)
{
	const char *text = getenv("SHARE_BYTES");
	uint64_t large = 64ULL << 20;

	if (text && parse_size(text, &large) < 0)
		return complain("SHARE_BYTES", "not a size");
	int rc = share_file(fs, "large", large + 12345);

	return share_file(fs, "small", 100001) ? -1 : rc;
}

/* Tries a plain unmount first, so that a process that still uses the mount is noticed. */
static int unmount(const char *mountpoint)
{
	for (int tries = 0; tries < 100; tries++) {
		if (umount2(mountpoint, UMOUNT_NOFOLLOW) == 0)
			return 0;
		usleep(10000);
	}
	complain(mountpoint, strerror(errno));
	umount2(mountpoint, MNT_DETACH);
	return -1;
}

int main(int argc, char **argv)
{
	const struct session_table table = {.operations = ops_table(),
					    .start = access_file_new,
					    .end = access_file_end,
					    .close = access_file_free};
	static struct fs fs;
	struct session *session;
	int failed = 1;

	if (options_parse(argc, argv, &fs.options) || session_check(fs.options.mountpoint))
		return 1;
	log_setup(fs.options.log_level, LOG_TO_TERMINAL);
	if (fs_open(&fs))
		return 1;
	if (session_open(&fs, &table, &session) == 0) {
		if (session_start(session) == 0) {
			failed = share_files(&fs) != 0;
			failed |= unmount(fs.options.mountpoint) != 0;
			session_wait(session);
		}
		session_close(session);
	}
	fs_close(&fs);
	options_free(&fs.options);
	printf("share: %s\n", failed ? "FAILED" : "ok");
	return failed;
}
