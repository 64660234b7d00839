/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host tsan */
/* Directory listings: complete and without duplicates, while entries appear and disappear, with
 * seekdir. */
#include "tests/mount/prog.h"

#include <dirent.h>
#include <sys/syscall.h>

#define MANY 5000

static char seen[MANY];

static const char *name_of(int i)
{
	static char name[32];

	sprintf(name, "entry-%05d", i);
	return name;
}

static void make_many(void)
{
	for (int i = 0; i < MANY; i++)
		OK(mknod(name_of(i), S_IFREG | 0644, 0));
}

static int number_of(const char *name)
{
	int i;

	return sscanf(name, "entry-%d", &i) == 1 && i < MANY ? i : -1;
}

/* Notes an entry; a second sight of the same entry is a failure. */
static void see(const struct dirent *entry)
{
	int i = number_of(entry->d_name);

	if (i >= 0 && seen[i]++)
		FAIL("%s was listed twice", entry->d_name);
}

static void lists_everything_once(void)
{
	int dots = 0;

	make_many();
	DIR *dir = opendir(".");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		see(entry);
		dots += entry->d_name[0] == '.';
	}
	EQUAL(dots, 2);
	for (int i = 0; i < MANY; i++)
		EQUAL(seen[i], 1);
	rewinddir(dir);
	CHECK(readdir(dir));
	closedir(dir);
}

/* Removing each read entry, as rm -r does, neither skips nor repeats an entry. */
static void removing_while_reading(void)
{
	make_many();
	DIR *dir = opendir(".");
	int removed = 0;

	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		see(entry);
		if (number_of(entry->d_name) >= 0)
			removed += unlink(entry->d_name) == 0;
	}
	EQUAL(removed, MANY);
	closedir(dir);
	OK(rmdir("../prog_readdir.removing_while_reading"));
}

/* Entries that exist from opendir to the end are listed once, while other entries change. */
static void changing_while_reading(void)
{
	int step = 0;

	make_many();
	DIR *dir = opendir(".");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir)); step++) {
		char name[32];

		see(entry);
		if (step % 3 == 0 && step < MANY / 2) /* odd entries go, new entries come */
			unlink(name_of((step * 7 % MANY) | 1));
		sprintf(name, "new-%d", step);
		if (step % 5 == 0)
			OK(mknod(name, S_IFREG | 0644, 0));
		if (step % 10 == 5) {
			sprintf(name, "new-%d", step - 5);
			OK(rename(name, "renamed"));
		}
	}
	for (int i = 0; i < MANY; i += 2)
		if (seen[i] != 1)
			FAIL("%s was listed %d times", name_of(i), seen[i]);
	closedir(dir);
}

static void seeking_comes_back(void)
{
	static long where[200];
	static char names[200][32];
	DIR *dir;

	for (int i = 0; i < 200; i++)
		OK(mkdir(name_of(i), 0755));
	dir = opendir(".");
	CHECK(dir);
	for (int i = 0; i < 200; i++) {
		where[i] = telldir(dir);
		struct dirent *entry = readdir(dir);
		CHECK(entry);
		strcpy(names[i], entry->d_name);
	}
	for (int k = 0; k < 200; k++) {
		int i = k * 77 % 200;

		seekdir(dir, where[i]);
		struct dirent *entry = readdir(dir);
		CHECK(entry);
		if (strcmp(entry->d_name, names[i]))
			FAIL("position %d is %s, was %s", i, entry->d_name, names[i]);
	}
	closedir(dir);
}

static void types_and_inodes_are_right(void)
{
	put("file", "");
	OK(mkdir("dir", 0755));
	OK(symlink("x", "link"));
	OK(mkfifo("fifo", 0644));
	OK(mknod("device", S_IFCHR | 0644, 0)); /* the device node that every user may make */
	DIR *dir = opendir(".");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		struct stat st = stat_of(entry->d_name);

		if (entry->d_name[0] != '.')
			EQUAL(entry->d_ino, st.st_ino);
		if (entry->d_type != DT_UNKNOWN)
			EQUAL(entry->d_type, IFTODT(st.st_mode));
	}
	closedir(dir);
}

static void new_entries_show_after_rewind(void)
{
	DIR *dir = opendir(".");
	bool found = false;

	CHECK(dir);
	while (readdir(dir))
		;
	put("late", "");
	rewinddir(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		found |= !strcmp(entry->d_name, "late");
	CHECK(found);
	closedir(dir);
}

/* Renames each entry of a listing: every entry is listed exactly once. */
static void renaming_what_is_listed(void)
{
	int renamed = 0;

	make_many();
	DIR *dir = opendir(".");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		char name[64];

		if (entry->d_name[0] == '.')
			continue;
		if (number_of(entry->d_name) < 0)
			FAIL("%s came after the listing began", entry->d_name);
		sprintf(name, "other-%05d", number_of(entry->d_name));
		OK(rename(entry->d_name, name));
		renamed++;
	}
	EQUAL(renamed, MANY);
	closedir(dir);
}

/* The entries of a single getdents call; a small buffer makes a request to the daemon of each call.
 */
struct batch {
	char bytes[512];
	long used, at;
};

static const struct dirent64 *batch_next(int fd, struct batch *batch)
{
	if (batch->at == batch->used) {
		batch->used = OK(syscall(SYS_getdents64, fd, batch->bytes, sizeof(batch->bytes)));
		batch->at = 0;
	}
	if (batch->at == batch->used)
		return NULL;
	const struct dirent64 *entry = (const void *)(batch->bytes + batch->at);

	batch->at += entry->d_reclen;
	return entry;
}

/* The same with each entry made anew, in small steps, from the offset of the last step, with other
 * listings of the directory in between. */
static void recreating_what_is_listed(void)
{
	enum { FEW = 300 };
	int fd = OK(open(".", O_RDONLY | O_DIRECTORY)), made = 0;
	struct batch batch = {0};
	int64_t offset = 0;

	for (int i = 0; i < FEW; i++)
		put(name_of(i), "");
	for (const struct dirent64 *entry; (entry = batch_next(fd, &batch));) {
		char name[64];

		offset = entry->d_off;
		if (entry->d_name[0] == '.')
			continue;
		see((const struct dirent *)entry);
		if (number_of(entry->d_name) < 0)
			FAIL("%s came after the listing began", entry->d_name);
		OK(unlink(entry->d_name));
		sprintf(name, "made-%d", made++);
		put(name, "");
		if (made % 7 == 0) {
			DIR *all = opendir(".");
			int n = 0;

			CHECK(all);
			while (readdir(all))
				n++;
			closedir(all);
			EQUAL(n, FEW + 2);
			batch.at = batch.used = 0;
			EQUAL(OK(lseek(fd, offset, SEEK_SET)), offset);
		}
	}
	EQUAL(made, FEW);
	OK(close(fd));
}

/* rewinddir begins with the entries at its time; a position leads to the same entry as before. */
static void renaming_and_rewinding(void)
{
	enum { FEW = 100 };
	DIR *dir = opendir(".");
	char name[64];
	int round;

	CHECK(dir);
	for (int i = 0; i < FEW; i++)
		put(name_of(i), "");
	for (round = 0; round < 3; round++) {
		struct dirent *entry;
		int renamed = 0;

		rewinddir(dir);
		while ((entry = readdir(dir))) {
			int number, told;

			if (entry->d_name[0] == '.')
				continue;
			/* Only names of the last round: a name given in this round appeared after
			 * rewinddir. */
			if (round)
				EQUAL(sscanf(entry->d_name, "round%d-%d", &told, &number), 2);
			else
				told = 0, number = number_of(entry->d_name);
			EQUAL(told, round);
			sprintf(name, "round%d-%d", round + 1, number);
			OK(rename(entry->d_name, name));
			renamed++;
			if (renamed % 10 == 0)
				seekdir(dir, telldir(dir));
		}
		EQUAL(renamed, FEW);
	}
	closedir(dir);
}

enum { NAMES = 200, LISTINGS = 30 };

static bool there[NAMES], at_start[NAMES], stayed[NAMES];

static void change_at_random(uint64_t *state)
{
	int one = (int)(random_next(state) % NAMES), two = (int)(random_next(state) % NAMES);
	char from[32];

	if (!there[one]) {
		put(name_of(one), "");
		there[one] = true;
	} else if (!there[two]) {
		strcpy(from, name_of(one));
		OK(rename(from, name_of(two)));
		there[one] = false;
		there[two] = true;
	} else {
		OK(unlink(name_of(one)));
		there[one] = false;
	}
	stayed[one] = stayed[one] && there[one];
}

/* Random changes during listings: entries that stay are listed once, no name twice, and no entry
 * made after the listing began. */
static void against_a_model(void)
{
	uint64_t state = seed_from_environment(20261205);

	for (int listing = 0; listing < LISTINGS; listing++) {
		int fd = OK(open(".", O_RDONLY | O_DIRECTORY));
		struct batch batch = {0};

		memset(seen, 0, sizeof(seen));
		memcpy(at_start, there, sizeof(there));
		memcpy(stayed, there, sizeof(there));
		for (const struct dirent64 *entry; (entry = batch_next(fd, &batch));) {
			int i = number_of(entry->d_name);

			see((const struct dirent *)entry);
			if (i >= 0 && !at_start[i])
				FAIL("%s came after the listing began", entry->d_name);
			for (unsigned changes = random_next(&state) % 4; changes; changes--)
				change_at_random(&state);
		}
		for (int i = 0; i < NAMES; i++)
			if (stayed[i])
				EQUAL(seen[i], 1);
		OK(close(fd));
	}
}

PROG(TEST(lists_everything_once), TEST(removing_while_reading), TEST(changing_while_reading),
     TEST(seeking_comes_back), TEST(types_and_inodes_are_right),
     TEST(new_entries_show_after_rewind), TEST(renaming_what_is_listed),
     TEST(recreating_what_is_listed), TEST(renaming_and_rewinding), TEST(against_a_model))
