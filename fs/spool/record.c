/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/spool/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/core/mode.h"
#include "fs/spool/format.h"
#include "fs/tree/xattr.h"

void spool_record_free(struct spool_record *record)
{
	for (size_t i = 0; i < record->n_names; i++)
		free(record->names[i].name);
	free(record->names);
	free(record->runs);
	free(record->blocks);
	free(record->target);
	free(record->device);
	xattr_free(record->xattrs);
	*record = (struct spool_record){0};
}

int spool_array_grow(void *array, size_t count, size_t size)
{
	void **at = array;

	/* To powers of two. */
	if (count & (count - 1))
		return 0;
	void *more = reallocarray(*at, count ? count * 2 : 1, size);

	if (!more)
		return -ENOMEM;
	*at = more;
	return 0;
}

int spool_record_add_name(struct spool_record *record, uint64_t dir, const char *name)
{
	char *copy = strdup(name);

	if (!copy || spool_array_grow(&record->names, record->n_names, sizeof(*record->names))) {
		free(copy);
		return -ENOMEM;
	}
	record->names[record->n_names++] = (struct spool_name){dir, copy};
	return 0;
}

int spool_record_add_run(struct spool_record *record, uint64_t from, uint64_t bytes)
{
	if (spool_array_grow(&record->runs, record->n_runs, sizeof(*record->runs)))
		return -ENOMEM;
	record->runs[record->n_runs++] = (struct spool_run){from, bytes};
	return 0;
}

int spool_record_find_blocks(struct spool_record *record)
{
	uint64_t next = 0;

	free(record->blocks);
	record->blocks = NULL;
	record->n_blocks = 0;
	for (size_t i = 0; i < record->n_runs; i++) {
		const struct spool_run *run = &record->runs[i];
		uint64_t index = run->from / SPOOL_BLOCK;

		for (index = index < next ? next : index;
		     index * SPOOL_BLOCK < run->from + run->bytes; next = ++index) {
			if (spool_array_grow(&record->blocks, record->n_blocks,
					     sizeof(*record->blocks)))
				return -ENOMEM;
			record->blocks[record->n_blocks++] = (struct spool_block){.index = index};
		}
	}
	return 0;
}

static int by_index(const void *key, const void *element)
{
	uint64_t index = *(const uint64_t *)key;
	const struct spool_block *block = element;

	return index < block->index ? -1 : index > block->index;
}

struct spool_block *spool_record_block(const struct spool_record *record, uint64_t index)
{
	if (!record->n_blocks)
		return NULL;
	return bsearch(&index, record->blocks, record->n_blocks, sizeof(*record->blocks), by_index);
}

size_t spool_block_bytes(const struct spool_record *record, uint64_t index)
{
	uint64_t left = record->size - index * SPOOL_BLOCK;

	return left < SPOOL_BLOCK ? left : SPOOL_BLOCK;
}

/* Bytes that would be taken for the end of a word, or do not print. */
static void write_escaped(FILE *out, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (c > ' ' && c < 0x7f && c != '%')
			fputc(c, out);
		else
			fprintf(out, "%%%02x", c);
	}
}

static void write_word(FILE *out, const char *key, const char *word)
{
	fprintf(out, "%s ", key);
	write_escaped(out, word, strlen(word));
	fputc('\n', out);
}

static void write_attributes(const struct spool_record *record, FILE *out)
{
	const struct xattr *xattr = NULL;
	struct xattr_entry entry;

	for (int id = 0; id < ATTR_VALUES; id++)
		if (record->attrs.set >> id & 1)
			fprintf(out, "attribute %s %s\n", attributes[id].name,
				attributes_text((enum attr_id)id, &record->attrs));
	if (record->max_bytes != UINT64_MAX)
		fprintf(out, "max_bytes %" PRIu64 "\n", record->max_bytes);
	if (record->max_files != UINT64_MAX)
		fprintf(out, "max_files %" PRIu64 "\n", record->max_files);
	while ((xattr = xattr_next(record->xattrs, xattr, &entry))) {
		fputs("xattr ", out);
		write_escaped(out, entry.name, strlen(entry.name));
		fputc(' ', out);
		write_escaped(out, entry.value, entry.size);
		fputc('\n', out);
	}
}

/* Where its bytes are just now is no part of what a file is. */
enum whereabouts { BUT_WHEREABOUTS, WHEREABOUTS };

static void write_content(const struct spool_record *record, enum whereabouts whereabouts,
			  FILE *out)
{
	fprintf(out, "size %" PRIu64 "\n", record->size);
	for (size_t i = 0; i < record->n_runs; i++)
		fprintf(out, "run %" PRIu64 " %" PRIu64 "\n", record->runs[i].from,
			record->runs[i].bytes);
	for (size_t i = 0; i < record->n_blocks; i++)
		fprintf(out, "%s %" PRIu64 " %016" PRIx64 "\n",
			record->blocks[i].fresh && whereabouts ? "fresh" : "block",
			record->blocks[i].index, record->blocks[i].hash);
}

static void write_times(const struct spool_record *record, FILE *out)
{
	fprintf(out, "mtime %" PRId64 "\nctime %" PRId64 "\n", record->mtime, record->ctime);
}

/* What does not change by being looked at or saved. */
static void write_lasting(const struct spool_record *record, enum whereabouts whereabouts,
			  FILE *out)
{
	fprintf(out, "id %" PRIu64 "\nmode %o\nuid %u\ngid %u\nbtime %" PRId64 "\n", record->id,
		record->mode, record->uid, record->gid, record->btime);
	for (size_t i = 0; i < record->n_names; i++) {
		fprintf(out, "name %" PRIu64 " ", record->names[i].dir);
		write_escaped(out, record->names[i].name, strlen(record->names[i].name));
		fputc('\n', out);
	}
	if (record->target)
		write_word(out, "target", record->target);
	if (record->device)
		write_word(out, "device", record->device);
	if (mode_is_device(record->mode))
		fprintf(out, "node %u %u\n", major(record->rdev), minor(record->rdev));
	write_attributes(record, out);
	if (S_ISREG(record->mode))
		write_content(record, whereabouts, out);
}

ssize_t spool_record_write(const struct spool_record *record, char **text)
{
	char *memory = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&memory, &length);

	if (!out)
		return -ENOMEM;
	fprintf(out,
		SPOOL_HEAD "%d\nversion %" PRIu64 "\nsequence %" PRIu64 "\natime %" PRId64 "\n",
		SPOOL_FORMAT, record->version, record->sequence, record->atime);
	write_times(record, out);
	write_lasting(record, WHEREABOUTS, out);
	if (fflush(out) == 0)
		fprintf(out, SPOOL_SUM "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(memory, length));
	bool failed = ferror(out);

	if (fclose(out) || failed) {
		free(memory);
		return -ENOMEM;
	}
	*text = memory;
	return (ssize_t)length;
}

uint64_t spool_record_hash(const struct spool_record *record, enum spool_sameness sameness)
{
	AUTO_FREE char *memory = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&memory, &length);

	if (!out)
		return 0;
	write_lasting(record, BUT_WHEREABOUTS, out);
	if (sameness == SPOOL_TIMES)
		write_times(record, out);
	return fclose(out) ? 0 : XXH3_64bits(memory, length);
}
