/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/mounts.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/system/mounts.h"

/* A daemon that has not answered after this time hangs. */
#define ANSWER_MS 5000

static bool line_parse(char *text, struct mount_at *mount)
{
	struct mount_line line;

	if (!mount_line_parse(text, &line) || !line.type || strcmp(line.type, MOUNTS_TYPE) != 0)
		return false;
	*mount = (struct mount_at){.mountpoint = line.mountpoint,
				   .root = line.root,
				   .options = line.options,
				   .device = line.device,
				   .id = line.id};
	return true;
}

static void mount_free(struct mount_at *mount)
{
	free(mount->mountpoint);
	free(mount->root);
	free(mount->options);
}

static int mounts_append(struct mounts *mounts, const struct mount_at *mount)
{
	struct mount_at *at = reallocarray(mounts->at, mounts->count + 1, sizeof(*mounts->at));

	if (!at)
		return -ENOMEM;
	mounts->at = at;
	struct mount_at *new = &at[mounts->count];

	*new = *mount;
	new->mountpoint = strdup(mount->mountpoint);
	new->root = strdup(mount->root);
	new->options = strdup(mount->options);
	if (!new->mountpoint || !new->root || !new->options) {
		mount_free(new);
		return -ENOMEM;
	}
	mounts->count++;
	return 0;
}

int mounts_read(FILE *table, struct mounts *mounts)
{
	AUTO_FREE char *line = NULL;
	struct mount_at mount;
	size_t room = 0;
	int error = 0;

	*mounts = (struct mounts){0};
	while (!error && getline(&line, &room, table) > 0)
		if (line_parse(line, &mount))
			error = mounts_append(mounts, &mount);
	if (error)
		mounts_free(mounts);
	return error;
}

int mounts_find(struct mounts *mounts)
{
	AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");

	*mounts = (struct mounts){0};
	return table ? mounts_read(table, mounts) : -errno;
}

void mounts_free(struct mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++)
		mount_free(&mounts->at[i]);
	free(mounts->at);
	*mounts = (struct mounts){0};
}

static bool has_device(const struct mount_at *at, size_t count, dev_t device)
{
	for (size_t i = 0; i < count; i++)
		if (at[i].device == device)
			return true;
	return false;
}

bool mounts_have(const struct mounts *mounts, dev_t device)
{
	return has_device(mounts->at, mounts->count, device);
}

void mounts_keep(struct mounts *mounts, bool (*is_usable)(const struct mount_at *mount))
{
	size_t n_kept = 0;

	for (size_t i = 0; i < mounts->count; i++) {
		struct mount_at mount = mounts->at[i];

		if (strcmp(mount.root, "/") == 0 && !has_device(mounts->at, n_kept, mount.device) &&
		    is_usable(&mount))
			mounts->at[n_kept++] = mount;
		else
			mount_free(&mount);
	}
	mounts->count = n_kept;
}

/* The part of path behind folder, "" or "/..."; NULL: path is not in or below folder. */
static const char *path_below(const char *path, const char *folder)
{
	size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);

	if (strncmp(path, folder, length) != 0 || (path[length] && path[length] != '/'))
		return NULL;
	return path + length;
}

const struct mount_at *mounts_of(const struct mounts *mounts, const char *path, char **inside)
{
	const struct mount_at *found = NULL;

	/* A later mount on the same place hides an earlier mount. */
	for (size_t i = 0; i < mounts->count; i++)
		if (path_below(path, mounts->at[i].mountpoint) &&
		    (!found || strlen(mounts->at[i].mountpoint) >= strlen(found->mountpoint)))
			found = &mounts->at[i];
	if (!found)
		return NULL;
	const char *rest = path_below(path, found->mountpoint);
	const char *root = strcmp(found->root, "/") == 0 && *rest ? "" : found->root;

	if (asprintf(inside, "%s%s", root, rest) < 0)
		return NULL;
	return found;
}

const struct mount_at *mounts_at(const struct mounts *mounts, const char *path, uint64_t id)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->at[i].id == id && strcmp(mounts->at[i].mountpoint, path) == 0)
			return &mounts->at[i];
	return NULL;
}

const struct mount_at *mounts_whole(const struct mounts *mounts, const struct mount_at *mount)
{
	if (strcmp(mount->root, "/") == 0)
		return mount;
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->at[i].device == mount->device && strcmp(mounts->at[i].root, "/") == 0)
			return &mounts->at[i];
	return NULL;
}

const struct mount_at *mounts_named(const struct mounts *mounts, const char *word)
{
	AUTO_FREE char *real = realpath(word, NULL), *inside = NULL;
	const struct mount_at *mount = mounts_of(mounts, real ? real : word, &inside);

	return mount ? mounts_whole(mounts, mount) : NULL;
}

/* Asks the daemon by opening a file: the kernel may answer for the root from its cache. */
static int mount_request(const struct mount_at *mount)
{
	AUTO_FREE char *version = NULL;
	struct stat st;

	if (strcmp(mount->root, "/") != 0)
		return stat(mount->mountpoint, &st) < 0 ? errno : 0;
	if (asprintf(&version, "%s/.gpumem/version", mount->mountpoint) < 0)
		return ENOMEM;
	AUTO_FCLOSE FILE *file = fopen(version, "re");

	return file ? 0 : errno;
}

/* Waits for the child and gives its status. A child that waits for a daemon that hangs is killed,
 * which ends the request. */
static int child_wait(pid_t child)
{
	struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
	int ready = ended.fd < 0 ? 1 : poll(&ended, 1, ANSWER_MS), status;

	if (ended.fd >= 0)
		close(ended.fd);
	if (ready == 0)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (ready == 0)
		return -ETIMEDOUT;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int mounts_answers(const struct mount_at *mount)
{
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0)
		_exit(mount_request(mount));
	return child_wait(child);
}

static void mounts_drop(struct mounts *mounts, dev_t device)
{
	size_t n_kept = 0;

	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->at[i].device == device)
			mount_free(&mounts->at[i]);
		else
			mounts->at[n_kept++] = mounts->at[i];
	mounts->count = n_kept;
}

int mounts_drop_dead(struct mounts *mounts)
{
	int status = CLI_OK;

	for (size_t i = 0; i < mounts->count;) {
		int error = mounts_answers(&mounts->at[i]);

		if (error) {
			status = cli_fail(mounts->at[i].mountpoint, -error);
			mounts_drop(mounts, mounts->at[i].device);
		} else {
			i++;
		}
	}
	return status;
}

/* Finds the mount of place->path. */
static int place_locate(const char *path, struct place *place)
{
	int error = mounts_find(&place->mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	const struct mount_at *mount = mounts_of(&place->mounts, place->path, &place->inside);

	if (!mount) {
		cli_error("%s is not on a mount of gpumemfs", path);
		return CLI_NOT_MOUNTED;
	}
	place->mount = mounts_whole(&place->mounts, mount);
	if (!place->mount) {
		cli_error("%s: only a part of its mount is visible here", path);
		return CLI_NOT_MOUNTED;
	}
	error = mounts_answers(place->mount);
	return error ? cli_fail(place->mount->mountpoint, -error) : CLI_OK;
}

bool place_is_mount(const struct place *place)
{
	return strcmp(place->inside, "/") == 0;
}

int place_find(const char *path, struct place *place)
{
	*place = (struct place){.path = realpath(path, NULL)};
	int status = place->path ? place_locate(path, place) : cli_fail(path, errno);

	if (status != CLI_OK)
		place_free(place);
	return status;
}

int place_stat(const struct place *place, struct stat *st)
{
	if (stat(place->path, st) < 0)
		return cli_fail(place->path, errno);
	if (S_ISREG(st->st_mode))
		return CLI_OK;
	cli_error("%s is no regular file", place->path);
	return CLI_FAILED;
}

void place_free(struct place *place)
{
	mounts_free(&place->mounts);
	free(place->path);
	free(place->inside);
	*place = (struct place){0};
}

static int each_whole_mount(int (*visit)(const char *mountpoint, const char *inside, void *context),
			    void *context)
{
	struct mounts mounts;
	int status = CLI_OK, error = mounts_find(&mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	if (!mounts.count) {
		cli_error("no gpumemfs is mounted here");
		status = CLI_NOT_MOUNTED;
	}
	for (size_t i = 0; i < mounts.count; i++) {
		if (strcmp(mounts.at[i].root, "/") != 0)
			continue;
		error = mounts_answers(&mounts.at[i]);
		if (!error)
			error = visit(mounts.at[i].mountpoint, "/", context);
		if (error)
			status = cli_fail(mounts.at[i].mountpoint, -error);
	}
	mounts_free(&mounts);
	return status;
}

int place_each(const char *path,
	       int (*visit)(const char *mountpoint, const char *inside, void *context),
	       void *context)
{
	AUTO_PLACE struct place place = {0};

	if (!path)
		return each_whole_mount(visit, context);
	int status = place_find(path, &place);

	if (status)
		return status;
	int error = visit(place.mount->mountpoint, place.inside, context);

	return error ? cli_fail(place.mount->mountpoint, -error) : CLI_OK;
}
