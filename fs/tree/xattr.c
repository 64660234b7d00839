/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "fs/tree/inode.h"
#include "fs/tree/owner.h"
#include "fs/tree/xattr.h"

/* What an attribute takes besides its name and value: struct xattr, and the record's header. */
#define XATTR_OVERHEAD 48

struct xattr {
	struct xattr *next;
	uint32_t name_bytes; /* includes the NUL */
	uint32_t value_bytes;
	char data[]; /* name, value */
};

static size_t xattr_bytes(const struct xattr *xattr)
{
	return (size_t)xattr->name_bytes + xattr->value_bytes;
}

/* The link that points at the attribute of this name, or at the NULL that ends the list. */
static struct xattr **xattr_find(struct xattr **list, const char *name)
{
	while (*list && strcmp((*list)->data, name) != 0)
		list = &(*list)->next;
	return list;
}

static size_t xattrs_total(const struct xattr *list)
{
	size_t total = 0;

	for (; list; list = list->next)
		total += xattr_bytes(list);
	return total;
}

int xattr_set(struct xattr **list, const char *name, const void *value, size_t size, int flags)
{
	struct xattr **link = xattr_find(list, name), *old = *link;
	size_t name_bytes = strlen(name) + 1;

	if (flags & XATTR_CREATE && old)
		return -EEXIST;
	if (flags & XATTR_REPLACE && !old)
		return -ENODATA;
	size_t total = xattrs_total(*list) - (old ? xattr_bytes(old) : 0);

	if (size > XATTRS_BYTES_MAX || total + name_bytes + size > XATTRS_BYTES_MAX)
		return -ENOSPC;
	struct xattr *new = malloc(sizeof(*new) + name_bytes + size);

	if (!new)
		return -ENOMEM;
	new->next = old ? old->next : NULL;
	new->name_bytes = (uint32_t)name_bytes;
	new->value_bytes = (uint32_t)size;
	memcpy(new->data, name, name_bytes);
	if (size)
		memcpy(new->data + name_bytes, value, size);
	*link = new;
	free(old);
	return 0;
}

ssize_t xattr_get(const struct xattr *list, const char *name, void *value, size_t size)
{
	for (; list; list = list->next) {
		if (strcmp(list->data, name) != 0)
			continue;
		if (size && size < list->value_bytes)
			return -ERANGE;
		if (size)
			memcpy(value, list->data + list->name_bytes, list->value_bytes);
		return list->value_bytes;
	}
	return -ENODATA;
}

int xattr_remove(struct xattr **list, const char *name)
{
	struct xattr **link = xattr_find(list, name), *old = *link;

	if (!old)
		return -ENODATA;
	*link = old->next;
	free(old);
	return 0;
}

static uint32_t xattr_metadata(size_t name_length, size_t size)
{
	return (uint32_t)(XATTR_OVERHEAD + name_length + size) * METADATA_COPIES;
}

/* 0: no such attribute. */
static uint32_t xattr_stored_metadata(const struct inode *inode, const char *name)
{
	ssize_t size = xattr_get(inode->xattrs, name, NULL, 0);

	return size < 0 ? 0 : xattr_metadata(strlen(name), (size_t)size);
}

uint32_t xattrs_metadata(const struct xattr *list)
{
	uint32_t bytes = 0;

	for (; list; list = list->next)
		bytes += xattr_metadata(list->name_bytes - 1, list->value_bytes);
	return bytes;
}

int xattr_store(struct fs *fs, struct inode *inode, const char *name, const void *value,
		size_t size, int flags, enum owner_charge charge)
{
	uint32_t old = xattr_stored_metadata(inode, name);
	uint32_t bytes = xattr_metadata(strlen(name), size);
	uint32_t growth = bytes > old ? bytes - old : 0;
	int error = owner_take_metadata(fs, inode, growth, charge);

	if (error)
		return error;
	error = xattr_set(&inode->xattrs, name, value, size, flags);
	if (error)
		owner_give_metadata(fs, inode, growth);
	else if (bytes < old)
		owner_give_metadata(fs, inode, old - bytes);
	return error;
}

int xattr_drop(struct fs *fs, struct inode *inode, const char *name)
{
	uint32_t old = xattr_stored_metadata(inode, name);
	int error = xattr_remove(&inode->xattrs, name);

	if (!error)
		owner_give_metadata(fs, inode, old);
	return error;
}

bool xattr_is_ours(const char *name)
{
	return strncmp(name, XATTR_OURS, strlen(XATTR_OURS)) == 0;
}

static bool xattr_is_shown(const char *name, enum xattr_names visible_names)
{
	return !xattr_is_ours(name) && (visible_names == XATTR_NAMES_ALL ||
					strncmp(name, XATTR_TRUSTED, strlen(XATTR_TRUSTED)) != 0);
}

size_t xattr_list(const struct xattr *list, enum xattr_names visible_names, char *out,
		  size_t capacity)
{
	size_t needed = 0;

	for (; list; list = list->next) {
		if (!xattr_is_shown(list->data, visible_names))
			continue;
		if (needed + list->name_bytes <= capacity)
			memcpy(out + needed, list->data, list->name_bytes);
		needed += list->name_bytes;
	}
	return needed;
}

void xattr_free(struct xattr *list)
{
	while (list) {
		struct xattr *next = list->next;

		free(list);
		list = next;
	}
}

const struct xattr *xattr_next(const struct xattr *list, const struct xattr *last,
			       struct xattr_entry *entry)
{
	const struct xattr *next = last ? last->next : list;

	if (next)
		*entry = (struct xattr_entry){
		    .name = next->data,
		    .value = next->data + next->name_bytes,
		    .size = next->value_bytes,
		};
	return next;
}
