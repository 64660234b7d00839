/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static char session[64], own[80];

/* Every test runs in its own process as an ordinary user of its own, with its own $XDG_RUNTIME_DIR.
 */
static void be_ordinary(void)
{
	const uid_t user = 100000 + (uid_t)getpid();

	snprintf(session, sizeof(session), "/tmp/test_runtime_dir.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(session));
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(session, user, user), 0);
		ck_assert_int_eq(setresgid(user, user, user), 0);
		ck_assert_int_eq(setresuid(user, user, user), 0);
	}
	snprintf(own, sizeof(own), "%s/gpumemfs", session);
	setenv("XDG_RUNTIME_DIR", session, 1);
	umask(0);
}

static void leave(void)
{
	rmdir(own);
	ck_assert_int_eq(rmdir(session), 0);
}

static bool exists(const char *name)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", own, name);
	return lstat(path, &st) == 0;
}

START_TEST(places_of_a_user)
{
	char path[RUNTIME_PATH_MAX], wanted[100];
	unsigned uid = geteuid();

	ck_assert(runtime_dir_path(uid, 0, path));
	ck_assert_str_eq(path, own);
	snprintf(wanted, sizeof(wanted), "/run/user/%u/gpumemfs", uid);
	ck_assert(runtime_dir_path(uid, 1, path));
	ck_assert_str_eq(path, wanted);
	ck_assert(!runtime_dir_path(uid, 2, path));
	/* $XDG_RUNTIME_DIR names the directory of no other user, least of all of root. */
	ck_assert(runtime_dir_path(0, 0, path));
	ck_assert_str_eq(path, "/run/gpumemfs");
	ck_assert(runtime_dir_path(4711, 0, path));
	ck_assert_str_eq(path, "/run/user/4711/gpumemfs");
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	ck_assert(runtime_dir_path(uid, 0, path));
	ck_assert_str_ne(path, own);
	leave();
}
END_TEST

static void make_dir(const char *path, mode_t mode)
{
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

/* Without a directory in /run, the name is random; directories that cannot be trusted do no harm.
 */
START_TEST(places_in_tmp)
{
	char known[80], writable[100], link[100], path[RUNTIME_PATH_MAX], text[40];
	char reason[RUNTIME_REASON_MAX], place[RUNTIME_PATH_MAX] = "";
	struct runtime_socket one, two;

	if (geteuid() < 100000) {
		leave(); /* run by an ordinary user, who may have such directories */
		return;
	}
	unsetenv("XDG_RUNTIME_DIR");
	ck_assert(!runtime_dir_path(geteuid(), 1, path));
	snprintf(known, sizeof(known), "/tmp/gpumemfs-%u", geteuid());
	snprintf(writable, sizeof(writable), "%s-open", known);
	snprintf(link, sizeof(link), "%s-link", known);
	make_dir(known, 0777);
	make_dir(writable, 0770);
	ck_assert_int_eq(symlink(session, link), 0);
	ck_assert_int_eq(runtime_socket_open(&one, "keeper", makedev(0, 1), reason), 0);
	snprintf(text, sizeof(text), "/proc/self/fd/%d", one.dir);
	ck_assert_int_gt(readlink(text, place, sizeof(place) - 1), 0);
	ck_assert_uint_eq(strlen(place), strlen(known) + strlen("-XXXXXX"));
	ck_assert_int_eq(strncmp(place, known, strlen(known)), 0);

	/* The next socket, of any process of the user, is in the same directory. */
	ck_assert(runtime_dir_path(geteuid(), 1, path));
	ck_assert_str_eq(path, place);
	ck_assert(!runtime_dir_path(geteuid(), 2, path));
	ck_assert_int_eq(runtime_socket_open(&two, "share", makedev(0, 1), reason), 0);
	int fd = runtime_socket_connect(one.dir, two.name, geteuid());

	ck_assert_int_ge(fd, 0);
	close(fd);
	runtime_socket_close(&one);
	runtime_socket_close(&two);
	ck_assert_int_eq(rmdir(place), 0);
	ck_assert_int_eq(rmdir(known), 0);
	ck_assert_int_eq(rmdir(writable), 0);
	ck_assert_int_eq(unlink(link), 0);
	leave();
}
END_TEST

static void expect_refused(const char *path, int error, const char *why)
{
	char reason[RUNTIME_REASON_MAX];
	int fd = runtime_dir_open(path, geteuid(), reason);

	ck_assert_int_eq(fd, error);
	ck_assert_msg(strstr(reason, path) && strstr(reason, why), "'%s'", reason);
}

START_TEST(directories_that_are_not_trusted)
{
	char link[100], reason[RUNTIME_REASON_MAX];

	expect_refused(own, -ENOENT, "No such file");
	expect_refused("/proc", -EPERM, "belongs to user 0 and not to user");
	ck_assert_int_eq(mkdir(own, 0720), 0);
	expect_refused(own, -EPERM, "may be written by others (mode 0720)");
	ck_assert_int_eq(chmod(own, 0702), 0);
	expect_refused(own, -EPERM, "may be written by others (mode 0702)");
	ck_assert_int_eq(chmod(own, 0755), 0);
	int fd = runtime_dir_open(own, geteuid(), reason);

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(link, sizeof(link), "%s/link", session);
	ck_assert_int_eq(symlink(own, link), 0);
	expect_refused(link, -EPERM, "is no directory");
	unlink(link);
	leave();
}
END_TEST

START_TEST(sockets)
{
	char reason[RUNTIME_REASON_MAX];
	struct runtime_socket one, two, again;
	struct ucred peer;

	ck_assert_int_eq(runtime_socket_open(&one, "keeper", makedev(0, 300), reason), 0);
	ck_assert_str_eq(one.name, "keeper-0:300");
	ck_assert(exists("keeper-0:300"));
	int fd = runtime_socket_connect(one.dir, one.name, geteuid());

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(runtime_peer(fd, &peer), 0);
	ck_assert_uint_eq(peer.uid, geteuid());
	ck_assert_int_eq(peer.pid, getpid());
	ck_assert_int_eq(runtime_peer(STDIN_FILENO, &peer), -ENOTSOCK);
	close(fd);
	int above = open(session, O_PATH | O_CLOEXEC);

	fd = runtime_connect(above, "gpumemfs/keeper-0:300", SOCK_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(fd);
	ck_assert_int_eq(runtime_connect(above, "gpumemfs/none", 0), -ENOENT);
	close(above);
	ck_assert_int_eq(runtime_socket_connect(one.dir, one.name, geteuid() + 1), -EPERM);
	ck_assert_int_eq(runtime_socket_connect(one.dir, "keeper-0:301", geteuid()), -ENOENT);

	/* A socket of another mount stays. A new socket of the same mount replaces the old socket,
	 * and stays when the old owner closes. */
	ck_assert_int_eq(runtime_socket_open(&two, "share", makedev(0, 300), reason), 0);
	ck_assert(exists("keeper-0:300"));
	ck_assert_int_eq(runtime_socket_open(&again, "keeper", makedev(0, 300), reason), 0);
	runtime_socket_close(&one);
	ck_assert_int_eq(one.fd, -1);
	fd = runtime_socket_connect(two.dir, "keeper-0:300", geteuid());
	ck_assert_int_ge(fd, 0);
	close(fd);
	runtime_socket_adopt(&one, again.dir, again.fd, "keeper", makedev(0, 300));
	runtime_socket_close(&one);
	ck_assert(!exists("keeper-0:300"));
	ck_assert(exists("share-0:300"));
	runtime_socket_close(&two);
	ck_assert(!exists("share-0:300"));
	leave();
}
END_TEST

START_TEST(sockets_of_dead_processes_go)
{
	char reason[RUNTIME_REASON_MAX];
	struct runtime_socket one, two;

	ck_assert_int_eq(runtime_socket_open(&one, "keeper", makedev(0, 1), reason), 0);
	/* Closes like the end of a process, which removes no file. */
	close(one.fd);
	ck_assert_int_eq(runtime_socket_connect(one.dir, one.name, geteuid()), -ECONNREFUSED);
	close(one.dir);
	ck_assert_int_eq(runtime_socket_open(&two, "keeper", makedev(7, 2), reason), 0);
	ck_assert(!exists("keeper-0:1"));
	ck_assert(exists("keeper-7:2"));
	runtime_socket_close(&two);
	leave();
}
END_TEST

/* The place is occupied: the socket goes to the next place. */
START_TEST(a_place_that_cannot_be_had)
{
	char path[RUNTIME_PATH_MAX], reason[RUNTIME_REASON_MAX];
	struct runtime_socket made;
	struct stat st;
	int fd = open(own, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	close(fd);
	ck_assert_int_eq(runtime_socket_open(&made, "keeper", makedev(0, 2), reason), 0);
	ck_assert_int_eq(fstat(made.dir, &st), 0);
	ck_assert_uint_eq(st.st_uid, geteuid());
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	runtime_socket_close(&made);
	unlink(own);
	if (runtime_dir_path(geteuid(), 2, path))
		ck_assert_int_eq(rmdir(path), 0);
	leave();
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("runtime_dir", &tests, 60);

	tcase_add_checked_fixture(tests, be_ordinary, NULL);
	tcase_add_test(tests, places_of_a_user);
	tcase_add_test(tests, places_in_tmp);
	tcase_add_test(tests, directories_that_are_not_trusted);
	tcase_add_test(tests, sockets);
	tcase_add_test(tests, sockets_of_dead_processes_go);
	tcase_add_test(tests, a_place_that_cannot_be_had);
	return unit_main(suite);
}
