/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: host asan-standin */
/* mount: recovery=transparent,host_size=64M,spill=host:96M
 * env: GPUMEM_STANDIN_MEMORY=64M
 * backends: host standin
 * needs: daemon
 * kills: no
 * timeout: 7200
 * Daemons are killed while the files of two users leave the GPU and come back. Bob keeps the
 * descriptors of all memory that he ever had, up to a limit, and stores into the memory: he never
 * finds a byte of Alice's, and Alice finds her own bytes alone. GPUMEM_KILLS: the number of kills.
 */
#include "tests/mount/kills.h"

#include <grp.h>
#include <sys/xattr.h>

#include "tests/mount/client.h"

#define ALICE 60001
#define BOB   60002
#define CAROL 60003

/* A word of a user's file has the user's mark in its upper half. */
#define MARK(user) ((uint64_t)(0xa51cea50U + (user)) << 32)

#define FILE_MAX   (4 * MIB)
#define WORDS_MAX  (FILE_MAX / sizeof(uint64_t))
#define FILES	   5
#define KEPT_BYTES (64 * MIB)
#define KEPT_MAX   128

static bool has_mark(uint64_t word, uint64_t mark)
{
	return word >> 32 == mark >> 32;
}

static void become(uid_t user)
{
	OK(setgroups(0, NULL));
	OK(setresgid(user, user, user));
	OK(setresuid(user, user, user));
}

static size_t some_words(uint64_t *state)
{
	static const size_t bytes[] = {4 * KIB, 100 * KIB, 2 * MIB, 2 * MIB, 3 * MIB, FILE_MAX};

	return bytes[random_next(state) % (sizeof(bytes) / sizeof(bytes[0]))] / sizeof(uint64_t);
}

static void words_fill(uint64_t *words, size_t n, uint64_t mark, uint64_t version)
{
	for (size_t i = 0; i < n; i++)
		words[i] = mark | (uint32_t)mix(version << 32 | i);
}

/* Both places may be full, and a user may have at most half of the memory off the GPU. */
static bool is_full(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

/* A file of the caller's, or -1 if there is no room. */
static int file_make(const char *name, uint64_t *words, size_t n, mode_t mode)
{
	size_t bytes = n * sizeof(*words), done = 0;
	int fd = OK(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));

	while (done < bytes) {
		ssize_t wrote = pwrite(fd, (char *)words + done, bytes - done, (off_t)done);

		if (wrote < 0 && is_full(errno)) {
			OK(unlink(name));
			OK(close(fd));
			return -1;
		}
		done += (size_t)OK(wrote);
	}
	return fd;
}

static void file_move(int fd, uint64_t *state)
{
	static const char *const places[] = {"evicted", "host", "gpu"};
	const char *place = places[random_next(state) % 3];

	if (fsetxattr(fd, "user.gpumem.resident", place, strlen(place), 0) < 0 && !is_full(errno) &&
	    errno != EBUSY && errno != EOPNOTSUPP)
		FAIL("resident=%s: %s", place, strerror(errno));
}

static void file_end(const char *name, int fd)
{
	OK(unlink(name));
	OK(close(fd));
}

/* --- Alice --------------------------------------------------------------------------------- */

static void alices_file_check(int fd, const uint64_t *wanted, size_t n)
{
	static uint64_t words[WORDS_MAX];

	read_all(fd, words, n * sizeof(*words), 0);
	for (size_t i = 0; i < n; i++)
		if (words[i] != wanted[i])
			FAIL("word %zu of Alice's file is %016llx, wanted %016llx", i,
			     (unsigned long long)words[i], (unsigned long long)wanted[i]);
}

/* Makes files, moves the files, and removes them, with some files at any time. */
static void alice_uses(const char *folder, int seed)
{
	static uint64_t words[FILES][WORDS_MAX];
	uint64_t state = (uint64_t)seed, version = 0;
	size_t n[FILES] = {0};
	char name[PATH_MAX];
	int fds[FILES];

	become(ALICE);
	while (going_on()) {
		unsigned at = (unsigned)(random_next(&state) % FILES);
		uint64_t began = now_ns();

		snprintf(name, sizeof(name), "%s/%d-%u", folder, seed, at);
		if (!n[at]) {
			n[at] = some_words(&state);
			words_fill(words[at], n[at], MARK(ALICE), ++version);
			fds[at] = file_make(name, words[at], n[at], 0600);
			n[at] = fds[at] < 0 ? 0 : n[at];
		} else if (random_next(&state) % 4) {
			file_move(fds[at], &state);
		} else {
			alices_file_check(fds[at], words[at], n[at]);
			file_end(name, fds[at]);
			n[at] = 0;
		}
		board_note(began);
	}
	for (unsigned at = 0; at < FILES; at++)
		if (n[at])
			alices_file_check(fds[at], words[at], n[at]);
}

static void load_alice(int seed)
{
	alice_uses("alice", seed);
}

static void load_alice_host(int seed)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/%s-alice", getenv("HOSTDIR"), getenv("TEST"));
	alice_uses(folder, seed);
}

/* --- Bob ----------------------------------------------------------------------------------- */

/* Memory whose descriptors the process keeps; the oldest are given up beyond KEPT_BYTES. */
static struct kept {
	uint64_t *words;
	size_t bytes;
	int fd;
} kept[KEPT_MAX];

static unsigned kept_first, kept_end;
static size_t kept_bytes;

static void kept_drop_first(void)
{
	struct kept *first = &kept[kept_first++ % KEPT_MAX];

	kept_bytes -= first->bytes;
	OK(munmap(first->words, first->bytes));
	OK(close(first->fd));
}

static void *fd_map(int fd, size_t bytes)
{
	char path[32];
	void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (words != MAP_FAILED)
		return words;
	/* A descriptor of the stand-in driver must be opened again, as the driver does. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = OK(open(path, O_RDWR | O_CLOEXEC));

	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
	CHECK(words != MAP_FAILED);
	OK(close(again));
	return words;
}

static void kept_add(int fd, size_t bytes)
{
	while (kept_end - kept_first == KEPT_MAX ||
	       (kept_end > kept_first && kept_bytes + bytes > KEPT_BYTES))
		kept_drop_first();
	struct kept *last = &kept[kept_end++ % KEPT_MAX];

	*last = (struct kept){.fd = OK(fcntl(fd, F_DUPFD_CLOEXEC, 0)), .bytes = bytes};
	last->words = fd_map(last->fd, bytes);
	kept_bytes += bytes;
}

static bool is_kept(int fd)
{
	for (unsigned i = kept_first; i < kept_end; i++)
		if (kept[i % KEPT_MAX].fd == fd)
			return true;
	return false;
}

/* Keeps the memory that the library got for a leased file: the process's descriptors of regular
 * files that are not on the mount. */
static void lease_keep(dev_t mount)
{
	int fds[2 * KEPT_MAX], n = 0;
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;

	CHECK(folder);
	while ((entry = readdir(folder)) && n < 2 * KEPT_MAX)
		if (!is_kept(atoi(entry->d_name)))
			fds[n++] = atoi(entry->d_name);
	closedir(folder);
	for (int i = 0; i < n; i++)
		if (fstat(fds[i], &st) == 0 && S_ISREG(st.st_mode) && st.st_dev != mount &&
		    st.st_size >= 4 * KIB)
			kept_add(fds[i], (size_t)st.st_size);
}

static void kept_check(void)
{
	for (unsigned i = kept_first; i < kept_end; i++) {
		const struct kept *one = &kept[i % KEPT_MAX];

		for (size_t at = 0; at < one->bytes / sizeof(uint64_t); at++)
			if (has_mark(one->words[at], MARK(ALICE)))
				FAIL("word %zu of memory that Bob has is Alice's %016llx", at,
				     (unsigned long long)one->words[at]);
	}
}

/* Stores into all of the memory, which is of no file any more, or of a file of Bob's. */
static void kept_store(uint64_t *state)
{
	for (unsigned i = kept_first; i < kept_end; i++) {
		const struct kept *one = &kept[i % KEPT_MAX];

		for (size_t page = 0; page < one->bytes / 4096; page++)
			one->words[page * 512 + random_next(state) % 512] = MARK(BOB);
	}
}

static void bobs_file_check(int fd, size_t n)
{
	static uint64_t words[WORDS_MAX];

	read_all(fd, words, n * sizeof(*words), 0);
	for (size_t i = 0; i < n; i++)
		if (!has_mark(words[i], MARK(BOB)))
			FAIL("word %zu of Bob's file is %016llx", i, (unsigned long long)words[i]);
}

/* Leases a file, and keeps its memory. */
static void lease_and_keep(const char *name, int flags, dev_t mount)
{
	gpumem *file = gpumem_open(name, flags);

	if (file)
		lease_keep(mount);
	else if (!is_full(errno) && errno != EBUSY)
		FAIL("gpumem_open: %s: %s", strerror(errno), gpumem_error());
	gpumem_close(file);
}

static void bob_uses(const char *folder, int seed)
{
	static uint64_t words[WORDS_MAX];
	uint64_t state = (uint64_t)seed, version = 0;
	char name[PATH_MAX];
	struct stat st;

	become(BOB);
	snprintf(name, sizeof(name), "%s/%d", folder, seed);
	while (going_on()) {
		uint64_t began = now_ns();
		size_t n = some_words(&state);

		words_fill(words, n, MARK(BOB), ++version);
		int fd = file_make(name, words, n, 0600);

		if (fd < 0)
			continue;
		if (random_next(&state) % 4)
			file_move(fd, &state);
		OK(fstat(fd, &st));
		lease_and_keep(name, O_RDWR, st.st_dev);
		if (random_next(&state) % 2)
			file_move(fd, &state);
		board_note(began);
		kept_store(&state);
		bobs_file_check(fd, n);
		file_end(name, fd);
		kept_check();
	}
	sleep_ms(SETTLE_MS);
	kept_check();
}

static void load_bob(int seed)
{
	bob_uses("bob", seed);
}

static void load_bob_host(int seed)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/%s-bob", getenv("HOSTDIR"), getenv("TEST"));
	bob_uses(folder, seed);
}

/* Carol gets private copies of a file that she may read. */
static void load_carol(int seed)
{
	static uint64_t words[WORDS_MAX];
	uint64_t state = (uint64_t)seed;
	struct stat st;

	become(CAROL);
	words_fill(words, WORDS_MAX, MARK(CAROL), 1);
	OK(stat("public", &st));
	while (going_on()) {
		uint64_t began = now_ns();

		lease_and_keep("public", O_RDONLY, st.st_dev);
		board_note(began);
		kept_store(&state);
		kept_check();
	}
	sleep_ms(SETTLE_MS);
	kept_check();
}

static void folder_make(const char *path, uid_t owner)
{
	OK(mkdir(path, 0700));
	OK(chown(path, owner, owner));
}

static void no_foreign_byte(void)
{
	static void (*const loads[])(int) = {load_alice, load_alice,	load_alice_host, load_bob,
					     load_bob,	 load_bob_host, load_carol};
	static uint64_t words[2 * MIB / sizeof(uint64_t)];
	char folder[PATH_MAX];

	OK(chmod(".", 0755));
	folder_make("alice", ALICE);
	folder_make("bob", BOB);
	snprintf(folder, sizeof(folder), "%s/%s-alice", getenv("HOSTDIR"), getenv("TEST"));
	folder_make(folder, ALICE);
	snprintf(folder, sizeof(folder), "%s/%s-bob", getenv("HOSTDIR"), getenv("TEST"));
	folder_make(folder, BOB);
	words_fill(words, sizeof(words) / sizeof(*words), MARK(BOB), 1);
	OK(close(file_make("public", words, sizeof(words) / sizeof(*words), 0644)));
	under_kills(40, loads, sizeof(loads) / sizeof(loads[0]));
}

CLIENT_PROG(TEST(no_foreign_byte))
