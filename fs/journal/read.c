/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reading the records of an earlier daemon. No field is trusted before it has been checked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "common/vector.h"
#include "fs/core/mode.h"
#include "fs/journal/journal.h"

/* Sequence numbers without a record: a writer had taken the number when its daemon was killed. */
#define GAPS_MAX (1ULL << 20)

/* The most leases of a file. There are fewer connections, and each connection has fewer leases. */
#define LEASES_MAX (1U << 24)

static uint64_t never_zero(uint64_t check)
{
	return check ? check : 1;
}

uint64_t journal_segment_check(const struct journal_segment *segment, uint64_t epoch)
{
	return never_zero(XXH3_64bits_withSeed(&segment->units, sizeof(segment->units), ~epoch));
}

uint64_t journal_record_check(const struct journal_record *record, uint64_t epoch)
{
	return never_zero(
	    XXH3_64bits_withSeed(&record->sequence, record->bytes - sizeof(record->check), epoch));
}

static int list_add(struct journal_list *list, const struct journal_record *record)
{
	const struct journal_record **at =
	    vector_grow(list->at, list->count, sizeof(struct journal_record *));

	if (!at)
		return -ENOMEM;
	list->at = at;
	list->at[list->count++] = record;
	return 0;
}

static int segment_read(const char *at, const char *end, uint64_t epoch, struct journal_list *list)
{
	int rc = 0;

	while (rc == 0 && end - at >= (ptrdiff_t)sizeof(struct journal_record)) {
		const struct journal_record *record = (const void *)at;

		if (!record->check || record->bytes < sizeof(*record) || record->bytes % 8 ||
		    record->bytes > (uint64_t)(end - at) ||
		    record->check != journal_record_check(record, epoch))
			break;
		rc = list_add(list, record);
		at += record->bytes;
	}
	return rc;
}

int journal_read_half(const char *half, uint64_t units, uint64_t epoch, struct journal_list *list)
{
	int rc = 0;

	for (uint64_t unit = 0; rc == 0 && unit < units;) {
		const struct journal_segment *segment = (const void *)(half + unit * JOURNAL_UNIT);

		if (!segment->units || segment->units > units - unit ||
		    segment->check != journal_segment_check(segment, epoch)) {
			unit++; /* a unit handed out, but not used before the daemon ended */
			continue;
		}
		rc = segment_read((const char *)(segment + 1),
				  (const char *)segment + segment->units * JOURNAL_UNIT, epoch,
				  list);
		unit += segment->units;
	}
	return rc;
}

int journal_sort(struct journal_list *list)
{
	uint64_t low = UINT64_MAX, high = 0;

	if (!list->count)
		return 0;
	for (size_t i = 0; i < list->count; i++) {
		uint64_t sequence = list->at[i]->sequence;

		low = sequence < low ? sequence : low;
		high = sequence > high ? sequence : high;
	}
	if (high - low >= list->count + GAPS_MAX)
		return -EUCLEAN;
	size_t room = (size_t)(high - low) + 1, n_sorted = 0;
	const struct journal_record **sorted = calloc(room, sizeof(struct journal_record *));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++)
		sorted[list->at[i]->sequence - low] = list->at[i];
	for (size_t i = 0; i < room; i++)
		if (sorted[i])
			sorted[n_sorted++] = sorted[i];
	free(list->at);
	list->at = sorted;
	list->count = n_sorted;
	return 0;
}

int journal_read(const struct journal *journal, struct journal_list *list)
{
	const struct journal_header *header = journal->header;
	uint64_t state = atomic_load(&header->state);
	unsigned newest = journal_newest(state);
	int rc = 0;

	*list = (struct journal_list){0};
	if (journal_has_older(state))
		rc = journal_read_half(journal->halves[!newest],
				       atomic_load(&header->units[!newest]), header->epoch[!newest],
				       list);
	if (rc == 0)
		rc = journal_read_half(journal->halves[newest], atomic_load(&header->units[newest]),
				       header->epoch[newest], list);
	if (rc == 0)
		rc = journal_sort(list);
	if (rc < 0) {
		free(list->at);
		*list = (struct journal_list){0};
	}
	return rc;
}

static bool is_name(const char *name, uint64_t bytes)
{
	return bytes && bytes <= NAME_BYTES_MAX && !memchr(name, '\0', bytes) &&
	       !memchr(name, '/', bytes);
}

static bool is_text(const char *text, uint64_t bytes)
{
	return bytes && !text[bytes - 1] && strlen(text) == bytes - 1;
}

static bool fixed_is_valid(const struct journal_view *view)
{
	switch (view->kind) {
	case JOURNAL_INODE:
		return attributes_are_known(&((const struct journal_inode *)view->fixed)->attrs);
	case JOURNAL_VALUES:
		return attributes_are_known(&((const struct journal_values *)view->fixed)->attrs);
	case JOURNAL_OPEN:
		return ((const struct journal_open *)view->fixed)->leases <= LEASES_MAX;
	case JOURNAL_DIR:
		return ((const struct journal_dir *)view->fixed)->next_cookie <= DIR_COOKIE_END;
	default:
		return true;
	}
}

static bool tail_is_valid(const struct journal_view *view)
{
	uint64_t bytes = view->tail_bytes;

	switch (view->kind) {
	case JOURNAL_INODE: {
		const struct journal_inode *inode = view->fixed;

		if (mode_is_device(inode->mode))
			return bytes == 0;
		return inode->target_bytes == bytes && (!bytes || is_text(view->tail, bytes));
	}
	case JOURNAL_XATTR:
	case JOURNAL_XATTR_GONE: {
		const struct journal_xattr *xattr = view->fixed;

		return (uint64_t)xattr->name_bytes + xattr->value_bytes == bytes &&
		       bytes <= XATTRS_BYTES_MAX && is_text(view->tail, xattr->name_bytes);
	}
	case JOURNAL_NAME:
	case JOURNAL_NAME_GONE:
		return ((const struct journal_name *)view->fixed)->name_bytes == bytes &&
		       is_name(view->tail, bytes);
	case JOURNAL_FILE:
	case JOURNAL_EXTENTS:
		return ((const struct journal_file *)view->fixed)->n_extents *
			   (uint64_t)sizeof(struct journal_extent) ==
		       bytes;
	case JOURNAL_HANDED_OUT:
		return ((const struct journal_handed_out *)view->fixed)->n_chunks *
			   (uint64_t)sizeof(uint64_t) ==
		       bytes;
	default:
		return bytes == 0;
	}
}

uint32_t journal_view(const struct journal_record *record, uint32_t offset,
		      struct journal_view *view)
{
	static const uint32_t fixed_bytes[JOURNAL_KINDS] = {
	    [JOURNAL_INODE] = sizeof(struct journal_inode),
	    [JOURNAL_OWNER] = sizeof(struct journal_owner),
	    [JOURNAL_VALUES] = sizeof(struct journal_values),
	    [JOURNAL_QUOTA] = sizeof(struct journal_quota),
	    [JOURNAL_XATTR] = sizeof(struct journal_xattr),
	    [JOURNAL_XATTR_GONE] = sizeof(struct journal_xattr),
	    [JOURNAL_NAME] = sizeof(struct journal_name),
	    [JOURNAL_NAME_GONE] = sizeof(struct journal_name),
	    [JOURNAL_QUOTA_DIR] = sizeof(struct journal_quota_dir),
	    [JOURNAL_OPEN] = sizeof(struct journal_open),
	    [JOURNAL_KEEP_DATA] = sizeof(struct journal_ino),
	    [JOURNAL_GONE] = sizeof(struct journal_ino),
	    [JOURNAL_FILE] = sizeof(struct journal_file),
	    [JOURNAL_EXTENTS] = sizeof(struct journal_file),
	    [JOURNAL_CUT] = sizeof(struct journal_cut),
	    [JOURNAL_REQUEST] = sizeof(struct journal_request),
	    [JOURNAL_DIR] = sizeof(struct journal_dir),
	    [JOURNAL_HANDED_OUT] = sizeof(struct journal_handed_out),
	};
	uint32_t at = offset ? offset : (uint32_t)sizeof(*record);

	if (at > record->bytes || record->bytes - at < sizeof(struct journal_part))
		return 0;
	const struct journal_part *part = (const void *)((const char *)record + at);

	if (part->bytes > record->bytes - at || part->kind >= JOURNAL_KINDS ||
	    !fixed_bytes[part->kind] || part->bytes < sizeof(*part) + fixed_bytes[part->kind])
		return 0;
	view->kind = (enum journal_kind)part->kind;
	view->fixed = part + 1;
	view->tail = (const char *)(part + 1) + fixed_bytes[part->kind];
	view->tail_bytes = part->bytes - (uint32_t)sizeof(*part) - fixed_bytes[part->kind];
	return fixed_is_valid(view) && tail_is_valid(view)
		   ? at + (uint32_t)journal_align(part->bytes)
		   : 0;
}
