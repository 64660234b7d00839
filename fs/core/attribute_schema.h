/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The values of an inode's attributes in eight bytes, and the parser of setxattr(2), by the schema
 * of common/attributes.h. fs/attributes/inode_attributes.h binds the values to inodes. */
#ifndef FS_CORE_ATTRIBUTE_SCHEMA_H
#define FS_CORE_ATTRIBUTE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/attributes.h"

#define ATTRIBUTES_MAX 16 /* bits of set */

/* The bits of an attribute's value and the bits before them. */
#define ATTRIBUTE_BITS(id)  ((id) == ATTR_PRIORITY ? 4 : 3)
#define ATTRIBUTE_SHIFT(id) (3 * (id) + ((id) > ATTR_PRIORITY))
#define ATTRIBUTES_BITS	    48 /* of all values */

/* The values of a file. A directory gives its own values to the files created there. Zero is the
 * default. All values fit into eight bytes, so that one load is atomic; more than 48 bits of
 * values, or a 17th attribute, need another layout. */
struct attr_values {
	union {
		struct {
#define ATTRIBUTE_FIELD_(id, field, ...) uint64_t field : ATTRIBUTE_BITS(ATTR_##id);
			ATTRIBUTES_WITH_VALUES(ATTRIBUTE_FIELD_)
#undef ATTRIBUTE_FIELD_
			uint64_t unused : ATTRIBUTES_BITS - ATTRIBUTE_SHIFT(ATTR_VALUES);
			/* Bit (1 << enum attr_id): the value was set here or inherited, so
			 * listxattr(2) lists the attribute. */
			uint64_t set : ATTRIBUTES_MAX;
		};
		uint64_t bits;
	};
};

static inline unsigned attributes_value(enum attr_id id, const struct attr_values *values)
{
	return values->bits >> ATTRIBUTE_SHIFT(id) & ((1U << ATTRIBUTE_BITS(id)) - 1);
}

/* Copies value and set bit of one attribute. */
void attributes_take(enum attr_id id, struct attr_values *values, const struct attr_values *from);

/* The id of a full name (user.gpumem.page_size). -EINVAL with a log line: an unknown name of
 * user.gpumem; -ENODATA: a name of another namespace. */
int attributes_find(const char *name);
const char *attributes_name(enum attr_id id); /* the full name */
bool attributes_read_only(enum attr_id id);

/* Sets the value of id from text[0..length), which has no NUL at its end, and the bit in set: 0, or
 * -EINVAL with a log line that lists the possible values. path is for the log line. */
int attributes_parse(enum attr_id id, const char *text, size_t length, const char *path,
		     struct attr_values *values);
/* Parses a quota: "none" (UINT64_MAX) or a number with an optional suffix; else -EINVAL with a log
 * line. */
int attributes_parse_quota(enum attr_id id, const char *text, size_t length, const char *path,
			   uint64_t *limit);
/* The text of a value ("64K"); "" for an unknown value. */
const char *attributes_text(enum attr_id id, const struct attr_values *values);
/* Whether each value is a choice of its attribute, and no other bit is set: for values from outside
 * this daemon. */
bool attributes_are_known(const struct attr_values *values);
void attributes_reset(enum attr_id id, struct attr_values *values);

#endif
