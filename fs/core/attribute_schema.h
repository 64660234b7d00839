/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of user.gpumem.* attributes: names, values, defaults. Pure; bound to inodes by
 * ops_xattr.c. */
#ifndef FS_CORE_ATTRIBUTE_SCHEMA_H
#define FS_CORE_ATTRIBUTE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTRIBUTES_PREFIX "user.gpumem."

enum attr_page_size { PAGE_SIZE_AUTO, PAGE_SIZE_4K, PAGE_SIZE_64K, PAGE_SIZE_2M, PAGE_SIZE_1G };
enum attr_persist { PERSIST_VOLATILE, PERSIST_RESTART, PERSIST_DISK };
enum attr_mapping { MAPPING_AUTO, MAPPING_PERSISTENT, MAPPING_TRANSIENT };
enum attr_copy { COPYING_AUTO, COPYING_BAR, COPYING_DMA };
enum attr_force_pcie { FORCE_PCIE_NO, FORCE_PCIE_YES };
enum attr_share { SHARE_PRIVATE, SHARE_TRUSTED };

/* What a file has, and what a directory hands to files created in it. Zero is the default. */
struct attr_values {
	uint8_t page_size, persist, mapping, copy, force_pcie, share;
	uint8_t set;	/* bit (1 << enum attr_id): set here or inherited, so listed by listxattr */
	uint8_t unused; /* eight bytes, so that a load of all is atomic */
};

enum attr_id {
	ATTR_PAGE_SIZE,
	ATTR_PERSIST,
	ATTR_MAPPING,
	ATTR_COPY,
	ATTR_FORCE_PCIE,
	ATTR_SHARE,
	ATTR_VALUES,			/* how many of the above: settable and inherited */
	ATTR_QUOTA_BYTES = ATTR_VALUES, /* directories only */
	ATTR_QUOTA_FILES,
	ATTR_DEVICE, /* read-only from here on */
	ATTR_EXTENTS,
	ATTR_RESIDENT,
	ATTR_MAPPED,
	ATTR_LEASES,
	ATTR_RBYTES,
	ATTR_RFILES,
	ATTR_COUNT
};

/* Id of a full name (user.gpumem.page_size); -EINVAL with a log line for an unknown name in the
 * namespace; -ENODATA when the name is outside of it. */
int attributes_find(const char *name);
const char *attributes_name(enum attr_id id); /* the full name */
bool attributes_read_only(enum attr_id id);

/* Sets values' field id from text[0..length) (not terminated) and its bit in set; 0, or -EINVAL
 * with a log line that says which values exist. path is for that line. */
int attributes_parse(enum attr_id id, const char *text, size_t length, const char *path,
		     struct attr_values *values);
/* A quota: "none" (UINT64_MAX) or a number with an optional suffix; else -EINVAL and the line. */
int attributes_parse_quota(enum attr_id id, const char *text, size_t length, const char *path,
			   uint64_t *limit);
/* The text of a value ("64K"). */
const char *attributes_text(enum attr_id id, const struct attr_values *values);
/* "auto 4K 64K 2M 1G" for the help, the man page test and log lines; empty for read-only ones. */
const char *attributes_choices(enum attr_id id);
/* Whether each value is one of its attribute's choices: for values that come from outside this
 * daemon. */
bool attributes_are_known(const struct attr_values *values);
void attributes_reset(enum attr_id id, struct attr_values *values);

#endif
