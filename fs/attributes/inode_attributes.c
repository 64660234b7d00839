/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/copy.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "fs/attributes/inode_attributes.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

static int attribute_refuse(enum attr_id id, const char *path, const char *reason)
{
	log_warn("%s: %s: %s", path, attributes_name(id), reason);
	return -ENOTSUP;
}

static bool volume_has_resident(const struct volume *volume, unsigned resident)
{
	switch (resident) {
	case RESIDENT_HOST:
		return volume && volume->spill;
	case RESIDENT_DISK:
		return volume && volume->disk;
	case RESIDENT_EVICTED:
		return volume && volume_is_tiered(volume);
	default:
		return true;
	}
}

/* A value that this daemon or machine cannot provide is refused when a user sets the value, not
 * ignored. */
static int attribute_check(struct fs *fs, struct inode *inode, enum attr_id id,
			   const struct attr_values *values, const char *path)
{
	struct volume *volume = inode->volume;
	struct device *device = volume ? volume->device : NULL;

	if (id == ATTR_PERSIST && values->persist == PERSIST_DISK && !fs->states[FS_SPOOL])
		return attribute_refuse(id, path, "this mount has no spool (-o spool=DIR)");
	if (id == ATTR_PERSIST && values->persist == PERSIST_RESTART && !fs->fdstore)
		return attribute_refuse(id, path, "this mount ends with its daemon (-o recovery=)");
	if (id == ATTR_RESIDENT && !volume_has_resident(volume, values->resident))
		return attribute_refuse(id, path,
					volume && !volume->pool
					    ? "host/ has no memory of a GPU"
					    : "this mount has no such place (-o spill=)");
	if (id == ATTR_FORCE_PCIE && values->force_pcie)
		return attribute_refuse(id, path, "the driver offers no forced PCIe mapping here");
	if (id == ATTR_COPY && values->copy == COPYING_BAR && device && !copy_bar_possible(device))
		return attribute_refuse(id, path,
					"no BAR mapping is available; see .gpumem/params");
	return 0;
}

static int file_place_wanted(struct file *file, const struct file_call *call, unsigned resident)
{
	static const enum memory_place places[] = {
	    [RESIDENT_GPU] = PLACE_GPU, [RESIDENT_HOST] = PLACE_HOST, [RESIDENT_DISK] = PLACE_DISK};

	return resident == RESIDENT_EVICTED ? file_place_out(file, call)
					    : file_place_all(file, call, places[resident]);
}

/* Applies the new attribute to the memory of the file. */
static int attribute_apply(struct fs *fs, struct copier *copier, struct inode *inode,
			   enum attr_id id, const struct attr_values *values)
{
	struct inode_call call;

	if (!S_ISREG(inode->mode))
		return 0;
	inode_call_init(&call, fs, inode, copier);
	call.call.attrs = *values;
	if (id == ATTR_PAGE_SIZE) {
		inode_move_begin(inode);
		int error = file_relayout(inode->file, &call.call);

		inode_move_end(inode);
		return error;
	}
	if (id == ATTR_RESIDENT)
		return file_place_wanted(inode->file, &call.call, values->resident);
	if (id == ATTR_MAPPING)
		file_apply_mapping(inode->file, &call.call);
	return 0;
}

/* -EPERM: only the owner decides which processes may share a file's memory. */
static int attribute_store(struct fs *fs, struct inode *inode, enum attr_id id,
			   const struct attr_values *values, uid_t caller)
{
	scoped_lock(&inode->lock);
	if (id == ATTR_SHARE && caller != inode->uid && !user_is_privileged(caller))
		return -EPERM;
	/* Change only this field: another thread may have set another field meanwhile. */
	struct attr_values now = atomic_load(&inode->attrs);
	attributes_take(id, &now, values);
	atomic_store(&inode->attrs, now);
	inode_touch_change(inode);
	record_values(fs, inode);
	return 0;
}

static int attribute_set(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
			 const struct attr_values *values, const char *path, uid_t caller)
{
	int error = attribute_check(fs, inode, id, values, path);

	/* Bytes that are only in the spool cannot be laid out, and must come back before the spool
	 * stops keeping the file. */
	if (!error && (id == ATTR_PAGE_SIZE || id == ATTR_PERSIST || id == ATTR_RESIDENT))
		error = inode_require_bytes(fs, inode);
	if (!error)
		error = attribute_apply(fs, copier, inode, id, values);
	if (!error)
		error = attribute_store(fs, inode, id, values, caller);
	if (!error)
		inode_notify_changed(fs, inode);
	return error;
}

static int quota_set(struct fs *fs, struct inode *inode, enum attr_id id, uint64_t limit,
		     uid_t caller)
{
	if (!S_ISDIR(inode->mode))
		return -EINVAL;
	/* Quotas bind the owner of a directory too, so the owner cannot change a quota. */
	if (!user_is_privileged(caller))
		return -EPERM;
	scoped_lock(&inode->lock);
	atomic_store(id == ATTR_QUOTA_BYTES ? &inode->dir->max_bytes : &inode->dir->max_files,
		     limit);
	inode_touch_change(inode);
	record_quota(fs, inode);
	return 0;
}

int inode_attr_set(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		   const char *value, size_t size, uid_t caller)
{
	struct attr_values values = atomic_load(&inode->attrs);
	char path[PATH_MAX];
	uint64_t limit;
	int error;

	tree_path_text(fs, inode, path, PATH_MAX);
	if (attributes_read_only(id)) {
		log_warn("%s: %s is read-only", path, attributes_name(id));
		return -EPERM;
	}
	if (id < ATTR_VALUES) {
		error = attributes_parse(id, value, size, path, &values);
		return error ? error : attribute_set(fs, copier, inode, id, &values, path, caller);
	}
	error = attributes_parse_quota(id, value, size, path, &limit);
	return error ? error : quota_set(fs, inode, id, limit, caller);
}

static bool attribute_is_set(struct inode *inode, enum attr_id id)
{
	struct attr_values values = atomic_load(&inode->attrs);

	if (id < ATTR_VALUES)
		return values.set >> id & 1;
	if (!S_ISDIR(inode->mode))
		return false;
	return (id == ATTR_QUOTA_BYTES && inode->dir->max_bytes != UINT64_MAX) ||
	       (id == ATTR_QUOTA_FILES && inode->dir->max_files != UINT64_MAX);
}

int inode_attr_remove(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		      uid_t caller)
{
	struct attr_values values = atomic_load(&inode->attrs);
	char path[PATH_MAX];

	if (attributes_read_only(id))
		return -EPERM;
	if (!attribute_is_set(inode, id))
		return -ENODATA;
	if (id >= ATTR_VALUES)
		return quota_set(fs, inode, id, UINT64_MAX, caller);
	tree_path_text(fs, inode, path, PATH_MAX);
	attributes_reset(id, &values);
	return attribute_set(fs, copier, inode, id, &values, path, caller);
}

static int number_print(FILE *out, uint64_t number)
{
	return fprintf(out, "%" PRIu64, number) < 0 ? -ENOMEM : 0;
}

static int quota_print(FILE *out, uint64_t limit)
{
	if (limit == UINT64_MAX)
		return fputs("none", out) < 0 ? -ENOMEM : 0;
	return number_print(out, limit);
}

static int sum_print(FILE *out, const _Atomic int64_t *sum)
{
	int64_t value = atomic_load(sum);

	return number_print(out, value < 0 ? 0 : (uint64_t)value);
}

static int dir_attribute_print(FILE *out, struct dir *dir, enum attr_id id)
{
	switch (id) {
	case ATTR_QUOTA_BYTES:
		return quota_print(out, dir->max_bytes);
	case ATTR_QUOTA_FILES:
		return quota_print(out, dir->max_files);
	case ATTR_RBYTES:
		return sum_print(out, &dir->rbytes);
	case ATTR_RFILES:
		return sum_print(out, &dir->rfiles);
	default:
		return -ENODATA;
	}
}

static int resident_print(FILE *out, struct file *file)
{
	uint64_t remaining = file_allocated(file), host = file_bytes_in(file, PLACE_HOST),
		 disk = file_bytes_in(file, PLACE_DISK);

	/* Memory ahead of the end is not counted in all. */
	host = host < remaining ? host : remaining;
	remaining -= host;
	disk = disk < remaining ? disk : remaining;
	remaining -= disk;
	fprintf(out, "%s:%" PRIu64, file_volume(file)->name, remaining);
	if (host)
		fprintf(out, " host:%" PRIu64, host);
	if (disk)
		fprintf(out, " disk:%" PRIu64, disk);
	return ferror(out) ? -ENOMEM : 0;
}

static int file_attribute_print(FILE *out, struct inode *inode, enum attr_id id)
{
	switch (id) {
	case ATTR_EXTENTS:
		return file_describe(inode->file, out);
	case ATTR_RESIDENT:
		return resident_print(out, inode->file);
	case ATTR_MAPPED:
		return number_print(out, file_mapped(inode->file));
	case ATTR_LEASES:
		return number_print(out, file_leases(inode->file));
	default:
		return -ENODATA;
	}
}

static int attribute_print(struct fs *fs, FILE *out, struct inode *inode, enum attr_id id)
{
	const struct volume *volume = inode->volume;
	struct attr_values values = atomic_load(&inode->attrs);

	if (id < ATTR_VALUES && !(id == ATTR_RESIDENT && S_ISREG(inode->mode)))
		return fputs(attributes_text(id, &values), out) < 0 ? -ENOMEM : 0;
	if (id == ATTR_DEVICE && volume)
		return fputs(volume->device ? volume->device->uuid : "host", out) < 0 ? -ENOMEM : 0;
	int error = -ENODATA;

	if (S_ISDIR(inode->mode))
		error = dir_attribute_print(out, inode->dir, id);
	else if (S_ISREG(inode->mode))
		error = file_attribute_print(out, inode, id);
	return error == -ENODATA ? inode_part_attribute(fs, inode, id, out) : error;
}

int inode_attr_get(struct fs *fs, struct inode *inode, enum attr_id id, char **text, size_t *length)
{
	char *memory = NULL;
	FILE *out = open_memstream(&memory, length);

	if (!out)
		return -ENOMEM;
	int error = attribute_print(fs, out, inode, id);

	if (fclose(out) && !error)
		error = -ENOMEM;
	if (error) {
		free(memory);
		return error;
	}
	*text = memory;
	return 0;
}

/* The place of a file's bytes is no value that a copy of the file could be given. */
bool inode_attr_listed(struct inode *inode, enum attr_id id)
{
	return attribute_is_set(inode, id) && (id != ATTR_RESIDENT || S_ISDIR(inode->mode));
}
