/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/system/sd_notify.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/unit/unit.h"

/* Opens the socket of a service manager under the name. */
static int manager(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	strcpy(address.sun_path, name);
	if (name[0] == '@')
		address.sun_path[0] = 0;
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
			      offsetof(struct sockaddr_un, sun_path) + strlen(name)),
			 0);
	return fd;
}

START_TEST(states_arrive)
{
	char path[64], said[64] = "";

	snprintf(path, sizeof(path), _i ? "@gpumemfs-test-%d" : "/tmp/gpumemfs-test-%d", getpid());
	int fd = manager(path);

	setenv("NOTIFY_SOCKET", path, 1);
	ck_assert_int_eq(notify_send(NOTIFY_READY), 0);
	ck_assert_int_eq(recv(fd, said, sizeof(said) - 1, 0), strlen(NOTIFY_READY));
	ck_assert_str_eq(said, NOTIFY_READY);
	close(fd);
	unlink(path);
}
END_TEST

START_TEST(nobody_asked)
{
	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(notify_send(NOTIFY_READY), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	ck_assert_int_eq(notify_send(NOTIFY_READY), 0);
}
END_TEST

START_TEST(bad_sockets)
{
	char name[200];

	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	ck_assert_int_eq(notify_send(NOTIFY_READY), -EAFNOSUPPORT);
	setenv("NOTIFY_SOCKET", "/nowhere/socket", 1);
	ck_assert_int_eq(notify_send(NOTIFY_READY), -ENOENT);
	memset(name, '/', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	setenv("NOTIFY_SOCKET", name, 1);
	ck_assert_int_eq(notify_send(NOTIFY_READY), -ENAMETOOLONG);
}
END_TEST

START_TEST(watchdog_is_asked_for)
{
	char pid[16];

	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	ck_assert_uint_eq(notify_watchdog_us(), 0);
	setenv("WATCHDOG_USEC", "3000000", 1);
	ck_assert_uint_eq(notify_watchdog_us(), 3000000);
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("WATCHDOG_PID", pid, 1);
	ck_assert_uint_eq(notify_watchdog_us(), 3000000);
	setenv("WATCHDOG_PID", "1", 1); /* meant for the parent of the process */
	ck_assert_uint_eq(notify_watchdog_us(), 0);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "soon", 1);
	ck_assert_uint_eq(notify_watchdog_us(), 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("sd_notify", &tests, 60);

	tcase_add_loop_test(tests, states_arrive, 0, 2);
	tcase_add_test(tests, nobody_asked);
	tcase_add_test(tests, bad_sockets);
	tcase_add_test(tests, watchdog_is_asked_for);
	return unit_main(suite);
}
