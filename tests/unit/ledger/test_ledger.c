/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Limits by uid, the list of leases, and the texts of .gpumem/. */
#include "fs/ledger/ledger.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system/descriptors.h"
#include "fs/attributes/inode_attributes.h"
#include "fs/control/snapshot.h"
#include "fs/control/texts.h"
#include "fs/core/caller.h"
#include "fs/share/lease_list.h"
#include "fs/share/viewer.h"
#include "fs/tree/owner.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define A 1000
#define B 1001

static int64_t metadata;

static void up(void)
{
	fixture_up();
	fixture.options.user_leases = 100;
	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	metadata = ledger_of(&fixture)->metadata_bytes;
}

static uint64_t sum_of_ordinary_users(enum ledger_kind kind)
{
	struct ledger_account *accounts;
	uint64_t sum = 0;
	size_t count;

	ck_assert_int_eq(ledger_list(&fixture, &accounts, &count), 0);
	for (size_t i = 0; i < count; i++)
		sum += user_is_privileged(accounts[i].uid) ? 0 : accounts[i].counts[kind];
	free(accounts);
	return sum;
}

static void down(void)
{
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, metadata);
	for (unsigned i = 0; i < LEDGER_KINDS; i++) {
		ck_assert_uint_eq(ledger_count(&fixture, A, i), 0);
		ck_assert_uint_eq(ledger_count(&fixture, B, i), 0);
		if (ledger_limit_of_all(&fixture, i) != UINT64_MAX)
			ck_assert_uint_eq(ledger_of(&fixture)->ordinary[i],
					  sum_of_ordinary_users(i));
	}
	fixture_down();
}

static int take(uid_t uid, enum ledger_kind kind, uint64_t more)
{
	return ledger_take(&fixture, uid, kind, more);
}

START_TEST(each_user_has_a_limit)
{
	ck_assert_int_eq(take(A, LEDGER_LEASES, 99), 0);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 2), -EMFILE);
	ck_assert_int_eq(ledger_check(&fixture, A, LEDGER_LEASES), 0);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), 0);
	ck_assert_int_eq(ledger_check(&fixture, A, LEDGER_LEASES), -EMFILE);
	ck_assert_int_eq(take(B, LEDGER_LEASES, 100), 0);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_LEASES), 100);
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, metadata + 200 * 512);
	ledger_give(&fixture, A, LEDGER_LEASES, 1);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), 0);
	ledger_give(&fixture, A, LEDGER_LEASES, 100);
	ledger_give(&fixture, B, LEDGER_LEASES, 100);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_LEASES), 0);
}
END_TEST

/* Leases that a previous daemon allowed stay, and further leases above the limit are refused. */
START_TEST(what_is_restored_is_never_refused)
{
	ck_assert_int_eq(ledger_restore(&fixture, A, LEDGER_LEASES, 150), 0);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), -EMFILE);
	ledger_give(&fixture, A, LEDGER_LEASES, 60);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 10), 0);
	ledger_give(&fixture, A, LEDGER_LEASES, 100);
}
END_TEST

START_TEST(several_kinds_are_charged_all_or_none)
{
	struct ledger_charge charges[] = {{LEDGER_TEXTS, 3, false}, {LEDGER_LEASES, 101, false}};

	ck_assert_int_eq(ledger_take_all(&fixture, A, charges, 2), -EMFILE);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_TEXTS), 0);
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, metadata);
	charges[1].always = true;
	ck_assert_int_eq(ledger_take_all(&fixture, A, charges, 2), 0);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_TEXTS), 3);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_LEASES), 101);
	ledger_give_all(&fixture, A, charges, 2);
}
END_TEST

/* Threads that update the charge of one file may give bytes back before they are taken. */
START_TEST(a_return_may_come_before_the_charge)
{
	ck_assert_int_eq(ledger_restore(&fixture, A, LEDGER_BYTES, 1), 0);
	ledger_give(&fixture, A, LEDGER_BYTES, 1000);
	ck_assert_int_eq(ledger_restore(&fixture, A, LEDGER_BYTES, 1000), 0);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_BYTES), 1);
	ledger_give(&fixture, A, LEDGER_BYTES, 1);
}
END_TEST

START_TEST(root_is_bound_by_memory_alone)
{
	ledger_of(&fixture)->metadata_max = ledger_of(&fixture)->metadata_bytes + 1000 * 512;
	ck_assert_int_eq(take(0, LEDGER_LEASES, 1000), 0);
	ck_assert_int_eq(take(0, LEDGER_LEASES, 1), -ENOSPC);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), -ENOSPC);
	ledger_give(&fixture, 0, LEDGER_LEASES, 1000);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), 0);
	ledger_give(&fixture, A, LEDGER_LEASES, 1);
}
END_TEST

/* What a user has costs the daemon memory: names of files, and leases. */
START_TEST(metadata_has_a_limit_per_user)
{
	fixture.options.user_metadata = (struct amount){.given = true, .value = 10 * 512};
	ck_assert_int_eq(take(A, LEDGER_METADATA, 9 * 512), 0);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), 0);
	ck_assert_int_eq(take(A, LEDGER_LEASES, 1), -EDQUOT);
	ck_assert_int_eq(take(A, LEDGER_METADATA, 1), -EDQUOT);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_LEASES), 1);
	ck_assert_uint_eq(ledger_count(&fixture, A, LEDGER_METADATA), 10 * 512);
	ck_assert_int_eq(take(B, LEDGER_METADATA, 10 * 512), 0);
	ck_assert_int_eq(take(0, LEDGER_METADATA, 11 * 512), 0);
	ledger_give(&fixture, 0, LEDGER_METADATA, 11 * 512);
	ledger_give(&fixture, B, LEDGER_METADATA, 10 * 512);
	ledger_give(&fixture, A, LEDGER_LEASES, 1);
	ledger_give(&fixture, A, LEDGER_METADATA, 9 * 512);
}
END_TEST

/* All ordinary users together leave a sixteenth to root. */
START_TEST(metadata_is_left_for_root)
{
	fixture.options.user_metadata =
	    (struct amount){.given = true, .percent = true, .value = 100};
	ledger_of(&fixture)->metadata_max = 1600000;
	ck_assert_int_eq(take(A, LEDGER_METADATA, 1500000 - (uint64_t)metadata), 0);
	ck_assert_int_eq(take(B, LEDGER_METADATA, 1), -ENOSPC);
	ck_assert_int_eq(take(0, LEDGER_METADATA, 100000), 0);
	ck_assert_int_eq(take(0, LEDGER_METADATA, 1), -ENOSPC);
	ledger_give(&fixture, 0, LEDGER_METADATA, 100000);
	ledger_give(&fixture, A, LEDGER_METADATA, 1500000 - (uint64_t)metadata);
}
END_TEST

/* Uids are cheap in a user namespace: each takes all that it may have, and root still gets some. */
static void check_room_for_root(enum ledger_kind kind, int refusal)
{
	uint64_t one = ledger_limit(&fixture, kind);
	uid_t uid = A;
	int error;

	/* So that the limit in question is the first to be reached. */
	ledger_of(&fixture)->metadata_max = INT64_MAX / 2;
	while (!(error = take(uid, kind, one)))
		uid++;
	ck_assert_int_eq(error, refusal);
	ck_assert_uint_lt(ledger_room(&fixture, uid, kind), one);
	ck_assert_uint_eq(uid - A, ledger_limit_of_all(&fixture, kind) / one);
	ck_assert_int_eq(take(0, kind, one), 0);
	ledger_give(&fixture, 0, kind, one);
	while (uid-- > A)
		ledger_give(&fixture, uid, kind, one);
}

START_TEST(many_users_leave_room_for_root)
{
	check_room_for_root(LEDGER_TEXT_BYTES, -ENFILE);
	check_room_for_root(LEDGER_CONNECTIONS, -ENFILE);
	check_room_for_root(LEDGER_PROCESSES, -ENFILE);
	check_room_for_root(LEDGER_LEASES, -ENFILE);
	check_room_for_root(LEDGER_HELD_CHUNKS, -ENFILE);
	check_room_for_root(LEDGER_DESCRIPTORS, -ENOSPC);
}
END_TEST

/* Two users with all memory that they may have leave descriptors for everybody's connections. */
START_TEST(memory_leaves_descriptors_for_connections)
{
	uint64_t memory = ledger_limit_of_all(&fixture, LEDGER_DESCRIPTORS) / LEDGER_DESCRIPTOR;
	uint64_t others = ledger_limit_of_all(&fixture, LEDGER_CONNECTIONS) +
			  ledger_limit_of_all(&fixture, LEDGER_PROCESSES);

	ck_assert_uint_le(memory + others,
			  descriptors_for(DESCRIPTOR_CONNECTION, descriptors_limit()));
}
END_TEST

/* What is charged for a file has 32 bits in the inode. */
START_TEST(a_charge_does_not_wrap)
{
	struct inode *inode = at(gpu(0), "f");
	uint64_t half = 1ULL << 43;

	ck_assert_int_eq(
	    owner_take_span(&fixture, inode, PLACE_DISK, half, OWNER_ALWAYS, OWNER_ALWAYS), 0);
	ck_assert_int_eq(
	    owner_take_span(&fixture, inode, PLACE_DISK, half, OWNER_ALWAYS, OWNER_ALWAYS), -EFBIG);
	owner_give_span(&fixture, inode, PLACE_DISK, half);
	ck_assert_uint_eq(inode->charges.placed[PLACE_DISK], 0);
}
END_TEST

#define LEASES 1000

static struct lease_entry entries[LEASES];

static void lease(unsigned n, uid_t uid)
{
	entries[n] = (struct lease_entry){
	    .inode = at(gpu(0), "f"), .file = at(gpu(0), "f"), .pid = (pid_t)n, .uid = uid};
	inode_ref(entries[n].inode);
	lease_list_add(lease_list_of(&fixture), &entries[n]);
}

static void unlease(unsigned n)
{
	lease_list_remove(lease_list_of(&fixture), &entries[n]);
	inode_put(&fixture, entries[n].inode, 1);
}

/* Sets numbers to the numbers of the next leases, and the remaining numbers to -1. */
static unsigned next(struct lease_place *place, uid_t uid, int *numbers, unsigned room)
{
	struct viewer viewer = viewer_of(uid);
	struct lease_entry found[32];
	unsigned n = lease_list_next(lease_list_of(&fixture), place, &viewer, found, room);

	for (unsigned i = 0; i < room; i++)
		numbers[i] = i < n ? found[i].pid : -1;
	for (unsigned i = 0; i < n; i++) {
		inode_put(&fixture, found[i].file, 1);
		inode_put(&fixture, found[i].inode, 1);
	}
	return n;
}

START_TEST(a_reader_keeps_its_place)
{
	struct lease_place place = {0}, other = {0};
	int numbers[3];

	ck_assert_uint_eq(next(&place, 0, numbers, 3), 0);
	lease_list_leave(lease_list_of(&fixture), &place);
	for (unsigned i = 0; i < 6; i++)
		lease(i, A);
	ck_assert_uint_eq(next(&place, 0, numbers, 2), 2);
	ck_assert_int_eq(numbers[1], 1);
	ck_assert_uint_eq(next(&other, 0, numbers, 3), 3);
	ck_assert_int_eq(numbers[2], 2);
	/* The leases around the place end, and a lease starts that is not part of the list. */
	unlease(1);
	unlease(2);
	lease(6, A);
	ck_assert_uint_eq(next(&place, 0, numbers, 2), 2);
	ck_assert_int_eq(numbers[0], 3);
	ck_assert_int_eq(numbers[1], 4);
	ck_assert_uint_eq(next(&place, 0, numbers, 2), 1);
	ck_assert_int_eq(numbers[0], 5);
	ck_assert_uint_eq(next(&place, 0, numbers, 2), 0);
	for (unsigned i = 3; i < 7; i++)
		unlease(i);
	unlease(0);
	ck_assert_uint_eq(next(&other, 0, numbers, 3), 0);
	lease_list_leave(lease_list_of(&fixture), &place);
	lease_list_leave(lease_list_of(&fixture), &other);
	lease_list_leave(lease_list_of(&fixture), &other);
	ck_assert_ptr_null(lease_list_of(&fixture)->first);
}
END_TEST

/* A user sees few leases between many leases of other users; the owner of the file is uid 1. */
START_TEST(a_viewer_sees_what_is_its_own)
{
	struct lease_place place = {0};
	int numbers[4];

	for (unsigned i = 0; i < LEASES; i++)
		lease(i, i % 500 == 7 ? B : A);
	ck_assert_uint_eq(next(&place, B, numbers, 4) + next(&place, B, numbers + 1, 3), 2);
	lease_list_leave(lease_list_of(&fixture), &place);
	for (uid_t uid = 0; uid < 3; uid++) {
		unsigned all = 0, n;

		while ((n = next(&place, uid, numbers, 4)))
			all += n;
		ck_assert_uint_eq(all, uid < 2 ? LEASES : 0);
		lease_list_leave(lease_list_of(&fixture), &place);
	}
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).leases, LEASES);
	for (unsigned i = 0; i < LEASES; i++)
		unlease(i);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).leases, 0);
}
END_TEST

START_TEST(sums_follow_the_size)
{
	char byte = 1;

	write_to(at(gpu(0), "f"), &byte, 1, 4095);
	lease(0, A);
	lease(1, A);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).bytes, 2 * 4096);
	write_to(at(gpu(0), "f"), &byte, 1, 9999);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).bytes, 2 * 4096);
	lease_list_measure(lease_list_of(&fixture), &entries[1]);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).bytes, 4096 + 10000);
	unlease(0);
	unlease(1);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 0).bytes, 0);
	ck_assert_uint_eq(lease_list_sums(lease_list_of(&fixture), 1).leases, 0);
}
END_TEST

static const struct control_file *control_file_of(const char *name)
{
	const struct control_file *file = control_files;

	while (strcmp(file->name, name) != 0)
		file++;
	return file;
}

/* Reads the text in pieces of the given size, and adds a NUL. */
static char *read_text(uint64_t handle, size_t at_once)
{
	char *text = malloc(1 << 20);
	size_t used = 0;
	ssize_t n;

	ck_assert_ptr_nonnull(text);
	while ((n = snapshot_read(&fixture, handle, text + used, at_once, used)) > 0)
		used += (size_t)n;
	ck_assert_int_eq(n, 0);
	ck_assert_uint_lt(used, 1 << 20);
	text[used] = 0;
	return text;
}

START_TEST(a_list_is_one_text)
{
	const struct control_file *file = control_file_of("mappings");
	uint64_t handles[3];
	char *texts[3];

	for (unsigned i = 0; i < LEASES; i++)
		lease(i, A);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(snapshot_open(&fixture, file, 0, &handles[i]), 0);
	ck_assert_uint_eq(ledger_count(&fixture, 0, LEDGER_TEXTS), 3);
	texts[0] = read_text(handles[0], 1);
	texts[1] = read_text(handles[1], 4097);
	texts[2] = read_text(handles[2], 1 << 17);
	ck_assert_str_eq(texts[0], texts[1]);
	ck_assert_str_eq(texts[0], texts[2]);
	unsigned lines = 0;

	for (const char *at = texts[0]; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_uint_eq(lines, LEASES);
	for (unsigned i = 0; i < 3; i++) {
		/* The read text is freed, and a read behind the end gives no bytes. */
		char byte;

		ck_assert_int_eq(snapshot_read(&fixture, handles[i], &byte, 1, 0), 0);
		ck_assert_int_eq(snapshot_read(&fixture, handles[i], &byte, 1, UINT64_MAX), 0);
		snapshot_close(&fixture, handles[i]);
		ck_assert_int_eq(snapshot_read(&fixture, handles[i], &byte, 1, 0), -ENOENT);
		free(texts[i]);
	}
	for (unsigned i = 0; i < LEASES; i++)
		unlease(i);
}
END_TEST

START_TEST(open_texts_are_counted)
{
	const struct control_file *file = control_file_of("version");
	uint64_t handles[200];
	unsigned n = 0;

	while (n < 200 && snapshot_open(&fixture, file, A, &handles[n]) == 0)
		n++;
	ck_assert_uint_eq(n, 128);
	ck_assert_int_eq(snapshot_open(&fixture, file, A, &handles[n]), -EMFILE);
	ck_assert_int_eq(snapshot_open(&fixture, file, B, &handles[n]), 0);
	snapshot_close(&fixture, handles[n]);
	snapshot_close(&fixture, handles[0]);
	ck_assert_int_eq(snapshot_open(&fixture, file, A, &handles[0]), 0);
	while (n--)
		snapshot_close(&fixture, handles[n]);
	/* A handle from another daemon, reopened twice. */
	ck_assert_int_eq(snapshot_reopen(&fixture, file, A, 1ULL << 40), 0);
	ck_assert_int_eq(snapshot_reopen(&fixture, file, A, 1ULL << 40), -EEXIST);
	snapshot_close(&fixture, 1ULL << 40);
	snapshot_close(&fixture, 1ULL << 40);
}
END_TEST

#define PIECES 4000

/* A list longer than the longest attribute is refused before its text is made. */
START_TEST(a_long_attribute_takes_no_memory)
{
	struct inode *file = at(gpu(0), "f");
	char byte = 1, *text;
	size_t length;

	ck_assert_int_eq(
	    inode_attr_set(&fixture, worker_copier(&fixture), file, ATTR_PAGE_SIZE, "4K", 2, true),
	    0);
	for (uint64_t i = 0; i < PIECES; i++)
		ck_assert_int_eq(write_to(file, &byte, 1, i * 8192), 1);
	ck_assert_int_eq(inode_attr_get(&fixture, file, ATTR_EXTENTS, &text, &length), 0);
	ck_assert_uint_gt(length, XATTR_SIZE_MAX);
	ck_assert_uint_lt(length, XATTR_SIZE_MAX + 256);
	free(text);
	metadata = ledger_of(&fixture)->metadata_bytes;
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("ledger", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, each_user_has_a_limit);
	tcase_add_test(tcase, what_is_restored_is_never_refused);
	tcase_add_test(tcase, several_kinds_are_charged_all_or_none);
	tcase_add_test(tcase, a_return_may_come_before_the_charge);
	tcase_add_test(tcase, root_is_bound_by_memory_alone);
	tcase_add_test(tcase, metadata_has_a_limit_per_user);
	tcase_add_test(tcase, metadata_is_left_for_root);
	tcase_add_test(tcase, many_users_leave_room_for_root);
	tcase_add_test(tcase, memory_leaves_descriptors_for_connections);
	tcase_add_test(tcase, a_charge_does_not_wrap);
	tcase_add_test(tcase, a_reader_keeps_its_place);
	tcase_add_test(tcase, a_viewer_sees_what_is_its_own);
	tcase_add_test(tcase, sums_follow_the_size);
	tcase_add_test(tcase, a_list_is_one_text);
	tcase_add_test(tcase, open_texts_are_counted);
	tcase_add_test(tcase, a_long_attribute_takes_no_memory);
	return unit_main(suite);
}
