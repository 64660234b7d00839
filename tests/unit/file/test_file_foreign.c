/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files whose memory another program allocated: their bytes, and the refused operations. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/file/export.h"
#include "tests/unit/file_fixture.h"

#define PIECES 3
#define PIECE  (4 * MIB)
#define SKIP   (1 * MIB + 512)
#define SIZE   (9 * MIB + 7)

static struct fixture fixture;
/* Of the program: the memory, and a descriptor for each piece. */
static char *memory;
static struct file_piece pieces[PIECES];
static const struct file_adoption whole = {pieces, PIECES, SKIP, SIZE, false, false};

static int memfd_sealed(uint64_t bytes, int seals)
{
	int fd = memfd_create("other program", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void up(void)
{
	fixture_open(&fixture, 64 * MIB, 16 * MIB);
	memory = mmap(NULL, PIECES * PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < PIECES; i++) {
		pieces[i] = (struct file_piece){PIECE, memfd_sealed(PIECE, F_SEAL_SHRINK)};
		ck_assert_ptr_ne(mmap(memory + i * PIECE, PIECE, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, pieces[i].fd, 0),
				 MAP_FAILED);
	}
	for (uint64_t i = 0; i < PIECES * PIECE; i++)
		memory[i] = (char)(i * 2654435761U >> 13);
}

static void down(void)
{
	munmap(memory, PIECES * PIECE);
	for (unsigned i = 0; i < PIECES; i++)
		close(pieces[i].fd);
	fixture_close(&fixture);
}

/* With duplicates of the descriptors: the file keeps those of the pieces that it has, and a process
 * may have as few descriptors as pieces. */
static int adopt(struct file *file, const struct file_adoption *from)
{
	struct file_piece given[PIECES];
	struct file_adoption adoption = *from;
	bool kept = true;

	adoption.pieces = given;
	for (unsigned i = 0; i < from->n_pieces; i++)
		given[i] = (struct file_piece){from->pieces[i].bytes,
					       fcntl(from->pieces[i].fd, F_DUPFD_CLOEXEC, 0)};
	int error = file_adopt(file, &fixture.call, &adoption);

	for (unsigned i = 0; i < from->n_pieces; i++) {
		kept = kept && given[i].fd < 0;
		if (given[i].fd >= 0)
			close(given[i].fd);
	}
	ck_assert(kept || error);
	return error;
}

static struct file *adopted(const struct file_adoption *from)
{
	struct file *file = fixture_file(&fixture, GPU0);

	ck_assert_int_eq(adopt(file, from), 0);
	return file;
}

static void expect_refused(const struct file_adoption *from, int error)
{
	struct file *file = fixture_file(&fixture, GPU0);

	ck_assert_int_eq(adopt(file, from), error);
	ck_assert_uint_eq(file_size(file), 0);
	ck_assert_int_eq(atomic_load(&fixture.quota_owner.total), 0);
	ck_assert_uint_eq(pool_usage(fixture.volumes[GPU0].pool).chunk_bytes, 0);
	file_free(file, &fixture.call);
}

START_TEST(bytes_are_the_programs)
{
	struct file *file = adopted(&whole);
	char *bytes = malloc(SIZE + 1);

	ck_assert_uint_eq(file_size(file), SIZE);
	ck_assert_int_eq(file_read(file, &fixture.call, bytes, SIZE + 1, 0), SIZE);
	ck_assert_int_eq(memcmp(bytes, memory + SKIP, SIZE), 0);
	memory[SKIP + 5 * MIB] ^= 1;
	ck_assert_int_eq(file_read(file, &fixture.call, bytes, 1, 5 * MIB), 1);
	ck_assert_int_eq(bytes[0], memory[SKIP + 5 * MIB]);
	ck_assert_int_eq(file_write(file, &fixture.call, "written", 7, PIECE - SKIP - 3), 7);
	ck_assert_int_eq(memcmp(memory + PIECE - 3, "written", 7), 0);
	free(bytes);
	/* The program keeps its memory. */
	file_free(file, &fixture.call);
	ck_assert_int_eq(memcmp(memory + PIECE - 3, "written", 7), 0);
}
END_TEST

START_TEST(nothing_beyond_its_bytes)
{
	struct file *file = adopted(&whole);
	char *before = malloc(PIECES * PIECE), *data = calloc(1, 2 * MIB);
	struct file *source = fixture_file(&fixture, GPU0);

	memcpy(before, memory, PIECES * PIECE);
	ck_assert_int_eq(file_write(source, &fixture.call, data, 2 * MIB, 0), 2 * MIB);
	ck_assert_int_eq(file_write(file, &fixture.call, data, 10, SIZE), -EFBIG);
	ck_assert_int_eq(file_write(file, &fixture.call, data, 10, SIZE + MIB), -EFBIG);
	ck_assert_int_eq(file_write(file, &fixture.call, data, 10, SIZE - 4), 4);
	memset(before + SKIP + SIZE - 4, 0, 4);
	ck_assert_int_eq(file_copy(source, 0, file, &fixture.call, SIZE, 2 * MIB), -EFBIG);
	ck_assert_int_eq(file_copy(source, 0, file, &fixture.call, SIZE - MIB, 2 * MIB), MIB);
	memset(before + SKIP + SIZE - MIB, 0, MIB);
	file_trim(file, &fixture.call);
	ck_assert_int_eq(memcmp(before, memory, PIECES * PIECE), 0);
	ck_assert_uint_eq(file_size(file), SIZE);
	free(before);
	free(data);
	file_free(source, &fixture.call);
	file_free(file, &fixture.call);
	ck_assert_int_eq(atomic_load(&fixture.quota_owner.total), 0);
}
END_TEST

START_TEST(layout_stays)
{
	struct file *file = adopted(&whole);
	struct file_move *move;
	uint64_t moved;

	ck_assert_int_eq(file_truncate(file, &fixture.call, SIZE), 0);
	ck_assert_int_eq(file_truncate(file, &fixture.call, 0), -EPERM);
	ck_assert_int_eq(file_truncate(file, &fixture.call, SIZE + 1), -EPERM);
	ck_assert_int_eq(file_allocate(file, &fixture.call, 0, 0, SIZE), 0);
	ck_assert_int_eq(file_allocate(file, &fixture.call, 0, 0, SIZE + 1), -EFBIG);
	ck_assert_int_eq(file_allocate(file, &fixture.call,
				       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PIECE),
			 -EOPNOTSUPP);
	ck_assert_int_eq(file_relayout(file, &fixture.call), -EOPNOTSUPP);
	ck_assert_int_eq(file_move_begin(file, &fixture.call, &fixture.volumes[HOST], &move),
			 -EXDEV);
	fixture_spill(&fixture, 64 * MIB);
	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_HOST, UINT64_MAX, &moved), -EBUSY);
	ck_assert_int_eq(file_renew(file, &fixture.call), 0);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_GPU), SIZE);
	ck_assert_int_eq(file_seek(file, 5, SEEK_DATA), 5);
	ck_assert_int_eq(file_seek(file, 5, SEEK_HOLE), SIZE);
	file_free(file, &fixture.call);
}
END_TEST

/* The pieces are whole, so the first one begins before the file. */
START_TEST(sharers_get_the_pieces)
{
	struct file *file = adopted(&whole);
	struct file_chunk chunks[PIECES + 1];
	struct file_place place;

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_READ, FILE_MAY_WAIT), -EPERM);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, PIECES + 1, &place),
	    PIECES);
	for (unsigned i = 0; i < PIECES; i++) {
		ck_assert_int_eq((int64_t)chunks[i].offset, (int64_t)(i * PIECE) - (int64_t)SKIP);
		ck_assert_uint_eq(chunks[i].bytes, PIECE);
		char *mapped = mmap(NULL, PIECE, PROT_READ, MAP_SHARED, chunks[i].fd, 0);

		ck_assert_int_eq(memcmp(mapped, memory + i * PIECE, PIECE), 0);
		munmap(mapped, PIECE);
	}
	file_chunks_close(chunks, PIECES);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(copies_are_ordinary_files)
{
	struct file *file = adopted(&whole), *copy = fixture_file(&fixture, GPU1);
	char *bytes = malloc(SIZE);

	ck_assert_int_eq(file_copy(file, 0, copy, &fixture.call, 0, SIZE), SIZE);
	ck_assert_int_eq(file_read(copy, &fixture.call, bytes, SIZE, 0), SIZE);
	ck_assert_int_eq(memcmp(bytes, memory + SKIP, SIZE), 0);
	ck_assert_int_eq(file_truncate(copy, &fixture.call, 1), 0);
	free(bytes);
	file_free(copy, &fixture.call);
	file_free(file, &fixture.call);
}
END_TEST

/* Whole pieces are charged, as the file keeps all of them. */
START_TEST(pieces_are_charged)
{
	struct file *file = adopted(&(struct file_adoption){pieces, 1, 0, 1, false, false});

	ck_assert_int_eq(atomic_load(&fixture.quota_owner.total), PIECE);
	ck_assert_uint_eq(pool_usage(fixture.volumes[GPU0].pool).chunk_bytes, PIECE);
	file_free(file, &fixture.call);
	atomic_store(&fixture.quota_owner.limit, 2 * PIECE);
	expect_refused(&whole, -EDQUOT);
	atomic_store(&fixture.quota_owner.limit, INT64_MAX);
	pool_set_limits(fixture.volumes[GPU0].pool, &(struct pool_limits){.size = 2 * PIECE});
	expect_refused(&whole, -ENOSPC);
}
END_TEST

START_TEST(lies_are_refused)
{
	struct file_piece short_piece = {2 * PIECE, pieces[0].fd};
	struct file_piece odd = {PIECE - 4096, pieces[0].fd};
	struct file_piece empty = {0, pieces[0].fd};
	struct file_piece closed = {PIECE, 9999};
	struct file_piece huge[] = {{UINT64_MAX & ~(CHUNK_ALIGN - 1), pieces[0].fd},
				    {UINT64_MAX & ~(CHUNK_ALIGN - 1), pieces[0].fd}};
	struct file_piece unsealed = {PIECE, memfd_sealed(PIECE, F_SEAL_GROW)};
	struct file_piece other = {PIECE, open("/dev/null", O_RDWR | O_CLOEXEC)};

	expect_refused(&(struct file_adoption){pieces, 0, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){pieces, PIECES, 0, 0, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){pieces, PIECES, PIECE, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){pieces, PIECES, 0, PIECE, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){pieces, PIECES, 1, PIECES * PIECE, false, false},
		       -EINVAL);
	expect_refused(&(struct file_adoption){pieces, PIECES, 1, UINT64_MAX, false, false},
		       -EINVAL);
	expect_refused(&(struct file_adoption){&short_piece, 1, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){&odd, 1, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){&empty, 1, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){&closed, 1, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){huge, 2, 5, UINT64_MAX - 10, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){&unsealed, 1, 0, 1, false, false}, -EINVAL);
	expect_refused(&(struct file_adoption){&other, 1, 0, 1, false, false}, -EINVAL);
	close(unsealed.fd);
	close(other.fd);
}
END_TEST

START_TEST(only_an_empty_file_adopts)
{
	struct file *file = fixture_file(&fixture, GPU0), *host = fixture_file(&fixture, HOST);

	ck_assert_int_eq(file_write(file, &fixture.call, "x", 1, 0), 1);
	ck_assert_int_eq(adopt(file, &whole), -EBUSY);
	ck_assert_int_eq(adopt(host, &whole), -ENOTSUP);
	file_free(file, &fixture.call);
	file_free(host, &fixture.call);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("file foreign", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, bytes_are_the_programs);
	tcase_add_test(tests, nothing_beyond_its_bytes);
	tcase_add_test(tests, layout_stays);
	tcase_add_test(tests, sharers_get_the_pieces);
	tcase_add_test(tests, copies_are_ordinary_files);
	tcase_add_test(tests, pieces_are_charged);
	tcase_add_test(tests, lies_are_refused);
	tcase_add_test(tests, only_an_empty_file_adopts);
	return unit_main(suite);
}
