/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Listing directories: complete, without doubles, while entries come and go, with seekdir. */
#include "tests/mount/prog.h"

#include <dirent.h>

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

/* Notes an entry; a second sight of the same one is a failure. */
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

/* Removing what was just read, as rm -r does, loses and repeats nothing. */
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

/* What is there from opendir to the end is listed once, whatever happens to others. */
static void changing_while_reading(void)
{
	int step = 0;

	make_many();
	DIR *dir = opendir(".");
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir)); step++) {
		char name[32];

		see(entry);
		if (step % 3 == 0 && step < MANY / 2) /* odd ones go, others come and are renamed */
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

PROG(TEST(lists_everything_once), TEST(removing_while_reading), TEST(changing_while_reading),
     TEST(seeking_comes_back), TEST(types_and_inodes_are_right),
     TEST(new_entries_show_after_rewind))
