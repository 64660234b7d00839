/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin cuda
 * mount: recovery=transparent
 * needs: daemon
 * gpumem_share: files of memory that a process has allocated itself. */
#include "tests/mount/kills.h"

#include "tests/mount/client_gpu.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>

#define PIECES	   2
#define ALLOCATION (4 * MIB)
#define BEFORE	   (1 * MIB + 512)
#define SIZE	   (5 * MIB + 7)

/* The memory of this process, filled with a pattern. */
static struct own_memory {
	unsigned char *bytes;	/* of a simulated GPU */
	gm_CUdeviceptr address; /* of a GPU */
	int fds[PIECES];
} own;

typedef gm_CUresult create_function(gm_CUmemGenericAllocationHandle *, size_t,
				    const gm_CUmemAllocationProp *, unsigned long long);

static void memory_make_on_gpu(void)
{
	gm_CUmemAllocationProp prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
				       .requestedHandleTypes =
					   GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				       .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE}};
	gm_CUmemAccessDesc access = {.location = prop.location,
				     .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	gm_CUmemGenericAllocationHandle handle;

	use_gpu();
	create_function *create = (create_function *)dlsym(RTLD_DEFAULT, "cuMemCreate");

	if (!create)
		create = (create_function *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemCreate");
	MUST(cuMemAddressReserve(&own.address, PIECES * ALLOCATION, 0, 0, 0));
	for (unsigned i = 0; i < PIECES; i++) {
		EQUAL(create(&handle, ALLOCATION, &prop, 0), 0);
		MUST(cuMemMap(own.address + i * ALLOCATION, ALLOCATION, 0, handle, 0));
		MUST(cuMemRelease(handle));
	}
	MUST(cuMemSetAccess(own.address, PIECES * ALLOCATION, &access, 1));
	unsigned char *pattern = malloc(PIECES * ALLOCATION);

	pattern_fill(pattern, PIECES * ALLOCATION, 1, 0);
	MUST(cuMemcpyHtoD(own.address, pattern, PIECES * ALLOCATION));
	free(pattern);
}

static int memfd_new(size_t bytes, int seals)
{
	int fd = OK(memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	OK(ftruncate(fd, (off_t)bytes));
	if (seals)
		OK(fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void memory_make(void)
{
	if (on_gpu()) {
		memory_make_on_gpu();
		return;
	}
	own.bytes = mmap(NULL, PIECES * ALLOCATION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < PIECES; i++) {
		own.fds[i] = memfd_new(ALLOCATION, F_SEAL_SHRINK);
		CHECK(mmap(own.bytes + i * ALLOCATION, ALLOCATION, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED, own.fds[i], 0) != MAP_FAILED);
	}
	pattern_fill(own.bytes, PIECES * ALLOCATION, 1, 0);
}

static void memory_read(void *to, size_t at, size_t bytes)
{
	if (on_gpu())
		MUST(cuMemcpyDtoH(to, own.address + at, bytes));
	else
		memcpy(to, own.bytes + at, bytes);
}

static gpumem *try_share(const char *path, size_t skip, size_t bytes, int flags)
{
	static const size_t sizes[PIECES] = {ALLOCATION, ALLOCATION};

	return on_gpu() ? gpumem_share(path, own.address + skip, bytes, 0640, flags)
			: gpumem_share_fds(path, own.fds, sizes, PIECES, skip, bytes, 0640, flags);
}

static gpumem *shared(const char *path, int flags)
{
	gpumem *file = try_share(path, BEFORE, SIZE, flags);

	if (!file)
		FAIL("gpumem_share: %s: %s", strerror(errno), gpumem_error());
	return file;
}

static void consume(int unused)
{
	gpumem *file = lease("shared", O_RDWR);
	unsigned char first[1000];

	(void)unused;
	EQUAL(info_of(file).size, SIZE);
	if (on_gpu()) {
		use_gpu();
		gm_CUdeviceptr at = device_pointer(file, SIZE);

		expect_device(at - BEFORE, 1, BEFORE, BEFORE + SIZE);
		MUST(cuMemsetD8(at + 3, 99, 1));
		MUST(cuCtxSynchronize());
	} else {
		unsigned char *at = host_pointer(file, SIZE);

		memcpy(first, at, sizeof(first));
		for (size_t i = 0; i < sizeof(first); i++)
			EQUAL(first[i], pattern_at(1, BEFORE + i));
		at[3] = 99;
	}
	GOOD(gpumem_close(file));
}

static void another_process_maps_it(void)
{
	unsigned char byte;

	/* Before this process uses CUDA, which does not survive a fork. */
	int turn[2];

	OK(pipe(turn));
	pid_t pid = OK(fork());

	if (pid == 0) {
		OK(read(turn[0], &byte, 1));
		consume(0);
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	memory_make();
	gpumem *file = shared("shared", 0);

	OK(write(turn[1], "", 1));
	int status;

	OK(waitpid(pid, &status, 0));
	EQUAL(status, 0);
	memory_read(&byte, BEFORE + 3, 1);
	EQUAL(byte, 99);
	GOOD(gpumem_close(file));
}

static void read_written_and_copied(void)
{
	char byte, *data = malloc(SIZE);

	memory_make();
	gpumem *file = shared("shared", 0);
	int fd = OK(open("shared", O_RDWR)), copy = new_file("copy");

	EQUAL(size_of(fd), SIZE);
	EQUAL(stat_of("shared").st_mode & 07777, 0640);
	read_all(fd, data, SIZE, 0);
	for (size_t i = 0; i < SIZE; i++)
		if ((unsigned char)data[i] != pattern_at(1, BEFORE + i))
			FAIL("byte %zu", i);
	write_all(fd, "stored", 6, 3 * MIB);
	char seen[6];

	memory_read(seen, BEFORE + 3 * MIB, 6);
	EQUAL(memcmp(seen, "stored", 6), 0);
	EQUAL(copy_file_range(fd, NULL, copy, NULL, SIZE, 0), SIZE);
	read_all(copy, &byte, 1, 3 * MIB);
	EQUAL(byte, 's');
	free(data);
	GOOD(gpumem_close(file));
}

static void what_stays_as_it_is(void)
{
	memory_make();
	gpumem *file = shared("shared", 0);
	int fd = OK(open("shared", O_RDWR));

	CHECK(ftruncate(fd, 0) < 0);
	FAILS(EPERM, ftruncate(fd, SIZE + 1));
	FAILS(EBUSY, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	FAILS(EFBIG, pwrite(fd, "x", 1, SIZE));
	EQUAL(pwrite(fd, "xyz", 3, SIZE - 1), 1);
	FAILS(ENOTSUP, gpumem_park(file));
	EQUAL(size_of(fd), SIZE);
	GOOD(gpumem_close(file));
}

/* The bytes that files of the volume have. */
static uint64_t used(void)
{
	struct statvfs st;

	OK(statvfs(".", &st));
	return (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize;
}

/* Ends the producer when written to. */
static int stop_fd;

/* A process that shares its memory and waits. */
static pid_t producer_start(void)
{
	int ready[2], stop[2];
	char byte;

	OK(pipe(ready));
	OK(pipe(stop));
	pid_t pid = OK(fork());

	if (pid == 0) {
		memory_make();
		shared("shared", 0);
		OK(write(ready[1], "", 1));
		OK(read(stop[0], &byte, 1));
		raise(SIGKILL);
	}
	OK(read(ready[0], &byte, 1));
	OK(close(ready[0]));
	OK(close(ready[1]));
	OK(close(stop[0]));
	if (stop_fd)
		OK(close(stop_fd));
	stop_fd = stop[1];
	return pid;
}

static void the_name_goes_with_the_process(void)
{
	uint64_t before = on_gpu() ? 0 : used(), after = 0;
	char byte;
	pid_t pid = producer_start();

	OK(link("shared", "again"));
	int fd = OK(open("shared", O_RDWR));

	read_all(fd, &byte, 1, 0);
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, NULL, 0));
	AWAIT(!exists("shared") && !exists("again"));
	CHECK(!exists("shared") && !exists("again"));
	FAILS(EIO, pread(fd, &byte, 1, 0));
	FAILS(EIO, pwrite(fd, &byte, 1, 0));
	/* The name is free at once. */
	OK(close(OK(open("shared", O_CREAT | O_EXCL | O_RDWR, 0600))));
	OK(unlink("shared"));
	OK(close(fd));
	if (!on_gpu()) {
		/* The daemon may be preparing memory, which counts while it does. */
		AWAIT((after = used()) == before);
		EQUAL(after, before);
	}
}

static void it_stays_on_request(void)
{
	char byte;
	int status;
	pid_t pid = OK(fork());

	if (pid == 0) {
		memory_make();
		shared("shared", GPUMEM_SHARE_STAYS);
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	OK(waitpid(pid, &status, 0));
	EQUAL(status, 0);
	int fd = OK(open("shared", O_RDWR));

	read_all(fd, &byte, 1, 100);
	EQUAL((unsigned char)byte, pattern_at(1, BEFORE + 100));
	FAILS(EPERM, ftruncate(fd, 0));
	OK(close(fd));
	OK(unlink("shared"));
}

static void a_sharer_keeps_what_it_has(void)
{
	memory_make();
	if (on_gpu())
		SKIP("shown by a_passed_descriptor of real GPUs");
	gpumem *file = shared("shared", 0), *other = lease("shared", O_RDWR);
	unsigned char *at = host_pointer(other, SIZE);

	GOOD(gpumem_close(file));
	AWAIT(!exists("shared"));
	expect_pattern(at, 1, 0, 0);
	EQUAL(at[0], pattern_at(1, BEFORE));
	own.bytes[BEFORE] = 42;
	EQUAL(at[0], 42);
	GOOD(gpumem_close(other));
}

static void lies_are_refused(void)
{
	const size_t size = ALLOCATION, odd = ALLOCATION - 4096;

	if (on_gpu())
		SKIP("of memfds");
	int unsealed = memfd_new(ALLOCATION, 0), smaller = memfd_new(ALLOCATION / 2, F_SEAL_SHRINK);
	int device = OK(open("/dev/null", O_RDWR)), of_the_mount = new_file("own");
	int sealed = memfd_new(ALLOCATION, F_SEAL_SHRINK);
	const struct {
		int fd;
		const size_t *size;
		size_t skip, bytes;
	} lies[] = {{unsealed, &size, 0, 1},
		    {smaller, &size, 0, 1},
		    {device, &size, 0, 1},
		    {of_the_mount, &size, 0, 1},
		    {sealed, &odd, 0, 1},
		    {sealed, &size, ALLOCATION, 1},
		    {sealed, &size, 0, ALLOCATION + 1},
		    {sealed, &size, SIZE_MAX, 2}};

	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		errno = 0;
		CHECK(!gpumem_share_fds("lie", &lies[i].fd, lies[i].size, 1, lies[i].skip,
					lies[i].bytes, 0600, 0));
		EQUAL(errno, EINVAL);
		CHECK(!exists("lie"));
	}
	CHECK(!gpumem_share_fds("lie", &sealed, &size, 1, 0, 1, 0600, 64) && errno == EINVAL);
	int huge = memfd_create("huge", MFD_ALLOW_SEALING | MFD_HUGETLB);

	/* Where the kernel has huge pages; none is needed for an empty memfd. */
	if (huge >= 0) {
		OK(ftruncate(huge, ALLOCATION));
		OK(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK));
		CHECK(!gpumem_share_fds("lie", &huge, &size, 1, 0, 1, 0600, 0));
		EQUAL(errno, EINVAL);
		OK(close(huge));
	}
	OK(unlink("own"));
	EQUAL(names_here(), 0);
}

static void only_root_and_the_daemons_user(void)
{
	memory_make();
	OK(chmod(".", 01777));
	OK(setresuid(65534, 65534, 65534));
	CHECK(!try_share("shared", BEFORE, SIZE, 0));
	EQUAL(errno, EPERM);
	if (!strstr(gpumem_error(), "root only"))
		FAIL("%s", gpumem_error());
}

static void daemon_kill(void)
{
	pid_t keeper = keeper_pid(), daemon = serving_daemon(keeper), next;

	OK(kill(daemon, SIGKILL));
	AWAIT((next = serving_daemon(keeper)) && next != daemon);
}

static void a_killed_daemon_changes_nothing(void)
{
	char byte;

	memory_make();
	gpumem *file = shared("shared", 0);

	daemon_kill();
	int fd = OK(open("shared", O_RDWR));

	read_all(fd, &byte, 1, 5);
	EQUAL((unsigned char)byte, pattern_at(1, BEFORE + 5));
	FAILS(EFBIG, pwrite(fd, "x", 1, SIZE));
	daemon_kill();
	GOOD(gpumem_close(file));
	AWAIT(!exists("shared"));
	CHECK(!exists("shared"));
	FAILS(EIO, pread(fd, &byte, 1, 0));
}

static atomic_uint n_told;

static void count_end(gpumem *file, void *wanted)
{
	EQUAL((intptr_t)file, (intptr_t) * (gpumem **)wanted);
	n_told++;
}

static void count_end_and_close(gpumem *file, void *unused)
{
	(void)unused;
	GOOD(gpumem_close(file));
	n_told++;
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return OK(poll(&poll_fd, 1, 0)) == 1;
}

static void process_and_daemon_killed(void)
{
	for (int turn = 0; turn < cycles_wanted(10, 3); turn++) {
		pid_t pid = producer_start();
		gpumem *file = lease("shared", O_RDWR);

		GOOD(gpumem_on_end(file, count_end, &file));
		pid_t daemon = serving_daemon(keeper_pid());

		OK(kill(turn % 2 ? pid : daemon, SIGKILL));
		OK(kill(turn % 2 ? daemon : pid, SIGKILL));
		OK(waitpid(pid, NULL, 0));
		AWAIT(!exists("shared") && n_told == (unsigned)turn + 1);
		CHECK(!exists("shared"));
		EQUAL(n_told, turn + 1);
		GOOD(gpumem_close(file));
	}
}

#define LOOKERS 4

/* The kernel holds a lock of the directory until the daemon has answered. */
static pid_t looker_start(unsigned number)
{
	char name[64];
	pid_t pid = OK(fork());

	if (pid)
		return pid;
	OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
	for (unsigned i = 0;; i++) {
		snprintf(name, sizeof(name), "no.%u.%u", number, i);
		FAILS(ENOENT, access(name, F_OK));
	}
}

/* A daemon that waited for that lock could not end when it is killed. */
static void killed_while_names_are_looked_up(void)
{
	pid_t lookers[LOOKERS];

	for (unsigned i = 0; i < LOOKERS; i++)
		lookers[i] = looker_start(i);
	for (int turn = 0; turn < cycles_wanted(20, 10); turn++) {
		pid_t pid = producer_start(), daemon = serving_daemon(keeper_pid());

		OK(kill(pid, SIGKILL));
		usleep((unsigned)turn % 10 * 100);
		OK(kill(daemon, SIGKILL));
		OK(waitpid(pid, NULL, 0));
		AWAIT(!exists("shared"));
		CHECK(!exists("shared"));
	}
	for (unsigned i = 0; i < LOOKERS; i++) {
		OK(kill(lookers[i], SIGKILL));
		OK(waitpid(lookers[i], NULL, 0));
	}
}

static void consumers_are_told(void)
{
	pid_t pid = producer_start();
	gpumem *file = lease("shared", O_RDWR), *closed = lease("shared", O_RDWR);
	gpumem *reader = lease("shared", O_RDONLY), *forgotten = lease("shared", O_RDWR);
	int fd = OK(gpumem_end_fd(file));

	GOOD(gpumem_on_end(file, count_end, &file));
	GOOD(gpumem_on_end(closed, count_end_and_close, NULL));
	GOOD(gpumem_on_end(reader, count_end, &reader));
	GOOD(gpumem_on_end(forgotten, count_end, NULL));
	GOOD(gpumem_on_end(forgotten, NULL, NULL));
	usleep(50000);
	EQUAL(n_told, 0);
	CHECK(!is_readable(fd));
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, NULL, 0));
	AWAIT(n_told == 3);
	EQUAL(n_told, 3);
	CHECK(is_readable(fd));
	/* At once, as the process has ended before. */
	GOOD(gpumem_on_end(file, count_end, &file));
	EQUAL(n_told, 4);
	CHECK(is_readable(OK(gpumem_end_fd(forgotten))));
	GOOD(gpumem_close(file));
	GOOD(gpumem_close(reader));
	GOOD(gpumem_close(forgotten));
}

/* Its connection for notices is that of another user than its lease's. */
static void a_consumer_that_changed_its_user(void)
{
	producer_start();
	gpumem *file = lease("shared", O_RDWR);

	OK(setresuid(65534, 65534, 65534));
	GOOD(gpumem_on_end(file, count_end, &file));
	OK(write(stop_fd, "", 1));
	AWAIT(n_told == 1);
	EQUAL(n_told, 1);
	GOOD(gpumem_close(file));
}

/* The end of the handle is the end, too. */
static void consumers_are_told_of_a_close(void)
{
	memory_make();
	gpumem *file = shared("shared", 0), *other = lease("shared", O_RDWR);

	GOOD(gpumem_on_end(other, count_end, &other));
	GOOD(gpumem_close(file));
	AWAIT(n_told == 1);
	EQUAL(n_told, 1);
	GOOD(gpumem_close(other));
}

static void index_write(uint64_t inode, uint64_t offset)
{
	char text[512];
	int n = snprintf(text, sizeof(text),
			 "{\"gpumem_tensors\":1,\"files\":[{\"name\":\"shared\",\"inode\":%" PRIu64
			 "}],\"tensors\":{\"w\":{\"dtype\":\"U8\",\"shape\":[16],\"file\":0,"
			 "\"offset\":%" PRIu64 "}}}",
			 inode, offset);
	int fd = OK(open("tensors.json", O_CREAT | O_TRUNC | O_WRONLY, 0644));

	write_all(fd, text, (size_t)n, 0);
	OK(close(fd));
}

static void set_refused(int error)
{
	struct gpumem_set *set;

	GOOD(gpumem_set_read(".", &set));
	errno = 0;
	CHECK(!gpumem_set_open(set, 0, O_RDWR));
	EQUAL(errno, error);
	gpumem_set_free(set);
}

static void a_set_of_tensors(void)
{
	struct gpumem_set *set;
	unsigned char first;

	memory_make();
	gpumem *file = shared("shared", 0);
	uint64_t inode = info_of(file).inode;

	index_write(inode, 1000);
	GOOD(gpumem_set_read(".", &set));
	gpumem *opened = gpumem_set_open(set, 0, O_RDWR);

	CHECK(opened);
	read_all(OK(open(set->files[0], O_RDONLY)), &first, 1, (off_t)set->tensors[0].offset);
	EQUAL(first, pattern_at(1, BEFORE + 1000));
	CHECK(!gpumem_set_open(set, 1, O_RDWR) && errno == EINVAL);
	GOOD(gpumem_close(opened));
	index_write(inode, SIZE - 15);
	set_refused(EINVAL);
	index_write(inode + 1, 0);
	set_refused(ESTALE);
	OK(rename("shared", "elsewhere"));
	OK(symlink("elsewhere", "shared"));
	index_write(inode, 0);
	set_refused(ELOOP);
	OK(unlink("shared"));
	GOOD(gpumem_close(file));
	/* The name may still be there. */
	set_refused(ESTALE);
	gpumem_set_free(set);
}

/* The test that counts the memory of the whole mount is first: the memory of a test before it
 * may be freed a moment after that test has ended. */
CLIENT_PROG(TEST(the_name_goes_with_the_process), TEST(another_process_maps_it),
	    TEST(read_written_and_copied), TEST(what_stays_as_it_is), TEST(it_stays_on_request),
	    TEST(a_sharer_keeps_what_it_has), TEST(lies_are_refused),
	    TEST(only_root_and_the_daemons_user), TEST(a_killed_daemon_changes_nothing),
	    TEST(process_and_daemon_killed), TEST(killed_while_names_are_looked_up),
	    TEST(consumers_are_told), TEST(consumers_are_told_of_a_close),
	    TEST(a_consumer_that_changed_its_user), TEST(a_set_of_tensors))
