/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem verify: the words that name sums, the tree sum compared with XXH64's own code, the files
 * that are worth the start of a GPU, and the choice of GPU or CPU. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/cli/core/cli.h"
#include "client/cli/hash/hash.h"
#include "client/cli/verify/tree.h"
#include "client/cli/verify/verify.h"
#include "common/cleanup.h"
#include "tests/unit/unit.h"

static const struct {
	const char *word;
	int error;
	enum hash_kind kind;
	const char *digits;
} words[] = {
    {"0123456789abcdef", 0, HASH_64, "0123456789abcdef"},
    {"xxh3:0123456789ABCDEF", 0, HASH_64, "0123456789abcdef"},
    {"XXH3_0123456789abcdef", 0, HASH_64, "0123456789abcdef"},
    {"0123456789abcdef0123456789abcdef", 0, HASH_128, "0123456789abcdef0123456789abcdef"},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF", 0, HASH_SHA256,
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
    {"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0, HASH_SHA256,
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
    {"sha256:0123456789abcdef0123456789abcdef", -EINVAL, 0, ""},
    {"xxh3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", -EINVAL, 0, ""},
    {"xxh64-tree:0123456789ABCDEF", 0, HASH_TREE, "0123456789abcdef"},
    {"xxh64-tree:0123456789abcdef0123456789abcdef", -EINVAL, 0, ""},
    {"xxh64-tree:", -EINVAL, 0, ""},
    {"xxh64:0123456789abcdef", -EINVAL, 0, ""},
    {"0123456789abcdeg", -EINVAL, 0, ""},
    {"0123456789abcde", -EINVAL, 0, ""},
    {"", -EINVAL, 0, ""},
};

START_TEST(words_are_sums)
{
	char text[HASH_TEXT_MAX] = "";
	enum hash_kind kind;

	ck_assert_int_eq(hash_parse(words[_i].word, &kind, text), words[_i].error);
	if (words[_i].error)
		return;
	ck_assert_int_eq(kind, words[_i].kind);
	ck_assert_str_eq(text, words[_i].digits);
	ck_assert_int_eq(hash_find(hash_name(kind), &kind), 0);
	ck_assert_int_eq(kind, words[_i].kind);
	ck_assert_int_eq(hash_find("xxh64", &kind), -EINVAL);
}
END_TEST

/* Computes the sum of a block as in the description, with XXH64 from its library. */
static uint64_t slow_block(const unsigned char *block)
{
	unsigned char string[2048];
	uint64_t sums[32];

	for (size_t i = 0; i < 32; i++) {
		for (size_t n = 0; n < 128; n++)
			memcpy(string + 16 * n, block + 16 * (32 * n + i), 16);
		sums[i] = XXH64(string, sizeof(string), 0);
	}
	return XXH64(sums, sizeof(sums), 0);
}

static unsigned char *random_bytes(size_t bytes)
{
	unsigned char *all = malloc(bytes);

	ck_assert_ptr_nonnull(all);
	for (size_t i = 0; i < bytes; i++)
		all[i] = (unsigned char)(random() >> 7);
	return all;
}

START_TEST(blocks_at_any_address)
{
	unsigned char *bytes AUTO_FREE = random_bytes(TREE_BLOCK + 64);

	for (unsigned at = 0; at < 64; at += 7)
		ck_assert_uint_eq(tree_block(bytes + at), slow_block(bytes + at));
}
END_TEST

/* The sums are equal for any number of threads, also more threads than parts, and from any block
 * on. */
START_TEST(files_are_read_in_parts)
{
	const uint64_t size = 5 * (1 << 20) + 4711, blocks = tree_blocks(size);
	unsigned char *bytes AUTO_FREE = random_bytes(blocks * TREE_BLOCK);
	uint64_t wanted[128], sums[128];
	int fd = memfd_create("file", MFD_CLOEXEC);

	memset(bytes + size, 0, blocks * TREE_BLOCK - size);
	for (uint64_t i = 0; i < blocks; i++)
		wanted[i] = slow_block(bytes + i * TREE_BLOCK);
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	for (unsigned threads = 1; threads < 40; threads += 6) {
		memset(sums, 0, sizeof(sums));
		ck_assert_int_eq(tree_read(fd, size, 0, blocks, threads, sums), 0);
		ck_assert_mem_eq(sums, wanted, blocks * sizeof(*sums));
	}
	memset(sums, 0, sizeof(sums));
	ck_assert_int_eq(tree_read(fd, size, 17, 40, 2, sums), 0);
	ck_assert_mem_eq(sums + 17, wanted + 17, (40 - 17) * sizeof(*sums));
	ck_assert_uint_eq(sums[16], 0);
	ck_assert_uint_eq(sums[40], 0);
	ck_assert_int_eq(tree_read(fd, 0, 0, 0, 4, sums), 0);
	ck_assert_int_eq(tree_read(fd, size + 1, 0, blocks, 4, sums), -ENODATA);
	close(fd);
	ck_assert_int_eq(tree_read(fd, size, 0, blocks, 4, sums), -EBADF);
}
END_TEST

START_TEST(the_size_counts)
{
	uint64_t sums[2] = {1, 2}, text[3] = {1, 2, 0};

	for (uint64_t size = TREE_BLOCK + 1; size < TREE_BLOCK + 3; size++) {
		text[2] = size;
		ck_assert_uint_eq(tree_sum(sums, size), XXH64(text, sizeof(text), 0));
	}
	ck_assert_uint_eq(tree_sum(sums, 0), XXH64("\0\0\0\0\0\0\0", 8, 0));
}
END_TEST

START_TEST(small_files_and_holes_are_not_for_a_gpu)
{
	struct stat st = {.st_size = (off_t)2 << 30, .st_blocks = 2 << 21};

	ck_assert(verify_suits_gpu(&st));
	st.st_blocks--;
	ck_assert(!verify_suits_gpu(&st));
	st.st_blocks++;
	st.st_size--;
	ck_assert(!verify_suits_gpu(&st));
}
END_TEST

/* The fake GPU, and the size that the file seems to have before the open. */
static struct {
	int error;
	bool wrong; /* one of the GPU's sums is wrong */
	unsigned asked;
	off_t size; /* larger than the file; 0: the true size */
} gpu;

/* Replaces the command's function. */
int tree_gpu(int fd, uint64_t blocks, uint64_t *sums, double *seconds)
{
	gpu.asked++;
	*seconds = 1;
	if (gpu.error)
		return gpu.error;
	ck_assert_int_eq(tree_read(fd, blocks * TREE_BLOCK, 0, blocks, 1, sums), 0);
	sums[blocks / 2] ^= gpu.wrong;
	return 0;
}

/* Replaces libc's function. */
int stat(const char *path, struct stat *st)
{
	int rc = fstatat(AT_FDCWD, path, st, 0);

	if (gpu.size) {
		st->st_size = gpu.size;
		st->st_blocks = gpu.size / 512;
	}
	return rc;
}

#define LARGE ((off_t)3 << 30)

/* A GPU with a wrong sum is found where the CPU reads all blocks, so the file is small in such a
 * case. */
static const struct {
	enum verify_device device;
	off_t size;
	int error;
	bool wrong;
	int status;
	unsigned asked;
	bool on_gpu;
} roads[] = {
    {VERIFY_AUTO, 0, 0, false, CLI_OK, 0, false},
    {VERIFY_AUTO, LARGE, 0, false, CLI_OK, 1, true},
    {VERIFY_AUTO, LARGE, -ENODEV, false, CLI_OK, 1, false},
    {VERIFY_AUTO, LARGE, TREE_NO_GPU, false, CLI_OK, 1, false},
    {VERIFY_AUTO, LARGE, 0, true, CLI_WRONG, 1, false},
    {VERIFY_CPU, LARGE, 0, true, CLI_OK, 0, false},
    {VERIFY_GPU, 0, 0, false, CLI_OK, 1, true},
    {VERIFY_GPU, 0, -ENOSPC, false, CLI_FULL, 1, false},
    {VERIFY_GPU, 0, TREE_NO_GPU, false, CLI_FAILED, 1, false},
    {VERIFY_GPU, 0, 0, true, CLI_WRONG, 1, false},
};

/* The sum is the file's, whether the GPU or the CPU computes the sum. */
START_TEST(who_computes)
{
	const uint64_t whole = roads[_i].wrong ? 100 : 300, size = whole * TREE_BLOCK + 1;
	unsigned char *bytes AUTO_FREE = random_bytes((whole + 1) * TREE_BLOCK);
	char path[] = "/tmp/gpumem-verify-XXXXXX", wanted[HASH_TEXT_MAX];
	struct verified found = {.sum = ""};
	uint64_t sums[301];
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
	memset(bytes + size, 0, TREE_BLOCK - 1);
	for (uint64_t i = 0; i <= whole; i++)
		sums[i] = slow_block(bytes + i * TREE_BLOCK);
	snprintf(wanted, sizeof(wanted), "%016llx", (unsigned long long)tree_sum(sums, size));
	gpu.size = roads[_i].size;
	gpu.error = roads[_i].error;
	gpu.wrong = roads[_i].wrong;
	int status = verify_tree(path, roads[_i].device, &found);

	unlink(path);
	ck_assert_int_eq(status, roads[_i].status);
	ck_assert_uint_eq(gpu.asked, roads[_i].asked);
	if (status != CLI_OK)
		return;
	ck_assert_str_eq(found.sum, wanted);
	ck_assert_uint_eq(found.bytes, size);
	ck_assert_uint_eq(found.on_gpu, roads[_i].on_gpu ? 300 * TREE_BLOCK : 0);
	ck_assert_uint_eq(found.checked, roads[_i].on_gpu ? 256 * TREE_BLOCK : 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("cli_verify", &tests, 60);

	tcase_add_loop_test(tests, words_are_sums, 0, sizeof(words) / sizeof(words[0]));
	tcase_add_test(tests, blocks_at_any_address);
	tcase_add_test(tests, files_are_read_in_parts);
	tcase_add_test(tests, the_size_counts);
	tcase_add_test(tests, small_files_and_holes_are_not_for_a_gpu);
	tcase_add_loop_test(tests, who_computes, 0, sizeof(roads) / sizeof(roads[0]));
	return unit_main(suite);
}
