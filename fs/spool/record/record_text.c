/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The text of a record: a head line, a JSON object, which always has all members, and a line with
 * the checksum. Reading does not trust the text. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/core/mode.h"
#include "fs/file/file.h"
#include "fs/spool/record/record.h"
#include "fs/tree/dir.h"
#include "fs/tree/xattr.h"

#define NAMES_MAX	 65000
#define XATTR_NAME_BYTES 255

/* The subject of a member: the inode, its times, or the record itself. */
enum part { PART_INODE, PART_TIMES, PART_RECORD };

/* The members that are integers. Values above INT64_MAX (hashes and quotas) are negative in JSON,
 * whose integers are signed here. */
#define NUMBER(field)                                                                              \
#field, offsetof(struct spool_record, field), sizeof(((struct spool_record *)0)->field)
#define SIGNED INT64_MIN, INT64_MAX
static const struct number {
	const char *key;
	size_t offset, bytes; /* 4 or 8 */
	int64_t min, max;
	enum part part;
} number_members[] = {
    {NUMBER(version), 0, SPOOL_NUMBER_MAX, PART_RECORD},
    {NUMBER(sequence), 0, SPOOL_NUMBER_MAX, PART_RECORD},
    {NUMBER(id), 1, SPOOL_NUMBER_MAX, PART_INODE},
    {NUMBER(mode), 0, S_IFMT | 07777, PART_INODE},
    {NUMBER(uid), 0, UINT32_MAX - 1, PART_INODE},
    {NUMBER(gid), 0, UINT32_MAX - 1, PART_INODE},
    {NUMBER(rdev), 0, INT64_MAX, PART_INODE},
    {NUMBER(atime), SIGNED, PART_RECORD},
    {NUMBER(mtime), SIGNED, PART_TIMES},
    {NUMBER(ctime), SIGNED, PART_TIMES},
    {NUMBER(btime), SIGNED, PART_INODE},
    {NUMBER(max_bytes), SIGNED, PART_INODE},
    {NUMBER(max_files), SIGNED, PART_INODE},
    {NUMBER(size), 0, FILE_SIZE_MAX, PART_INODE},
};

/* The other members. */
static const struct {
	const char *key;
	json_type type;
} other_members[] = {
    {"names", JSON_ARRAY},  {"target", JSON_STRING},	 {"device", JSON_STRING},
    {"xattrs", JSON_ARRAY}, {"runs", JSON_ARRAY},	 {"blocks", JSON_ARRAY},
    {"fresh", JSON_ARRAY},  {"attributes", JSON_OBJECT},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- writing; a result that is not 0 is a lack of memory */

/* JSON is UTF-8, but names and values may be any bytes: '%' and bytes other than printable ASCII
 * become '%' and two digits. */
static json_t *bytes_json(const char *bytes, size_t length)
{
	AUTO_FREE char *text = malloc(3 * length + 1);
	char *to = text;

	for (size_t i = 0; text && i < length; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (c >= ' ' && c < 0x7f && c != '%')
			*to++ = (char)c;
		else
			to += sprintf(to, "%%%02x", c);
	}
	return text ? json_stringn_nocheck(text, (size_t)(to - text)) : NULL;
}

static json_t *text_json(const char *text)
{
	return text ? bytes_json(text, strlen(text)) : json_string("");
}

static json_t *number_json(const struct spool_record *record, const struct number *number)
{
	const char *at = (const char *)record + number->offset;

	return json_integer(number->bytes == 4 ? *(const uint32_t *)at : *(const int64_t *)at);
}

static int names_write(const struct spool_record *record, json_t *names)
{
	int rc = 0;

	for (size_t i = 0; i < record->n_names; i++)
		rc |=
		    json_array_append_new(names, json_pack("[Io]", (json_int_t)record->names[i].dir,
							   text_json(record->names[i].name)));
	return rc;
}

static int attributes_write(const struct spool_record *record, json_t *values, json_t *xattrs)
{
	const struct xattr *xattr = NULL;
	struct xattr_entry entry;
	int rc = 0;

	for (int id = 0; id < ATTR_VALUES; id++)
		if (record->attrs.set >> id & 1)
			rc |= json_object_set_new(
			    values, attributes[id].name,
			    json_string(attributes_text((enum attr_id)id, &record->attrs)));
	while ((xattr = xattr_next(record->xattrs, xattr, &entry)))
		rc |= json_array_append_new(xattrs, json_pack("[oo]", text_json(entry.name),
							      bytes_json(entry.value, entry.size)));
	return rc;
}

static int content_write(const struct spool_record *record, json_t *runs, json_t *blocks)
{
	int rc = 0;

	for (size_t i = 0; i < record->n_runs; i++)
		rc |=
		    json_array_append_new(runs, json_pack("[II]", (json_int_t)record->runs[i].from,
							  (json_int_t)record->runs[i].bytes));
	for (size_t i = 0; i < record->n_blocks; i++)
		rc |=
		    json_array_append_new(blocks, json_integer((json_int_t)record->blocks[i].hash));
	return rc;
}

static int fresh_write(const struct spool_record *record, json_t *fresh_blocks)
{
	int rc = 0;

	for (size_t i = 0; i < record->n_blocks; i++)
		if (record->blocks[i].is_fresh)
			rc |= json_array_append_new(
			    fresh_blocks, json_integer((json_int_t)record->blocks[i].index));
	return rc;
}

/* The members up to the part `last`, as text; NULL: no memory. */
static char *object_write(const struct spool_record *record, enum part last, size_t flags)
{
	json_t *names = json_array(), *values = json_object(), *xattrs = json_array();
	json_t *runs = json_array(), *blocks = json_array(), *fresh_blocks = json_array();
	int rc = names_write(record, names) | attributes_write(record, values, xattrs) |
		 content_write(record, runs, blocks) |
		 (last == PART_RECORD ? fresh_write(record, fresh_blocks) : 0);
	json_t *object =
	    json_pack("{so so so so so so so so}", "names", names, "attributes", values, "xattrs",
		      xattrs, "runs", runs, "blocks", blocks, "fresh", fresh_blocks, "target",
		      text_json(record->target), "device", text_json(record->device));

	for (size_t i = 0; i < COUNT(number_members); i++)
		if (number_members[i].part <= last)
			rc |= json_object_set_new(object, number_members[i].key,
						  number_json(record, &number_members[i]));
	char *text = rc ? NULL : json_dumps(object, flags);

	json_decref(object);
	return text;
}

static void sum_write(const char *text, size_t length, char line[SPOOL_SUM_BYTES + 1])
{
	snprintf(line, SPOOL_SUM_BYTES + 1, SPOOL_SUM "%016" PRIx64 "\n",
		 (uint64_t)XXH3_64bits(text, length));
}

ssize_t spool_record_write(const struct spool_record *record, char **text)
{
	AUTO_FREE char *json = object_write(record, PART_RECORD, JSON_INDENT(1));
	AUTO_FREE char *body = NULL;
	char sum[SPOOL_SUM_BYTES + 1];
	int length = json ? asprintf(&body, SPOOL_HEAD "%d\n%s\n", SPOOL_FORMAT, json) : -1;

	if (length < 0)
		return -ENOMEM;
	sum_write(body, (size_t)length, sum);
	length = asprintf(text, "%s%s", body, sum);
	return length < 0 ? -ENOMEM : length;
}

uint64_t spool_record_hash(const struct spool_record *record, enum spool_sameness sameness)
{
	AUTO_FREE char *text =
	    object_write(record, sameness == SPOOL_TIMES ? PART_TIMES : PART_INODE, JSON_COMPACT);

	return text ? XXH3_64bits(text, strlen(text)) : 0;
}

/* --- reading */

static int digit_of(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Undoes bytes_json: the length of the allocated bytes, which a zero follows. */
static ssize_t bytes_read(const char *text, char **bytes)
{
	AUTO_FREE char *copy = malloc(strlen(text) + 1);
	char *to = copy;

	if (!copy)
		return -ENOMEM;
	for (; *text; text++) {
		if (*text != '%') {
			*to++ = *text;
			continue;
		}
		int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);

		if (low < 0)
			return -EUCLEAN;
		*to++ = (char)(high << 4 | low);
		text += 2;
	}
	*to = 0;
	*bytes = copy;
	copy = NULL;
	return to - *bytes;
}

/* A string of 1 to max bytes, none of them zero. */
static int text_read(const char *text, size_t max, char **string)
{
	AUTO_FREE char *bytes = NULL;
	ssize_t length = bytes_read(text, &bytes);

	if (length < 0)
		return (int)length;
	if (!length || (size_t)length > max || strlen(bytes) != (size_t)length)
		return -EUCLEAN;
	*string = bytes;
	bytes = NULL;
	return 0;
}

static int numbers_read(const json_t *object, struct spool_record *record)
{
	for (size_t i = 0; i < COUNT(number_members); i++) {
		const json_t *member = json_object_get(object, number_members[i].key);
		int64_t value = json_integer_value(member);
		char *at = (char *)record + number_members[i].offset;

		if (!json_is_integer(member) || value < number_members[i].min ||
		    value > number_members[i].max)
			return -EUCLEAN;
		if (number_members[i].bytes == 4)
			*(uint32_t *)at = (uint32_t)value;
		else
			*(int64_t *)at = value;
	}
	return 0;
}

static int names_read(json_t *names, struct spool_record *record)
{
	int rc = json_array_size(names) <= NAMES_MAX ? 0 : -EUCLEAN;

	for (size_t i = 0; rc == 0 && i < json_array_size(names); i++) {
		AUTO_FREE char *name = NULL;
		const char *text;
		json_int_t dir;

		if (json_unpack(json_array_get(names, i), "[Is!]", &dir, &text) || dir < 0 ||
		    dir > (json_int_t)SPOOL_NUMBER_MAX)
			return -EUCLEAN;
		rc = text_read(text, NAME_BYTES_MAX, &name);
		if (rc == 0 &&
		    (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
			rc = -EUCLEAN;
		if (rc == 0)
			rc = spool_record_add_name(record, (uint64_t)dir, name);
	}
	return rc;
}

static int attribute_read(const char *name, const char *text, struct spool_record *record)
{
	for (int id = 0; text && id < ATTR_VALUES; id++)
		if (strcmp(attributes[id].name, name) == 0)
			return attributes_parse((enum attr_id)id, text, strlen(text), "spool",
						&record->attrs)
				   ? -EUCLEAN
				   : 0;
	return -EUCLEAN;
}

static int attributes_read(json_t *values, struct spool_record *record)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach (values, name, value)
		rc = rc ? rc : attribute_read(name, json_string_value(value), record);
	return rc;
}

static int xattr_read(json_t *pair, struct spool_record *record)
{
	AUTO_FREE char *name = NULL, *value = NULL;
	const char *name_text, *value_text;

	if (json_unpack(pair, "[ss!]", &name_text, &value_text))
		return -EUCLEAN;
	int rc = text_read(name_text, XATTR_NAME_BYTES, &name);
	ssize_t size = rc ? rc : bytes_read(value_text, &value);

	if (size < 0)
		return (int)size;
	if (size > XATTRS_BYTES_MAX ||
	    (strncmp(name, "user.", 5) != 0 &&
	     strncmp(name, XATTR_TRUSTED, strlen(XATTR_TRUSTED)) != 0) ||
	    strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0)
		return -EUCLEAN;
	rc = xattr_set(&record->xattrs, name, value, (size_t)size, 0);
	return rc == -ENOSPC ? -EUCLEAN : rc;
}

static int xattrs_read(const json_t *xattrs, struct spool_record *record)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < json_array_size(xattrs); i++)
		rc = xattr_read(json_array_get(xattrs, i), record);
	return rc;
}

/* Ascending runs that do not touch; `n_blocks` is how many blocks they touch. */
static int runs_read(const json_t *runs, struct spool_record *record, uint64_t *n_blocks)
{
	uint64_t end = 0, next = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < json_array_size(runs); i++) {
		json_int_t from, bytes;

		if (json_unpack(json_array_get(runs, i), "[II!]", &from, &bytes) ||
		    from < (json_int_t)end + (i > 0) || bytes <= 0 ||
		    from > (json_int_t)record->size || bytes > (json_int_t)record->size - from)
			return -EUCLEAN;
		uint64_t first = (uint64_t)from / SPOOL_BLOCK;

		end = (uint64_t)(from + bytes);
		*n_blocks -= first < next ? next : first;
		next = (end - 1) / SPOOL_BLOCK + 1;
		*n_blocks += next;
		rc = spool_record_add_run(record, (uint64_t)from, (uint64_t)bytes);
	}
	return rc;
}

/* A hash for each block that the runs touch, and the numbers of the fresh blocks. */
static int blocks_read(const json_t *blocks, const json_t *fresh_blocks,
		       struct spool_record *record)
{
	int rc = spool_record_find_blocks(record);

	for (size_t i = 0; rc == 0 && i < record->n_blocks; i++) {
		const json_t *hash = json_array_get(blocks, i);

		record->blocks[i].hash = (uint64_t)json_integer_value(hash);
		rc = json_is_integer(hash) ? 0 : -EUCLEAN;
	}
	for (size_t i = 0; rc == 0 && i < json_array_size(fresh_blocks); i++) {
		const json_t *index = json_array_get(fresh_blocks, i);
		struct spool_block *block =
		    spool_record_block(record, (uint64_t)json_integer_value(index));

		if (!json_is_integer(index) || !block || block->is_fresh)
			return -EUCLEAN;
		block->is_fresh = true;
	}
	return rc;
}

/* Why the members do not fit together, or NULL. */
static const char *misfit(const struct spool_record *record)
{
	mode_t mode = record->mode;
	bool device = mode_is_device(mode);

	if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode) && !S_ISFIFO(mode) &&
	    !S_ISSOCK(mode) && !device)
		return "the mode";
	if (record->n_names == 0 || (S_ISDIR(mode) && record->n_names > 1))
		return "the number of names";
	if (S_ISLNK(mode) != (record->target != NULL))
		return "the target of a link";
	/* The kernel's device numbers have 12 bits for the major and 20 bits for the minor number.
	 */
	if (record->rdev !=
	    (device ? makedev(major(record->rdev) & 0xfff, minor(record->rdev) & 0xfffff) : 0))
		return "the number of a device";
	if (!S_ISDIR(mode) &&
	    (record->max_bytes != UINT64_MAX || record->max_files != UINT64_MAX || record->device))
		return "a value that only a directory has";
	return S_ISREG(mode) || !record->size ? NULL : "a size that only a file has";
}

static int object_read(const json_t *object, struct spool_record *record, const char **reason)
{
	const char *target = json_string_value(json_object_get(object, "target"));
	const char *device = json_string_value(json_object_get(object, "device"));
	const json_t *blocks = json_object_get(object, "blocks");
	uint64_t n_blocks = 0;

	*reason = "a member is missing, unknown or of another type";
	for (size_t i = 0; i < COUNT(other_members); i++) {
		const json_t *member = json_object_get(object, other_members[i].key);

		if (!member || json_typeof(member) != other_members[i].type)
			return -EUCLEAN;
	}
	if (json_object_size(object) != COUNT(other_members) + COUNT(number_members))
		return -EUCLEAN;
	*reason = "a number";
	int rc = numbers_read(object, record);

	*reason = rc ? *reason : "a name";
	rc = rc ? rc : names_read(json_object_get(object, "names"), record);
	*reason = rc ? *reason : "the target or the device";
	if (rc == 0 && *target)
		rc = text_read(target, PATH_MAX - 1, &record->target);
	if (rc == 0 && *device)
		rc = text_read(device, NAME_BYTES_MAX, &record->device);
	*reason = rc ? *reason : "an attribute";
	rc = rc ? rc : attributes_read(json_object_get(object, "attributes"), record);
	rc = rc ? rc : xattrs_read(json_object_get(object, "xattrs"), record);
	*reason = rc ? *reason : "runs and blocks";
	rc = rc ? rc : runs_read(json_object_get(object, "runs"), record, &n_blocks);
	if (rc == 0 && n_blocks != json_array_size(blocks))
		rc = -EUCLEAN;
	rc = rc ? rc : blocks_read(blocks, json_object_get(object, "fresh"), record);
	if (rc)
		return rc;
	*reason = misfit(record);
	return *reason ? -EUCLEAN : 0;
}

/* The head comes first: a text of another format cannot be checked further. */
static int frame_check(const char *text, size_t length, size_t *head, const char **reason)
{
	const size_t stem = strlen(SPOOL_HEAD);
	const char *end = memchr(text, '\n', length);
	char sum[SPOOL_SUM_BYTES + 1];

	*reason = "no head";
	if (!end || (size_t)(end - text) < stem || memcmp(text, SPOOL_HEAD, stem) != 0)
		return -EUCLEAN;
	*reason = "the format is not 2, the only supported format";
	if ((size_t)(end - text) != stem + 1 || text[stem] != '0' + SPOOL_FORMAT)
		return -EPROTO;
	*head = stem + 2;
	*reason = "its sum";
	if (length < *head + SPOOL_SUM_BYTES)
		return -EUCLEAN;
	sum_write(text, length - SPOOL_SUM_BYTES, sum);
	return memcmp(text + length - SPOOL_SUM_BYTES, sum, SPOOL_SUM_BYTES) ? -EUCLEAN : 0;
}

int spool_record_read(const char *text, size_t length, struct spool_record *record,
		      const char **reason)
{
	json_error_t error;
	size_t head;

	*record = (struct spool_record){.max_bytes = UINT64_MAX, .max_files = UINT64_MAX};
	int rc = frame_check(text, length, &head, reason);

	if (rc)
		return rc;
	json_t *object = json_loadb(text + head, length - SPOOL_SUM_BYTES - head,
				    JSON_REJECT_DUPLICATES, &error);

	*reason = "not a JSON object";
	if (object)
		rc = object_read(object, record, reason);
	else
		rc = json_error_code(&error) == json_error_out_of_memory ? -ENOMEM : -EUCLEAN;
	json_decref(object);
	if (rc)
		spool_record_free(record);
	return rc;
}
