/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The search of libgpumem for a mount: lines of mountinfo, and files outside of any mount. */
#include "client/core/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/lib/gpumem.h"
#include "common/protocol.h"
#include "common/system/mounts.h"
#include "tests/unit/unit.h"

/* Answers of a mount to GPUMEM_IOC_SOCKET. The library calls this function instead of libc's. */
static bool is_answering;
static unsigned asked, not_yet;

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;

	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (!is_answering || request != GPUMEM_IOC_SOCKET)
		return (int)syscall(SYS_ioctl, fd, request, argument);
	struct gpumem_socket *where = argument;

	*where = (struct gpumem_socket){.where = ++asked <= not_yet ? GPUMEM_SOCKET_NOT_YET
								    : GPUMEM_SOCKET_IN_MOUNT};
	if (asked <= not_yet)
		snprintf(where->text, sizeof(where->text), "the mount has just been made");
	return 0;
}

static const struct {
	const char *line;
	unsigned id, major, minor;
	const char *root, *where;
} good[] = {
    {"36 35 98:0 / /mnt2 rw,noatime master:1 - ext3 /dev/root rw", 36, 98, 0, "/", "/mnt2"},
    {"1 0 0:57 /sub\\040dir /mnt/a\\040b\\011c\\012d\\134e rw - fuse.gpumemfs x rw", 1, 0, 57,
     "/sub dir", "/mnt/a b\tc\nd\\e"},
    {"7 1 0:4294967295 / / rw - x x x", 7, 0, 4294967295U, "/", "/"},
    {"7 1 0:1 /\\0 /\\400\\1 rw", 7, 0, 1, "/\\0", "/\\400\\1"},
    {"7 1 0:1 // /x//deleted rw", 7, 0, 1, "//", "/x//deleted"},
};

START_TEST(lines)
{
	struct mount_line parsed;
	char line[256];

	strcpy(line, good[_i].line);
	ck_assert(mount_line_parse(line, &parsed));
	ck_assert_uint_eq(parsed.id, good[_i].id);
	ck_assert_uint_eq(major(parsed.device), good[_i].major);
	ck_assert_uint_eq(minor(parsed.device), good[_i].minor);
	ck_assert_str_eq(parsed.root, good[_i].root);
	ck_assert_str_eq(parsed.mountpoint, good[_i].where);
}
END_TEST

static const char *const bad[] = {"",
				  "\n",
				  "36",
				  "36 35",
				  "36 35 98:0",
				  "36 35 98:0 /",
				  "36 35 98:0 / /mnt",
				  "36 35 98 / /mnt rw",
				  "36 35 98:x / /mnt rw",
				  "x 35 98:0 / /mnt rw",
				  "36  35 98:0 / /mnt rw",
				  "36 35 :0x / /mnt rw"};

START_TEST(lines_that_are_none)
{
	struct mount_line parsed;
	char line[256];

	strcpy(line, bad[_i]);
	ck_assert_msg(!mount_line_parse(line, &parsed), "'%s' was taken", bad[_i]);
}
END_TEST

START_TEST(files_elsewhere)
{
	struct gpumem_lease_ask ask = {0};
	char path[] = "/tmp/gpumem-client-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	ck_assert_int_eq(client_mount_lease(fd, O_RDONLY, &ask), -ENOTSUP);
	ck_assert_str_eq(client_error_text(), "the file is not on gpumemfs");
	ck_assert_int_eq(client_mount_connect(fd), -ENOTSUP);
	ck_assert_str_eq(client_error_text(), "the file is not on gpumemfs");
	ck_assert_ptr_null(gpumem_open_fd(fd));
	ck_assert_int_eq(errno, ENOTSUP);
	close(fd);
	ck_assert_ptr_null(gpumem_open_fd(fd));
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(new_mounts)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	is_answering = true;
	not_yet = 3;
	ck_assert_int_eq(client_mount_check(fd), 0);
	ck_assert_uint_eq(asked, 4);
	not_yet = UINT_MAX;
	ck_assert_int_eq(client_mount_check(fd), -ENOTSUP);
	ck_assert_str_eq(client_error_text(), "the daemon of this mount shares no files: "
					      "the mount has just been made");
	is_answering = false;
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_mount", &tcase, 60);

	tcase_add_loop_test(tcase, lines, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_loop_test(tcase, lines_that_are_none, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tcase, files_elsewhere);
	tcase_add_test(tcase, new_mounts);
	return unit_main(suite);
}
