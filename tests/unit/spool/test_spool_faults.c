/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Faults of the disk, and crashes: the spool serves only saved bytes, and names every file that the
 * spool does not serve. */
#include <errno.h>
#include <inttypes.h>

#include "backend/pool.h"
#include "common/cleanup.h"
#include "tests/unit/spool_fixture.h"

#define FILES 4
#define BYTES ((size_t)(2 * SPOOL_BLOCK + 777))

/* A file of several blocks, of a small block, of a single whole block, and an empty file, so that a
 * fault can be at any place. */
static const size_t sizes[FILES] = {BYTES, 100, SPOOL_BLOCK, 0};
static char pattern[FILES][BYTES], seen[BYTES];

static void name_of(unsigned number, char name[16])
{
	snprintf(name, 16, "file%u", number);
}

static struct inode *file_at(unsigned number)
{
	char name[16];

	name_of(number, name);
	return at(at(gpu(0), "dir"), name);
}

static void up(void)
{
	uint64_t state = unit_seed();

	spool_up();
	ck_assert_int_eq(persist(gpu(0), "disk"), 0);
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];

		name_of(i, name);
		unit_fill(pattern[i], sizes[i], &state);
		ck_assert_int_eq(make_file(at(gpu(0), "dir"), name), 0);
		if (sizes[i])
			put_bytes(file_at(i), pattern[i], sizes[i], 0);
	}
	mount_down();
}

static void down(void)
{
	spool_scratch_gone();
}

static bool is_whole(unsigned number)
{
	struct inode *file = file_at(number);

	memset(seen, 0x55, sizeof(seen));
	return file_size(file->file) == sizes[number] &&
	       get_bytes(file, seen, sizes[number], 0) == (ssize_t)sizes[number] &&
	       memcmp(seen, pattern[number], sizes[number]) == 0;
}

/* --- a hundred faults, each in a file of the spool, which is repaired afterwards */

struct victim {
	char path[160];
	char *bytes;
	size_t length;
};

/* Returns the id of a file by the name in its record: ids are given in the order of saves, which
 * depends on threads. */
static uint64_t id_of(unsigned number)
{
	char name[16];
	uint64_t id = 0;

	name_of(number, name);
	mount_up();
	id = atomic_load(&inode_spool_file(file_at(number))->id);
	mount_crash();
	return id;
}

static void victim_read(struct victim *victim)
{
	FILE *file = fopen(victim->path, "r");

	ck_assert_ptr_nonnull(file);
	victim->bytes = malloc(BYTES + 1);
	victim->length = fread(victim->bytes, 1, BYTES + 1, file);
	fclose(file);
}

static void victim_write(const struct victim *victim, const char *bytes, size_t length)
{
	unlink(victim->path);
	rmdir(victim->path);
	FILE *file = fopen(victim->path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	fclose(file);
}

enum fault { TRUNCATED, FLIPPED, MISSING, LONGER, VERSION, A_LINK, A_DIRECTORY, FAULTS };

static void inject(const struct victim *victim, enum fault fault, uint64_t random)
{
	AUTO_FREE char *bytes = malloc(victim->length + 1);
	size_t length = victim->length, where = length ? random % length : 0;

	memcpy(bytes, victim->bytes, length);
	switch (fault) {
	case TRUNCATED:
		victim_write(victim, bytes, where);
		break;
	case FLIPPED:
		bytes[where] = (char)(bytes[where] ^ 1 << random / 7 % 8);
		victim_write(victim, bytes, length);
		break;
	case LONGER:
		bytes[length] = '\n';
		victim_write(victim, bytes, length + 1);
		break;
	case VERSION: /* the head of a record says 2 */
		bytes[strlen("gpumem-spool ")] = '1';
		victim_write(victim, bytes, length);
		break;
	case A_LINK: /* a link, even to the right file */
		unlink(victim->path);
		ck_assert_int_eq(symlink("/dev/zero", victim->path), 0);
		break;
	case A_DIRECTORY:
		unlink(victim->path);
		ck_assert_int_eq(mkdir(victim->path, 0700), 0);
		break;
	default:
		unlink(victim->path);
	}
}

/* Every open of the damaged file gives the error, the other files are whole, and the damaged file
 * stays unchanged on the disk. */
static void expect_damage(unsigned number)
{
	mount_up();
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(number)), -EIO);
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(number)), -EIO);
	ck_assert_uint_ge(spool_counters(&fixture).damaged, 1);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(i == number || is_whole(i));
	mount_down();
}

static void expect_untouched(const struct victim *victim, enum fault fault)
{
	struct victim now = *victim;

	if (fault == MISSING || fault == A_LINK || fault == A_DIRECTORY)
		return;
	victim_read(&now);
	ck_assert(now.length != victim->length ||
		  memcmp(now.bytes, victim->bytes, now.length) != 0);
	free(now.bytes);
}

START_TEST(a_hundred_faults)
{
	uint64_t ids[FILES], state = unit_seed() + 1;

	log_setup(LOG_LEVEL_ERROR, LOG_TO_SYSLOG); /* hundreds of lines */
	for (unsigned i = 0; i < FILES; i++)
		ids[i] = id_of(i);
	for (unsigned n = 0; n < 100; n++) {
		unsigned number = n % FILES;
		uint64_t random = unit_random(&state);
		/* The data of an empty file can only be missing, or be of another file type. */
		bool data = n / FILES % 2 && sizes[number];
		enum fault fault = n / (2 * FILES) % FAULTS;
		struct victim victim;

		if (data && fault == VERSION)
			fault = FLIPPED;
		snprintf(victim.path, sizeof(victim.path), "%s/.spool/%s/%" PRIu64, spool_at,
			 data ? "data" : "records", ids[number]);
		victim_read(&victim);
		inject(&victim, fault, random);
		expect_damage(number);
		expect_untouched(&victim, fault);
		victim_write(&victim, victim.bytes, victim.length);
		free(victim.bytes);
	}
	mount_up();
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(is_whole(i));
	mount_crash();
}
END_TEST

START_TEST(a_damaged_directory)
{
	struct victim victim;

	mount_up();
	snprintf(victim.path, sizeof(victim.path), "%s/.spool/records/%" PRIu64, spool_at,
		 atomic_load(&inode_spool_file(at(gpu(0), "dir"))->id));
	mount_crash();
	unlink(victim.path);
	mount_up();
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(is_whole(i));
	remount();
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(is_whole(i));
	mount_crash();
}
END_TEST

START_TEST(a_damaged_file_is_removed)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/gpu0/dir/file0", spool_at);
	ck_assert_int_eq(truncate(path, 5), 0);
	mount_up();
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(0)), -EIO);
	ck_assert_int_eq(tree_unlink(&fixture, at(gpu(0), "dir"), "file0"), 0);
	mount_down();
	ck_assert_int_ne(access(path, F_OK), 0);
	mount_up();
	ck_assert(!is_there(at(gpu(0), "dir"), "file0"));
	ck_assert_uint_eq(spool_counters(&fixture).damaged, 0);
	mount_crash();
}
END_TEST

static void data_path(struct inode *file, char path[160])
{
	snprintf(path, 160, "%s/.spool/data/%" PRIu64, spool_at,
		 atomic_load(&inode_spool_file(file)->id));
}

/* The blocks before the damaged block were read back: their memory is freed again. */
START_TEST(a_damaged_file_uses_no_memory)
{
	char path[160];

	mount_up();
	data_path(file_at(0), path);
	uint64_t before = pool_usage(fixture.volumes[0].pool).span_bytes;
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_int_eq(pwrite(fd, "damage", 6, BYTES - 6), 6);
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(0)), -EIO);
	ck_assert_uint_eq(pool_usage(fixture.volumes[0].pool).span_bytes, before);
	ck_assert_uint_eq(file_size(file_at(0)->file), BYTES);
	mount_crash();
}
END_TEST

/* The log promises that the damaged copy stays unchanged: record and data. */
START_TEST(a_damaged_copy_stays_unchanged)
{
	struct stat before, after;
	char data[160], record[160];

	mount_up();
	data_path(file_at(0), data);
	snprintf(record, sizeof(record), "%s/.spool/records/%" PRIu64, spool_at,
		 atomic_load(&inode_spool_file(file_at(0))->id));
	ck_assert_int_eq(truncate(data, 5), 0);
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(0)), -EIO);
	ck_assert_int_eq(stat(record, &before), 0);
	tree_set_attrs(&fixture, file_at(0), &(struct tree_attrs){.mask = TREE_MODE, .mode = 0751});
	ck_assert_int_eq(spool_save(&fixture, file_at(0)), 0);
	mount_down();
	ck_assert_int_eq(stat(record, &after), 0);
	ck_assert_uint_eq(after.st_ino, before.st_ino);
	ck_assert_int_eq(stat(data, &after), 0);
	ck_assert_int_eq(after.st_size, 5);
}
END_TEST

/* A daemon was killed before it had written a record: the next mount removes the unfinished file.
 */
START_TEST(unfinished_records_are_removed)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/.spool/records/4711.tmp", spool_at);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	mount_up();
	ck_assert_int_ne(access(path, F_OK), 0);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(is_whole(i));
	mount_crash();
}
END_TEST

/* --- a daemon that is killed at each step of a save */

static unsigned steps, last_step;

static void count_step(void *of)
{
	(void)of;
	if (++steps == last_step)
		_exit(0);
}

/* Saves in another process, which is killed at a step. Returns false if the save ended before the
 * step. */
static bool killed_at(unsigned step, void (*change)(unsigned step))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		mount_up();
		change(step);
		last_step = step;
		steps = 0;
		spool_of(&fixture)->fault = count_step;
		mount_down();
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status) == 0;
}

/* Each change gives the file a content that the file never had before. */
static void change_one_block(unsigned step)
{
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(0)), 0);
	put_bytes(file_at(0), &step, sizeof(step), SPOOL_BLOCK);
}

static void change_all(unsigned step)
{
	for (unsigned i = 0; i <= BYTES / SPOOL_BLOCK; i++)
		memcpy(pattern[0] + i * SPOOL_BLOCK, &step, sizeof(step));
	ck_assert_int_eq(inode_require_bytes(&fixture, file_at(0)), 0);
	put_bytes(file_at(0), pattern[0], BYTES, 0);
}

static void change_length(unsigned step)
{
	struct inode *file = file_at(0);
	struct inode_call call;
	uint64_t size = step % 2 ? SPOOL_BLOCK - step : 2 * SPOOL_BLOCK + step, before;

	ck_assert_int_eq(inode_require_bytes(&fixture, file), 0);
	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	before = file_size(file->file);
	ck_assert_int_eq(file_truncate(file->file, &call.call, size), 0);
	spool_mark_dirty(file, before < size ? before : size, 2 * SPOOL_BLOCK);
}

static void change_name(unsigned step)
{
	struct inode *dir = at(gpu(0), "dir");

	(void)step;
	if (is_there(dir, "file0"))
		ck_assert_int_eq(rename_to(dir, "file0", gpu(0), "new", 0), 0);
	else
		ck_assert_int_eq(rename_to(gpu(0), "new", dir, "file0", 0), 0);
}

static void replace_by_new(unsigned step)
{
	ck_assert_int_eq(make_file(gpu(0), "beside"), 0);
	put_bytes(at(gpu(0), "beside"), pattern[0], 10 + step, 0);
	ck_assert_int_eq(rename_to(gpu(0), "beside", at(gpu(0), "dir"), "file0", 0), 0);
}

/* The second replacement comes before the follow of the first replacement. */
static void replace_twice(unsigned step)
{
	ck_assert_int_eq(make_file(gpu(0), "first"), 0);
	put_bytes(at(gpu(0), "first"), pattern[0], 5, 0);
	ck_assert_int_eq(rename_to(gpu(0), "first", at(gpu(0), "dir"), "file0", 0), 0);
	replace_by_new(step);
}

static uint64_t hash_now(struct inode *file)
{
	size_t size = file_size(file->file);

	ck_assert_uint_le(size, BYTES);
	memset(seen, 0, sizeof(seen));
	ck_assert_int_eq(get_bytes(file, seen, size, 0), (ssize_t)size);
	uint64_t hash = size;

	for (size_t i = 0; i < size; i++)
		hash = hash * 31 + (unsigned char)seen[i];
	return hash;
}

/* Returns a hash of the file's place and content, which must be one of two states. */
static uint64_t state_now(void)
{
	struct inode *dir = at(gpu(0), "dir");
	bool moved = is_there(gpu(0), "new");
	uint64_t hash = hash_now(moved ? at(gpu(0), "new") : at(dir, "file0"));

	ck_assert(!moved || !is_there(dir, "file0"));
	return hash ^ moved;
}

static uint64_t state_after(void (*change)(unsigned step), unsigned step)
{
	mount_up();
	if (change)
		change(step);
	uint64_t state = state_now();

	mount_crash();
	return state;
}

static void expect_old_or_new(void (*change)(unsigned step))
{
	unsigned step = 1, olds = 0;

	for (bool killed = true; killed; step++) {
		uint64_t old = state_after(NULL, step), new = state_after(change, step);

		ck_assert(old != new);
		killed = killed_at(step, change);
		mount_up();
		uint64_t now = state_now();

		ck_assert(killed ? now == old || now == new : now == new);
		olds += now == old;
		ck_assert_uint_eq(spool_counters(&fixture).damaged, 0);
		for (unsigned i = 1; i < FILES; i++)
			ck_assert(is_whole(i));
		mount_crash();
	}
	ck_assert_uint_ge(olds, 1);
	ck_assert_uint_ge(step, olds + 2);
}

START_TEST(killed_while_saving_a_block)
{
	expect_old_or_new(change_one_block);
}
END_TEST

START_TEST(killed_while_saving_all)
{
	expect_old_or_new(change_all);
}
END_TEST

START_TEST(killed_while_saving_less)
{
	expect_old_or_new(change_length);
}
END_TEST

START_TEST(killed_while_following_a_name)
{
	expect_old_or_new(change_name);
}
END_TEST

START_TEST(killed_while_replacing)
{
	expect_old_or_new(replace_by_new);
}
END_TEST

START_TEST(killed_while_replacing_twice)
{
	expect_old_or_new(replace_twice);
}
END_TEST

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool_faults", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, a_hundred_faults);
	tcase_add_test(tcase, a_damaged_directory);
	tcase_add_test(tcase, a_damaged_file_is_removed);
	tcase_add_test(tcase, a_damaged_file_uses_no_memory);
	tcase_add_test(tcase, a_damaged_copy_stays_unchanged);
	tcase_add_test(tcase, unfinished_records_are_removed);
	tcase_add_test(tcase, killed_while_saving_a_block);
	tcase_add_test(tcase, killed_while_saving_all);
	tcase_add_test(tcase, killed_while_saving_less);
	tcase_add_test(tcase, killed_while_following_a_name);
	tcase_add_test(tcase, killed_while_replacing);
	tcase_add_test(tcase, killed_while_replacing_twice);
	return all;
}

int main(void)
{
	return unit_main(suite());
}
