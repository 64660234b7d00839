/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host tsan */
/* needs: daemon
 * The files of .gpumem/ under calls that ordinary tools make on any tree. */
#include "tests/mount/prog.h"

#include <dirent.h>
#include <sys/xattr.h>

static const char *control(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.gpumem/%s", getenv("MNT"), name);
	return path;
}

/* A file of .gpumem/ has no birth time. A request for the birth time must not stop the kernel from
 * asking for the birth times of other files. */
static void birth_is_known_after_control_was_asked(void)
{
	struct statx st;

	OK(statx(AT_FDCWD, control("version"), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME,
		 &st));
	OK(close(new_file("file")));
	OK(statx(AT_FDCWD, "file", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &st));
	CHECK(st.stx_mask & STATX_BTIME);
	CHECK(st.stx_btime.tv_sec > 0);
}

static void has_no_attributes(void)
{
	char names[256];

	EQUAL(listxattr(control("version"), names, sizeof(names)), 0);
	EQUAL(listxattr(control(""), names, sizeof(names)), 0);
	EQUAL(listxattr(control("version"), NULL, 0), 0);
}

static void has_neither_data_nor_holes(void)
{
	int fd = OK(open(control("version"), O_RDONLY));

	FAILS(ENXIO, lseek(fd, 0, SEEK_DATA));
	FAILS(ENXIO, lseek(fd, 0, SEEK_HOLE));
}

static void dots_lead_where_they_should(void)
{
	DIR *dir = opendir(control(""));
	struct dirent *entry;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			EQUAL(entry->d_type, DT_DIR);
		if (strcmp(entry->d_name, "..") == 0)
			EQUAL(entry->d_ino, stat_of(getenv("MNT")).st_ino);
		if (strcmp(entry->d_name, ".") == 0)
			EQUAL(entry->d_ino, stat_of(control("")).st_ino);
	}
	closedir(dir);
}

/* Also for a superuser: the kernel lets a superuser open any file. */
static void read_only_files_are_not_opened_for_writing(void)
{
	FAILS(EACCES, open(control("version"), O_WRONLY));
	FAILS(EACCES, open(control("stats.json"), O_RDWR));
	OK(close(OK(open(control("params"), O_WRONLY))));
}

PROG(TEST(birth_is_known_after_control_was_asked), TEST(has_no_attributes),
     TEST(has_neither_data_nor_holes), TEST(dots_lead_where_they_should),
     TEST(read_only_files_are_not_opened_for_writing))
