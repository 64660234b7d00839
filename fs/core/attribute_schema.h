/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The attributes of an inode by the schema of common/attributes.h: their values in eight bytes, and
 * the parser of setxattr(2). fs/tree/inode_attributes.h binds them to inodes. */
#ifndef FS_CORE_ATTRIBUTE_SCHEMA_H
#define FS_CORE_ATTRIBUTE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/attributes.h"

#define ATTRIBUTE_BITS 3
#define ATTRIBUTES_MAX 16

/* What a file has, and what a directory hands to files created in it. Zero is the default. Eight
 * bytes, so that one load of all is atomic; there is room for ATTRIBUTES_MAX attributes. */
struct attr_values {
	union {
		struct {
#define ATTRIBUTE_FIELD_(id, field, ...) uint64_t field : ATTRIBUTE_BITS;
			ATTRIBUTES_WITH_VALUES(ATTRIBUTE_FIELD_)
#undef ATTRIBUTE_FIELD_
			uint64_t unused : ATTRIBUTE_BITS *(ATTRIBUTES_MAX - ATTR_VALUES);
			/* Bit (1 << enum attr_id): set here or inherited, so listxattr(2) lists it.
			 */
			uint64_t set : ATTRIBUTES_MAX;
		};
		uint64_t bits;
	};
};

static inline unsigned attributes_value(enum attr_id id, const struct attr_values *values)
{
	return values->bits >> (ATTRIBUTE_BITS * id) & ((1U << ATTRIBUTE_BITS) - 1);
}

/* Takes value and set bit of one attribute over. */
void attributes_take(enum attr_id id, struct attr_values *values, const struct attr_values *from);

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
/* The text of a value ("64K"); "" for an unknown one. */
const char *attributes_text(enum attr_id id, const struct attr_values *values);
/* Whether each value is one of its attribute's choices, and no other bit is set: for values that
 * come from outside this daemon. */
bool attributes_are_known(const struct attr_values *values);
void attributes_reset(enum attr_id id, struct attr_values *values);

#endif
