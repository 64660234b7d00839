/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reading a record: every line is looked at as if somebody hostile had written it. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/hash.h"
#include "common/number.h"
#include "fs/core/mode.h"
#include "fs/file/file.h"
#include "fs/spool/format.h"
#include "fs/spool/record.h"
#include "fs/tree/dir.h"
#include "fs/tree/xattr.h"

#define NAMES_MAX	 65000
#define XATTR_NAME_BYTES 255

struct reader {
	struct spool_record *record;
	const char *why;
	unsigned seen; /* bit per row of the table that may come once */
	bool has_node;
};

/* Cuts the next word off a line. */
static char *word_next(char **line)
{
	char *word = *line, *end = word + strcspn(word, " ");

	*line = *end ? end + 1 : end;
	*end = 0;
	return word;
}

static int digit_of(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Takes the escapes out, in place: the length, or -EUCLEAN. */
static ssize_t unescape(char *word)
{
	char *to = word;

	for (const char *from = word; *from; from++) {
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		int high = digit_of(from[1]), low = high < 0 ? -1 : digit_of(from[2]);

		if (low < 0)
			return -EUCLEAN;
		*to++ = (char)(high << 4 | low);
		from += 2;
	}
	*to = 0;
	return to - word;
}

/* The same where it is a C string. */
static ssize_t unescape_text(char *word)
{
	ssize_t length = unescape(word);

	return length >= 0 && memchr(word, 0, (size_t)length) ? -EUCLEAN : length;
}

static int read_u64(const char *text, uint64_t max, uint64_t *value)
{
	return parse_u64(text, 0, max, value) < 0 ? -EUCLEAN : 0;
}

static int read_time(const char *text, int64_t *value)
{
	bool negative = *text == '-';
	uint64_t number;

	if (read_u64(text + negative, (uint64_t)INT64_MAX + negative, &number))
		return -EUCLEAN;
	*value = negative ? (int64_t)-number : (int64_t)number;
	return 0;
}

static int read_hash(const char *text, uint64_t *hash)
{
	if (strlen(text) != 16)
		return -EUCLEAN;
	*hash = 0;
	for (; *text; text++) {
		int digit = digit_of(*text);

		if (digit < 0)
			return -EUCLEAN;
		*hash = *hash << 4 | (unsigned)digit;
	}
	return 0;
}

static int line_mode(struct reader *reader, char *line)
{
	mode_t mode = 0, type;

	if (!*line || strlen(line) > 6 || strspn(line, "01234567") != strlen(line))
		return -EUCLEAN;
	mode = (mode_t)strtoul(line, NULL, 8);
	type = mode & S_IFMT;
	if (type != S_IFREG && type != S_IFDIR && type != S_IFLNK && type != S_IFIFO &&
	    type != S_IFSOCK && !mode_is_device(mode))
		return -EUCLEAN;
	reader->record->mode = mode;
	return 0;
}

static int line_id32(const char *line, uint32_t *id)
{
	uint64_t value;
	int rc = read_u64(line, UINT32_MAX - 1, &value);

	if (rc == 0)
		*id = (uint32_t)value;
	return rc;
}

static int line_uid(struct reader *reader, char *line)
{
	return line_id32(line, &reader->record->uid);
}

static int line_gid(struct reader *reader, char *line)
{
	return line_id32(line, &reader->record->gid);
}

static int line_name(struct reader *reader, char *line)
{
	uint64_t dir;
	int rc = read_u64(word_next(&line), UINT64_MAX, &dir);
	ssize_t length = rc ? rc : unescape_text(line);

	if (length <= 0 || length > NAME_BYTES_MAX || strchr(line, '/') || strcmp(line, ".") == 0 ||
	    strcmp(line, "..") == 0 || reader->record->n_names >= NAMES_MAX)
		return -EUCLEAN;
	return spool_record_add_name(reader->record, dir, line);
}

static int line_text(char **field, char *line, size_t max)
{
	ssize_t length = unescape_text(line);

	if (length <= 0 || (size_t)length > max)
		return -EUCLEAN;
	*field = strdup(line);
	return *field ? 0 : -ENOMEM;
}

static int line_target(struct reader *reader, char *line)
{
	return line_text(&reader->record->target, line, PATH_MAX - 1);
}

static int line_device(struct reader *reader, char *line)
{
	return line_text(&reader->record->device, line, NAME_BYTES_MAX);
}

/* As many as the kernel has of each. */
static int line_node(struct reader *reader, char *line)
{
	const uint64_t majors = 1 << 12, minors = 1 << 20;
	uint64_t major_number, minor_number;

	if (read_u64(word_next(&line), majors - 1, &major_number) ||
	    read_u64(line, minors - 1, &minor_number))
		return -EUCLEAN;
	reader->record->rdev = makedev(major_number, minor_number);
	reader->has_node = true;
	return 0;
}

static int line_attribute(struct reader *reader, char *line)
{
	const char *word = word_next(&line);

	for (int id = 0; id < ATTR_VALUES; id++)
		if (strcmp(attributes[id].name, word) == 0)
			return attributes_parse((enum attr_id)id, line, strlen(line), "spool",
						&reader->record->attrs)
				   ? -EUCLEAN
				   : 0;
	return -EUCLEAN;
}

static int line_xattr(struct reader *reader, char *line)
{
	char *name = word_next(&line);
	ssize_t length = unescape_text(name), size = unescape(line);

	if (length < 0 || length > XATTR_NAME_BYTES || size < 0 || size > XATTRS_BYTES_MAX ||
	    (strncmp(name, "user.", 5) != 0 && strncmp(name, "trusted.", 8) != 0) ||
	    strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0)
		return -EUCLEAN;
	int rc = xattr_set(&reader->record->xattrs, name, line, (size_t)size, 0);

	return rc == -ENOSPC ? -EUCLEAN : rc;
}

static int line_run(struct reader *reader, char *line)
{
	struct spool_record *record = reader->record;
	uint64_t end = 0, from, bytes;

	if (record->n_runs) {
		const struct spool_run *last = &record->runs[record->n_runs - 1];

		end = last->from + last->bytes;
	}
	if (read_u64(word_next(&line), FILE_SIZE_MAX, &from) ||
	    read_u64(line, FILE_SIZE_MAX - from, &bytes) || bytes == 0 || from < end ||
	    (from == end && record->n_runs))
		return -EUCLEAN;
	return spool_record_add_run(record, from, bytes);
}

static int add_block(struct reader *reader, char *line, bool fresh)
{
	struct spool_record *record = reader->record;
	struct spool_block block = {.fresh = fresh};

	if (read_u64(word_next(&line), FILE_SIZE_MAX / SPOOL_BLOCK, &block.index) ||
	    read_hash(line, &block.hash) ||
	    (record->n_blocks && block.index <= record->blocks[record->n_blocks - 1].index))
		return -EUCLEAN;
	if (spool_array_grow(&record->blocks, record->n_blocks, sizeof(*record->blocks)))
		return -ENOMEM;
	record->blocks[record->n_blocks++] = block;
	return 0;
}

static int line_block(struct reader *reader, char *line)
{
	return add_block(reader, line, false);
}

static int line_fresh(struct reader *reader, char *line)
{
	return add_block(reader, line, true);
}

#define NUMBER(field, most)                                                                        \
	static int line_##field(struct reader *reader, char *line)                                 \
	{                                                                                          \
		return read_u64(line, most, &reader->record->field);                               \
	}
NUMBER(id, UINT64_MAX)
NUMBER(version, UINT64_MAX - 1)
NUMBER(sequence, UINT64_MAX - 1)
NUMBER(max_bytes, UINT64_MAX)
NUMBER(max_files, UINT64_MAX)
NUMBER(size, FILE_SIZE_MAX)

#define TIME(field)                                                                                \
	static int line_##field(struct reader *reader, char *line)                                 \
	{                                                                                          \
		return read_time(line, &reader->record->field);                                    \
	}
TIME(atime)
TIME(mtime)
TIME(ctime)
TIME(btime)

enum { ONCE = 1, MUST = 2 };

static const struct {
	const char *key;
	int (*read)(struct reader *reader, char *line);
	unsigned how;
} table[] = {
    {"id", line_id, ONCE | MUST},
    {"version", line_version, ONCE | MUST},
    {"sequence", line_sequence, ONCE | MUST},
    {"mode", line_mode, ONCE | MUST},
    {"uid", line_uid, ONCE | MUST},
    {"gid", line_gid, ONCE | MUST},
    {"atime", line_atime, ONCE | MUST},
    {"mtime", line_mtime, ONCE | MUST},
    {"ctime", line_ctime, ONCE | MUST},
    {"btime", line_btime, ONCE | MUST},
    {"max_bytes", line_max_bytes, ONCE},
    {"max_files", line_max_files, ONCE},
    {"target", line_target, ONCE},
    {"device", line_device, ONCE},
    {"node", line_node, ONCE},
    {"size", line_size, ONCE},
    {"name", line_name, 0},
    {"attribute", line_attribute, 0},
    {"xattr", line_xattr, 0},
    {"run", line_run, 0},
    {"block", line_block, 0},
    {"fresh", line_fresh, 0},
};

#define ROWS (sizeof(table) / sizeof(table[0]))

static int read_line(struct reader *reader, char *line)
{
	const char *key = word_next(&line);

	for (unsigned i = 0; i < ROWS; i++) {
		if (strcmp(table[i].key, key) != 0)
			continue;
		if (table[i].how & ONCE && reader->seen >> i & 1)
			return -EUCLEAN;
		reader->seen |= 1U << i;
		reader->why = table[i].key;
		return table[i].read(reader, line);
	}
	reader->why = "a line of no kind";
	return -EUCLEAN;
}

/* Every block that a run touches has its hash, and no other has. */
static bool blocks_fit(const struct spool_record *record)
{
	size_t at = 0;

	for (size_t i = 0; i < record->n_runs; i++) {
		const struct spool_run *run = &record->runs[i];
		uint64_t first = run->from / SPOOL_BLOCK,
			 last = (run->from + run->bytes - 1) / SPOOL_BLOCK;

		if (run->from + run->bytes > record->size)
			return false;
		if (at && record->blocks[at - 1].index == first)
			first++;
		for (uint64_t index = first; index <= last; index++)
			if (at == record->n_blocks || record->blocks[at++].index != index)
				return false;
	}
	return at == record->n_blocks;
}

static const char *misfit(const struct reader *reader)
{
	const struct spool_record *record = reader->record;
	bool content = record->size || record->n_runs || record->n_blocks;

	for (unsigned i = 0; i < ROWS; i++)
		if (table[i].how & MUST && !(reader->seen >> i & 1))
			return "a line is missing";
	if (record->id == 0 || record->n_names == 0)
		return "no id or no name";
	if (S_ISDIR(record->mode) && record->n_names > 1)
		return "a directory with two names";
	if (S_ISLNK(record->mode) != (record->target != NULL))
		return "the target of a link";
	if (mode_is_device(record->mode) != reader->has_node)
		return "the number of a device";
	if (!S_ISDIR(record->mode) &&
	    (record->max_bytes != UINT64_MAX || record->max_files != UINT64_MAX || record->device))
		return "what only a directory has";
	if (!S_ISREG(record->mode) && content)
		return "what only a file has";
	return blocks_fit(record) ? NULL : "runs and blocks";
}

static int read_lines(struct reader *reader, char *text)
{
	char *line = text, *end;
	int rc = 0;

	for (; rc == 0 && *line; line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			return -EUCLEAN;
		*end = 0;
		rc = read_line(reader, line);
	}
	if (rc == 0) {
		const char *why = misfit(reader);

		reader->why = why ? why : reader->why;
		rc = why ? -EUCLEAN : 0;
	}
	return rc;
}

/* The head first: of another version nothing else can be said. */
static int check_frame(const char *text, size_t length, size_t *head, const char **why)
{
	const size_t stem = sizeof(SPOOL_HEAD) - 1;
	const char *end = memchr(text, '\n', length);
	uint64_t sum;

	*why = "no head";
	if (!end || (size_t)(end - text) < stem || memcmp(text, SPOOL_HEAD, stem) != 0)
		return -EUCLEAN;
	*why = "its version";
	if ((size_t)(end - text) != stem + 1 || text[stem] != '0' + SPOOL_FORMAT)
		return -EPROTO;
	*head = stem + 2;
	*why = "its sum";
	if (length < *head + SPOOL_SUM_BYTES || text[length - 1] != '\n')
		return -EUCLEAN;
	const char *line = text + length - SPOOL_SUM_BYTES;
	char digits[17] = "";

	memcpy(digits, line + sizeof(SPOOL_SUM) - 1, 16);
	if (memcmp(line, SPOOL_SUM, sizeof(SPOOL_SUM) - 1) != 0 || read_hash(digits, &sum) ||
	    sum != XXH3_64bits(text, length - SPOOL_SUM_BYTES))
		return -EUCLEAN;
	return 0;
}

int spool_record_read(const char *text, size_t length, struct spool_record *record,
		      const char **why)
{
	struct reader reader = {.record = record};
	size_t head;

	*record = (struct spool_record){.max_bytes = UINT64_MAX, .max_files = UINT64_MAX};
	int rc = check_frame(text, length, &head, why);

	if (rc)
		return rc;
	size_t bytes = length - SPOOL_SUM_BYTES - head;
	char *lines = malloc(bytes + 1);

	if (!lines)
		return -ENOMEM;
	memcpy(lines, text + head, bytes);
	lines[bytes] = '\0';
	*why = "a zero byte";
	rc = strlen(lines) == bytes ? read_lines(&reader, lines) : -EUCLEAN;
	free(lines);
	if (reader.why)
		*why = reader.why;
	if (rc)
		spool_record_free(record);
	return rc;
}
