/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The reader of the journal, with memory that a crash or a fault left incomplete or changed. */
#include <stdlib.h>
#include <string.h>

#include "fs/journal/journal.h"
#include "tests/unit/unit.h"

#define EPOCH	77
#define RECORDS 3

/* A half of one unit with a segment of records of one part each. */
struct half {
	_Alignas(8) char bytes[JOURNAL_UNIT];
	struct journal_record *records[RECORDS];
};

static struct half half;

static struct journal_segment *segment(void)
{
	return (struct journal_segment *)half.bytes;
}

/* Makes the checks valid for the content. */
static void seal(void)
{
	segment()->check = journal_segment_check(segment(), EPOCH);
	for (unsigned i = 0; i < RECORDS; i++)
		half.records[i]->check = journal_record_check(half.records[i], EPOCH);
}

/* Each record gives a directory its next cookie, and has a sequence number that is its index. */
static void half_fill(void)
{
	uint32_t part_bytes = sizeof(struct journal_part) + sizeof(struct journal_dir);
	char *at = half.bytes + sizeof(struct journal_segment);

	memset(&half, 0, sizeof(half));
	segment()->units = 1;
	for (unsigned i = 0; i < RECORDS; i++) {
		struct journal_record *record = half.records[i] = (void *)at;
		struct journal_part *part = (void *)(record + 1);
		struct journal_dir dir = {.ino = 1, .next_cookie = 10};

		*part = (struct journal_part){.kind = JOURNAL_DIR, .bytes = part_bytes};
		memcpy(part + 1, &dir, sizeof(dir));
		record->sequence = i;
		record->bytes = (uint32_t)sizeof(*record) + part_bytes;
		at += record->bytes;
	}
	seal();
}

/* The number of records that the reader accepts. */
static size_t accepted(void)
{
	struct journal_list list = {0};

	ck_assert_int_eq(journal_read_half(half.bytes, 1, EPOCH, &list), 0);
	for (size_t i = 0; i < list.count; i++)
		ck_assert_ptr_eq(list.at[i], half.records[i]);
	free(list.at);
	return list.count;
}

START_TEST(complete_records_are_read)
{
	half_fill();
	ck_assert_uint_eq(accepted(), RECORDS);
}
END_TEST

/* Programs of all releases that have this version of the journal make the same checks. */
START_TEST(checks_are_those_of_earlier_releases)
{
	half_fill();
	ck_assert_msg(JOURNAL_VERSION == 3, "checks of another version belong here");
	ck_assert_uint_eq(segment()->check, 1598143889597095734U);
	ck_assert_uint_eq(half.records[2]->check, 7727244654041234490U);
}
END_TEST

/* The record was not complete when the daemon was killed: the daemon stores the check last. */
START_TEST(a_segment_ends_at_an_incomplete_record)
{
	half_fill();
	half.records[_i]->check = 0;
	ck_assert_uint_eq(accepted(), (size_t)_i);
}
END_TEST

START_TEST(a_segment_ends_at_a_changed_record)
{
	half_fill();
	half.records[_i]->ino++;
	ck_assert_uint_eq(accepted(), (size_t)_i);
	half_fill();
	((char *)half.records[_i])[half.records[_i]->bytes - 1] ^= 1;
	ck_assert_uint_eq(accepted(), (size_t)_i);
}
END_TEST

/* The memory was used before: the records of an earlier use have the checks of another epoch. */
START_TEST(records_of_another_epoch_are_ignored)
{
	half_fill();
	half.records[1]->check = journal_record_check(half.records[1], EPOCH - 1);
	ck_assert_uint_eq(accepted(), 1);
	half_fill();
	segment()->check = journal_segment_check(segment(), EPOCH - 1);
	ck_assert_uint_eq(accepted(), 0);
}
END_TEST

START_TEST(impossible_lengths_are_refused)
{
	static const uint32_t lengths[] = {0, 8, JOURNAL_UNIT, UINT32_MAX - 7};

	half_fill();
	half.records[1]->bytes = lengths[_i];
	ck_assert_uint_eq(accepted(), 1);
}
END_TEST

START_TEST(segments_beyond_the_half_are_refused)
{
	half_fill();
	segment()->units = 2;
	seal();
	ck_assert_uint_eq(accepted(), 0);
}
END_TEST

static const struct {
	const char *name;
	uint32_t bytes;
	bool valid;
} names[] = {
    {"name", 4, true}, {"..a", 3, true},   {"a/b", 3, false},
    {"/", 1, false},   {"a\0b", 3, false}, {"", 0, false},
};

struct name_record {
	struct journal_record record;
	struct journal_part part;
	struct journal_name fixed;
	char name[NAME_BYTES_MAX + 8];
};

/* Whether the reader takes a name of so many bytes; the part has room for as many as in_part. */
static bool name_is_valid(struct name_record *name, uint32_t bytes, uint32_t in_part)
{
	struct journal_view view;

	name->fixed.name_bytes = bytes;
	name->part = (struct journal_part){
	    .kind = JOURNAL_NAME,
	    .bytes = (uint32_t)(sizeof(name->part) + sizeof(name->fixed)) + in_part};
	name->record.bytes =
	    (uint32_t)sizeof(name->record) + (uint32_t)journal_align(name->part.bytes);
	return journal_view(&name->record, 0, &view) == name->record.bytes;
}

START_TEST(names_are_checked)
{
	struct name_record name = {0};

	memcpy(name.name, names[_i].name, names[_i].bytes);
	ck_assert_int_eq(name_is_valid(&name, names[_i].bytes, names[_i].bytes), names[_i].valid);
}
END_TEST

START_TEST(lengths_of_names_are_checked)
{
	struct name_record name = {0};

	memset(name.name, 'n', sizeof(name.name));
	ck_assert(name_is_valid(&name, NAME_BYTES_MAX, NAME_BYTES_MAX));
	ck_assert(!name_is_valid(&name, NAME_BYTES_MAX + 1, NAME_BYTES_MAX + 1));
	ck_assert(!name_is_valid(&name, 5, 4));
	ck_assert(!name_is_valid(&name, 4, 5));
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("journal_read", &tcase, 60);

	tcase_add_test(tcase, complete_records_are_read);
	tcase_add_test(tcase, checks_are_those_of_earlier_releases);
	tcase_add_loop_test(tcase, a_segment_ends_at_an_incomplete_record, 0, RECORDS);
	tcase_add_loop_test(tcase, a_segment_ends_at_a_changed_record, 0, RECORDS);
	tcase_add_test(tcase, records_of_another_epoch_are_ignored);
	tcase_add_loop_test(tcase, impossible_lengths_are_refused, 0, 4);
	tcase_add_test(tcase, segments_beyond_the_half_are_refused);
	tcase_add_loop_test(tcase, names_are_checked, 0, sizeof(names) / sizeof(names[0]));
	tcase_add_test(tcase, lengths_of_names_are_checked);
	return unit_main(suite);
}
