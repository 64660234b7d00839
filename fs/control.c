/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/defer.h"
#include "fs/access_file.h"
#include "fs/control.h"
#include "fs/control_text.h"
#include "fs/fs.h"
#include "fs/worker.h"

/* Node ids: the directory, its files, by-uuid/, and the links there by volume. */
#define FILES_INO   (CONTROL_INO + 1)
#define SOCKET_INO  (CONTROL_INO + 63)
#define BY_UUID_INO (CONTROL_INO + 64)
#define LINKS_INO   (BY_UUID_INO + 1)

#define CONTROL_NAME ".gpumem"
#define BY_UUID_NAME "by-uuid"
#define SOCKET_LEAF  "socket"
#define LINK_PREFIX  "../../"

/* No more texts are made when those that are open take this: anybody may open them, any number of
 * times. */
#define SNAPSHOTS_BYTES_MAX (16U << 20)

/* Names here never change; the texts do, and are never cached. */
#define NAME_SECONDS 86400.0

/* The text of one open file. */
struct snapshot {
	uint64_t handle;
	char *text;
	size_t length;
	struct snapshot *next;
};

static struct {
	pthread_mutex_t lock;
	struct snapshot *first;
	uint64_t last_handle;
	size_t bytes;
} snapshots = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The name is there once the daemon has bound it. */
static atomic_bool socket_bound;

static const struct control_file *file_of(fuse_ino_t ino)
{
	return ino >= FILES_INO && ino < SOCKET_INO ? &control_files[ino - FILES_INO] : NULL;
}

/* Its text comes while it is read. */
static bool is_stream(fuse_ino_t ino)
{
	return file_of(ino) && !file_of(ino)->write;
}

static const struct volume *link_of(struct fs *fs, fuse_ino_t ino)
{
	return ino >= LINKS_INO && ino - LINKS_INO < fs->n_volumes ? &fs->volumes[ino - LINKS_INO]
								   : NULL;
}

/* Of the root (the entry "..") only the number and type are right, and looked at. */
static struct stat attributes(struct fs *fs, fuse_ino_t ino)
{
	struct stat st = {
	    .st_ino = ino,
	    .st_nlink = 1,
	    .st_uid = geteuid(),
	    .st_gid = getegid(),
	    .st_atim = fs->started,
	    .st_mtim = fs->started,
	    .st_ctim = fs->started,
	};

	if (ino == CONTROL_INO || ino == BY_UUID_INO || ino == INODE_ROOT) {
		st.st_mode = S_IFDIR | 0555;
		st.st_nlink = ino == CONTROL_INO ? 3 : 2;
	} else if (link_of(fs, ino)) {
		st.st_mode = S_IFLNK | 0777;
		st.st_size = (off_t)(strlen(LINK_PREFIX) + strlen(link_of(fs, ino)->name));
	} else if (ino == SOCKET_INO) {
		st.st_mode = S_IFSOCK | 0666; /* a token is what lets in */
	} else {
		/* Of size 0, as in /proc: the text is made at open. */
		st.st_mode = S_IFREG | file_of(ino)->mode;
	}
	return st;
}

/* The n-th entry of one of the two directories: its name and node id; NULL past the end. */
static const char *entry_at(struct fs *fs, fuse_ino_t dir, unsigned n, fuse_ino_t *ino)
{
	if (dir == CONTROL_INO) {
		unsigned files = 0;

		while (control_files[files].name)
			files++;
		*ino = n < files ? FILES_INO + n : n == files ? BY_UUID_INO : SOCKET_INO;
		if (n < files)
			return control_files[n].name;
		if (n == files)
			return BY_UUID_NAME;
		return n == files + 1 && atomic_load(&socket_bound) ? SOCKET_LEAF : NULL;
	}
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		if (!fs->volumes[i].device || n--)
			continue;
		*ino = LINKS_INO + i;
		return fs->volumes[i].device->uuid;
	}
	return NULL;
}

static bool find(struct fs *fs, fuse_ino_t dir, const char *name, fuse_ino_t *ino)
{
	const char *entry;

	if (dir == INODE_ROOT) {
		*ino = CONTROL_INO;
		return strcmp(name, CONTROL_NAME) == 0;
	}
	for (unsigned n = 0; (entry = entry_at(fs, dir, n, ino)); n++)
		if (strcmp(entry, name) == 0)
			return true;
	return false;
}

static void reply_entry(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fuse_entry_param entry = {
	    .ino = ino,
	    .attr = attributes(fs, ino),
	    .attr_timeout = NAME_SECONDS,
	    .entry_timeout = NAME_SECONDS,
	};

	fuse_reply_entry(req, &entry);
}

bool control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fuse_req_userdata(req);
	fuse_ino_t ino;

	if (!control_owns(parent) && parent != INODE_ROOT)
		return false;
	if (!find(fs, parent, name, &ino)) {
		if (parent == INODE_ROOT)
			return false;
		fuse_reply_err(req, ENOENT);
		return true;
	}
	reply_entry(req, fs, ino);
	return true;
}

bool control_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs *fs = fuse_req_userdata(req);

	if (!control_owns(parent))
		return false;
	if (parent != CONTROL_INO || !S_ISSOCK(mode) || strcmp(name, SOCKET_LEAF) != 0 ||
	    fuse_req_ctx(req)->pid != getpid() || atomic_exchange(&socket_bound, true)) {
		fuse_reply_err(req, EPERM);
		return true;
	}
	reply_entry(req, fs, SOCKET_INO);
	return true;
}

void control_socket_is_bound(void)
{
	atomic_store(&socket_bound, true);
}

void control_handles_from(uint64_t first)
{
	snapshots.last_handle = first;
}

bool control_getattr(fuse_req_t req, fuse_ino_t ino)
{
	if (!control_owns(ino))
		return false;
	struct stat st = attributes(fuse_req_userdata(req), ino);

	fuse_reply_attr(req, &st, NAME_SECONDS);
	return true;
}

bool control_statx(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fuse_req_userdata(req);

	if (!control_owns(ino))
		return false;
	struct stat st = attributes(fs, ino);
	struct statx stx = inode_statx(&st, fs->started);

	fuse_reply_statx(req, 0, &stx, NAME_SECONDS);
	return true;
}

bool control_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[sizeof(LINK_PREFIX) + sizeof(((struct volume *)0)->name)];

	if (!control_owns(ino))
		return false;
	const struct volume *volume = link_of(fuse_req_userdata(req), ino);

	if (volume) {
		snprintf(target, sizeof(target), LINK_PREFIX "%s", volume->name);
		fuse_reply_readlink(req, target);
	} else {
		fuse_reply_err(req, EINVAL);
	}
	return true;
}

/* Cookies are positions: 0 is ".", 1 "..", then the entries. */
bool control_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, bool plus)
{
	struct fs *fs = fuse_req_userdata(req);
	char buffer[4096];
	size_t used = 0;

	if (!control_owns(ino))
		return false;
	if (ino != CONTROL_INO && ino != BY_UUID_INO) {
		fuse_reply_err(req, ENOTDIR);
		return true;
	}
	if (bytes > sizeof(buffer))
		bytes = sizeof(buffer);
	for (unsigned n = offset < UINT16_MAX ? (unsigned)offset : UINT16_MAX;; n++) {
		fuse_ino_t entry_ino = ino;
		const char *name = n == 0   ? "."
				   : n == 1 ? ".."
					    : entry_at(fs, ino, n - 2, &entry_ino);

		if (!name)
			break;
		if (n == 1)
			entry_ino = ino == CONTROL_INO ? INODE_ROOT : CONTROL_INO;
		/* Node id 0 in readdirplus: no lookup happened that the kernel would count. */
		struct fuse_entry_param entry = {.attr = attributes(fs, entry_ino)};
		size_t size = plus ? fuse_add_direntry_plus(req, buffer + used, bytes - used, name,
							    &entry, n + 1)
				   : fuse_add_direntry(req, buffer + used, bytes - used, name,
						       &entry.attr, n + 1);
		if (size > bytes - used)
			break;
		used += size;
	}
	fuse_reply_buf(req, buffer, used);
	return true;
}

/* The text as of now. */
static struct snapshot *snapshot_make(fuse_req_t req, const struct control_file *file)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
	FILE *out = snapshot ? open_memstream(&snapshot->text, &snapshot->length) : NULL;

	if (!out) {
		free(snapshot);
		return NULL;
	}
	int error = file->write(fuse_req_userdata(req), fuse_req_ctx(req)->uid, out);

	if (fclose(out) || error) {
		free(snapshot->text);
		free(snapshot);
		return NULL;
	}
	return snapshot;
}

static size_t snapshot_bytes(const struct snapshot *snapshot)
{
	return sizeof(*snapshot) + snapshot->length;
}

static void snapshot_free(struct snapshot *snapshot)
{
	if (snapshot)
		free(snapshot->text);
	free(snapshot);
}

/* The handle; 0: there are too many. */
static uint64_t snapshot_keep(struct snapshot *snapshot)
{
	LOCKED(&snapshots.lock);
	if (snapshots.bytes > SNAPSHOTS_BYTES_MAX)
		return 0;
	snapshots.bytes += snapshot_bytes(snapshot);
	snapshot->handle = ++snapshots.last_handle;
	snapshot->next = snapshots.first;
	snapshots.first = snapshot;
	return snapshot->handle;
}

static void snapshot_drop(uint64_t handle)
{
	struct snapshot *found = NULL;

	pthread_mutex_lock(&snapshots.lock);
	for (struct snapshot **link = &snapshots.first; *link; link = &(*link)->next) {
		if ((*link)->handle != handle)
			continue;
		found = *link;
		*link = found->next;
		snapshots.bytes -= snapshot_bytes(found);
		break;
	}
	pthread_mutex_unlock(&snapshots.lock);
	snapshot_free(found);
}

bool control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	const struct control_file *file = file_of(ino);

	if (!control_owns(ino))
		return false;
	if (!file || ((info->flags & O_ACCMODE) != O_RDONLY && !file->set)) {
		fuse_reply_err(req, file ? EACCES : EINVAL);
		return true;
	}
	if (!file->write) {
		access_file_open(req, info);
		return true;
	}
	struct snapshot *snapshot = snapshot_make(req, file);

	if (!snapshot) {
		fuse_reply_err(req, ENOMEM);
		return true;
	}
	info->fh = snapshot_keep(snapshot);
	if (!info->fh) {
		snapshot_free(snapshot);
		fuse_reply_err(req, ENFILE);
		return true;
	}
	info->direct_io = 1;
	if (fuse_reply_open(req, info))
		snapshot_drop(info->fh);
	return true;
}

static size_t copy_part(const struct snapshot *snapshot, char *to, size_t bytes, off_t offset)
{
	size_t at = (size_t)offset < snapshot->length ? (size_t)offset : snapshot->length;

	if (bytes > snapshot->length - at)
		bytes = snapshot->length - at;
	memcpy(to, snapshot->text + at, bytes);
	return bytes;
}

/* From the text of an open file; false: there is none of this handle. A copy, because the text goes
 * with the reply to its last reader. */
static bool read_kept(uint64_t handle, char *to, size_t *bytes, off_t offset)
{
	LOCKED(&snapshots.lock);
	for (struct snapshot *one = snapshots.first; one; one = one->next) {
		if (one->handle != handle)
			continue;
		*bytes = copy_part(one, to, *bytes, offset);
		return true;
	}
	return false;
}

bool control_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		  struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	if (!control_owns(ino))
		return false;
	if (is_stream(ino)) {
		access_file_read(req, bytes, info);
		return true;
	}
	struct worker *worker = worker_self(fs);

	if (worker && bytes > worker->reply_bytes)
		bytes = worker->reply_bytes;
	if (worker && read_kept(info->fh, worker->reply, &bytes, offset)) {
		fuse_reply_buf(req, worker->reply, bytes);
		return true;
	}
	/* The rest of one text is not the rest of another. */
	if (worker && offset > 0) {
		fuse_reply_buf(req, NULL, 0);
		return true;
	}
	struct snapshot *fresh = worker ? snapshot_make(req, file_of(ino)) : NULL;

	if (fresh) {
		bytes = copy_part(fresh, worker->reply, bytes, offset);
		fuse_reply_buf(req, worker->reply, bytes);
	} else {
		fuse_reply_err(req, ENOMEM);
	}
	snapshot_free(fresh);
	return true;
}

bool control_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	if (!control_owns(ino))
		return false;
	if (is_stream(ino))
		access_file_release(req, info);
	else
		snapshot_drop(info->fh);
	fuse_reply_err(req, 0);
	return true;
}

bool control_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info,
		  struct fuse_pollhandle *handle)
{
	if (!control_owns(ino) || !is_stream(ino))
		return false;
	access_file_poll(req, info, handle);
	return true;
}

bool control_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes)
{
	const struct control_file *file = file_of(ino);

	if (!file || !file->set)
		return control_refuses(req, ino);
	log_caller_set(fuse_req_ctx(req)->uid);
	int error = file->set(fuse_req_userdata(req), from, bytes);

	if (error)
		fuse_reply_err(req, -error);
	else
		fuse_reply_write(req, bytes);
	return true;
}

bool control_setattr(fuse_req_t req, fuse_ino_t ino, int which)
{
	const struct control_file *file = file_of(ino);
	const int kept = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;

	if (!file || !file->set || !(which & FUSE_SET_ATTR_SIZE) || which & kept)
		return control_refuses(req, ino);
	return control_getattr(req, ino);
}

/* A file of no size has neither data nor holes. */
bool control_lseek(fuse_req_t req, fuse_ino_t ino)
{
	if (!control_owns(ino))
		return false;
	fuse_reply_err(req, ENXIO);
	return true;
}

bool control_refuses(fuse_req_t req, fuse_ino_t ino)
{
	if (!control_owns(ino))
		return false;
	fuse_reply_err(req, EPERM);
	return true;
}
