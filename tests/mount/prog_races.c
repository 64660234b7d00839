/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: standin asan-host tsan */
/* long: races take their time
 * needs: daemon
 * timeout: 240
 * Many processes create and remove a small number of names, handles and memory in all ways. The
 * results depend on races. The test checks that POSIX allows every result, that the daemon survives
 * and that all memory is freed. GPUMEM_RACES_SECONDS makes the test longer. */
#include "tests/mount/prog.h"

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>

#ifndef RENAME_EXCHANGE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE	 2
#endif

#define PROCESSES 6
#define NAMES	  6
#define DIRS	  3

static const char *volumes[3]; /* directory of this test in each volume */
static char host_directory[PATH_MAX];

static long seconds_to_run(void)
{
	const char *text = getenv("GPUMEM_RACES_SECONDS");

	return text ? strtol(text, NULL, 10) : 5;
}

static void name_at(uint64_t random, char path[PATH_MAX])
{
	const char *volume = volumes[random % 3];
	unsigned name = (unsigned)(random >> 8) % NAMES, dir = (unsigned)(random >> 16) % DIRS;

	if (dir == 0)
		snprintf(path, PATH_MAX, "%s/n%u", volume, name);
	else
		snprintf(path, PATH_MAX, "%s/d%u/n%u", volume, dir, name);
}

static void dir_at(uint64_t random, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/d%u", volumes[random % 3],
		 1 + (unsigned)(random >> 8) % (DIRS - 1));
}

/* The possible results of a race for a name; any other result is a fault of the daemon. */
static void expect(const char *what, long result)
{
	static const int allowed[] = {ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR, EXDEV,
				      EBUSY,  EINVAL, ENOSPC,	 ENXIO,	 EPERM,	  ENODATA,
				      ELOOP,  EMLINK, ESTALE,	 EFBIG,	 EACCES};

	if (result >= 0)
		return;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (errno == allowed[i])
			return;
	FAIL("%s: %s", what, strerror(errno));
}

/* Maps without touching the memory: POSIX sends SIGBUS for a page that a truncation removed. */
static void map_and_let_go(int fd)
{
	void *address = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	expect("mmap", address == MAP_FAILED ? -1 : 0);
	if (address != MAP_FAILED)
		munmap(address, 65536);
}

static void use(int fd, uint64_t random)
{
	static char bytes[100000];

	switch (random % 9) {
	case 0:
		expect("pwrite", pwrite(fd, bytes, sizeof(bytes), (off_t)(random >> 8) % 300000));
		break;
	case 1:
		expect("pread", pread(fd, bytes, sizeof(bytes), (off_t)(random >> 8) % 300000));
		break;
	case 2:
		expect("ftruncate", ftruncate(fd, (off_t)(random >> 8) % 3000000));
		break;
	case 3:
		expect("fallocate", fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
					      (off_t)(random >> 8) % 300000, 100000));
		break;
	case 4:
		expect("fallocate", fallocate(fd, 0, (off_t)(random >> 8) % 300000, 100000));
		break;
	case 5:
		map_and_let_go(fd);
		break;
	case 6:
		expect("lseek", lseek(fd, (off_t)(random >> 8) % 300000, SEEK_DATA));
		break;
	case 7:
		expect("fchmod", fchmod(fd, 0600 | (random >> 8 & 077)));
		break;
	default:
		expect("fsync", fsync(fd));
	}
}

static void open_and_use(const char *path, uint64_t *random)
{
	static const int flags[] = {O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_TRUNC,
				    O_RDWR | O_CREAT | O_EXCL};
	int fd = open(path, flags[random_next(random) % 4] | O_CLOEXEC, 0644);

	expect(path, fd);
	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		use(fd, random_next(random));
	close(fd);
}

static void unnamed_file(const char *dir, const char *path, uint64_t *random)
{
	int fd = open(dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	char self[64];

	expect("O_TMPFILE", fd);
	if (fd < 0)
		return;
	use(fd, random_next(random));
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	expect("linkat", linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
	use(fd, random_next(random));
	close(fd);
}

static void look(const char *path, const char *dir)
{
	char value[65536];
	struct statvfs fs;
	struct stat st;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	expect("stat", stat(path, &st));
	expect("statvfs", statvfs(dir, &fs));
	expect("getxattr", getxattr(path, "user.gpumem.extents", value, sizeof(value)));
	expect("listxattr", listxattr(path, value, sizeof(value)));
	if (fd >= 0) {
		char mappings[PATH_MAX];

		snprintf(mappings, sizeof(mappings), "%s/.gpumem/mappings", getenv("MNT"));
		int control = open(mappings, O_RDONLY | O_CLOEXEC);

		expect("open mappings", control);
		expect("read mappings", read(control, value, sizeof(value)));
		close(control);
		close(fd);
	}
}

static void set_attribute(const char *path, uint64_t random)
{
	static const char *const sizes[] = {"auto", "4K", "64K", "2M"};
	const char *size = sizes[random % 4];

	if (random >> 8 & 1)
		expect("setxattr", setxattr(path, "user.gpumem.page_size", size, strlen(size), 0));
	else
		expect("setxattr", setxattr(path, "user.other", size, strlen(size), 0));
}

static void act(uint64_t *random)
{
	static const unsigned flags[] = {0, 0, RENAME_EXCHANGE, RENAME_NOREPLACE};
	char a[PATH_MAX], b[PATH_MAX], dir[PATH_MAX];

	name_at(random_next(random), a);
	name_at(random_next(random), b);
	dir_at(random_next(random), dir);
	switch (random_next(random) % 12) {
	case 0:
	case 1:
	case 2:
		open_and_use(a, random);
		break;
	case 3:
		expect("unlink", unlink(a));
		break;
	case 4:
	case 5:
		expect("rename",
		       renameat2(AT_FDCWD, a, AT_FDCWD, b, flags[random_next(random) % 4]));
		break;
	case 6:
		expect("link", link(a, b));
		break;
	case 7:
		expect("mkdir", mkdir(dir, 0777));
		break;
	case 8:
		expect("rmdir", rmdir(dir));
		break;
	case 9:
		unnamed_file(dir, b, random);
		break;
	case 10:
		look(a, dir);
		break;
	default:
		set_attribute(a, random_next(random));
	}
}

static void racer(int which)
{
	uint64_t random = seed_from_environment(17) + (uint64_t)which * 1000003;
	time_t end = time(NULL) + seconds_to_run();

	while (time(NULL) < end)
		for (int i = 0; i < 50; i++)
			act(&random);
}

static uint64_t held(const char *path)
{
	struct statvfs fs;

	OK(statvfs(path, &fs));
	return (fs.f_blocks - fs.f_bavail) * fs.f_frsize;
}

static long number_of(const char *path, const char *name)
{
	char text[32] = "";

	OK(getxattr(path, name, text, sizeof(text) - 1));
	return strtol(text, NULL, 10);
}

/* Memory of a deleted file is freed when the daemon has got the kernel's forget request. */
static void wait_empty(const char *path, uint64_t before)
{
	AWAIT(held(path) <= before && number_of(path, "user.gpumem.rbytes") == 0 &&
	      number_of(path, "user.gpumem.rfiles") == 0);
	if (!prog_late)
		return;
	FAIL("%s: holds %lu more bytes, sums say %ld bytes in %ld files", path,
	     (unsigned long)(held(path) - before), number_of(path, "user.gpumem.rbytes"),
	     number_of(path, "user.gpumem.rfiles"));
}

static void names_handles_and_memory(void)
{
	char command[3 * PATH_MAX + 64];
	uint64_t before[3];

	snprintf(host_directory, sizeof(host_directory), "%s/races", getenv("HOSTDIR"));
	volumes[0] = "races";
	volumes[1] = strdup(other("races"));
	volumes[2] = host_directory;
	for (int i = 0; i < 3; i++) {
		OK(mkdir(volumes[i], 0777));
		before[i] = held(volumes[i]);
	}
	for (int i = 0; i < PROCESSES; i++)
		spawn(racer, i);
	join_all(PROCESSES);
	snprintf(command, sizeof(command), "rm -rf %s/* %s/* %s/*", volumes[0], volumes[1],
		 volumes[2]);
	OK(system(command));
	for (int i = 0; i < 3; i++) {
		wait_empty(volumes[i], before[i]);
		OK(rmdir(volumes[i]));
	}
}

PROG(TEST(names_handles_and_memory))
