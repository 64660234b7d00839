/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files that are read from front to back: the blocks that are copied ahead, and every change after
 * which they must not be found. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/file/export.h"
#include "tests/unit/file_fixture.h"
#include "tests/unit/unseen.h"

#define SIZE  (8 * MIB)
#define PIECE (64 * KIB)

static struct fixture fixture;
static unsigned char *data;

static void up(void)
{
	uint64_t state = unit_seed();

	fixture_open(&fixture, 64 * MIB, 16 * MIB);
	data = malloc(SIZE);
	unit_fill(data, SIZE, &state);
}

static void down(void)
{
	free(data);
	fixture_close(&fixture);
}

static struct file *file_filled(int volume)
{
	struct file *file = fixture_file(&fixture, volume);

	ck_assert_int_eq(file_write(file, &fixture.call, data, SIZE, 0), SIZE);
	return file;
}

/* Reads as fs/ops does: the number of bytes. Sets *ahead if they were copied ahead. */
static ssize_t read_once(struct file *file, const struct file_call *call, void *to, size_t bytes,
			 uint64_t offset, bool *ahead)
{
	const char *at;
	struct ahead_block *block = file_read_ahead(file, call, bytes, offset, &at);

	*ahead = block;
	if (!block)
		return file_read(file, call, to, bytes, offset);
	memcpy(to, at, bytes);
	ahead_put(block);
	return (ssize_t)bytes;
}

/* Compares a range, read from front to back: the number of pieces that were copied ahead. */
static unsigned compare(struct file *file, const unsigned char *wanted, uint64_t from, uint64_t to,
			size_t piece)
{
	unsigned char *buffer = malloc(piece);
	unsigned n = 0;

	for (uint64_t at = from; at < to; at += piece) {
		size_t bytes = piece < to - at ? piece : to - at;
		bool ahead;

		ck_assert_int_eq(read_once(file, &fixture.call, buffer, piece, at, &ahead),
				 (ssize_t)bytes);
		ck_assert_mem_eq(buffer, wanted + at, bytes);
		n += ahead;
	}
	free(buffer);
	return n;
}

START_TEST(readers_get_blocks)
{
	static const size_t pieces[] = {4 * KIB, 64 * KIB, 100000, 1 * MIB};
	struct file *file = file_filled(GPU0);

	for (unsigned i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		unsigned n = compare(file, data, 0, SIZE, pieces[i]);

		/* All but the first two pieces, and pieces at the end. */
		ck_assert_uint_ge(n, SIZE / pieces[i] - 4);
	}
	ck_assert_uint_eq(atomic_load(&file->memory.ahead), 0);
	ahead_trim(fixture.ahead);
	ck_assert_uint_gt(compare(file, data, 0, SIZE, MIB), 0);
	file_free(file, &fixture.call);
}
END_TEST

/* The requests of a program that reads bytes at a time into memory that begins off bytes behind the
 * beginning of a page: a request of the kernel has at most 256 pages. The share of the bytes that
 * were copied ahead, in percent. */
static unsigned unaligned(struct file *file, size_t bytes, size_t off)
{
	unsigned char *buffer = malloc(MIB);
	uint64_t ahead_bytes = 0;

	for (uint64_t at = 0, left = 0; at < SIZE;) {
		size_t page = left ? (bytes - left + off) % (4 * KIB) : off;
		left = left ? left : bytes;
		size_t n = left < MIB - page ? left : MIB - page;
		bool ahead;

		n = n < SIZE - at ? n : SIZE - at;
		ck_assert_int_eq(read_once(file, &fixture.call, buffer, n, at, &ahead), (ssize_t)n);
		ck_assert_mem_eq(buffer, data + at, n);
		ahead_bytes += ahead ? n : 0;
		at += n;
		left -= n < left ? n : left;
	}
	free(buffer);
	return (unsigned)(100 * ahead_bytes / SIZE);
}

START_TEST(readers_into_unaligned_memory_get_blocks)
{
	static const size_t offs[] = {1, 16, 64, 2048, 4095};
	struct file *file = file_filled(GPU0);

	for (unsigned i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		ck_assert_uint_ge(unaligned(file, MIB, offs[i]), 70);
		ck_assert_uint_ge(unaligned(file, 2 * MIB, offs[i]), 60);
		ck_assert_uint_ge(unaligned(file, 512 * KIB, offs[i]), 80);
	}
	ck_assert_uint_eq(atomic_load(&file->memory.ahead), 0);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(other_readers_get_none)
{
	unsigned char *buffer = malloc(2 * MIB);
	struct file *file = file_filled(GPU0), *object = file_filled(HOST);
	uint64_t state = unit_seed();
	bool ahead;

	for (unsigned i = 0; i < 100; i++) {
		uint64_t at = unit_random(&state) % (SIZE - PIECE);

		ck_assert_int_eq(read_once(file, &fixture.call, buffer, PIECE, at, &ahead), PIECE);
		ck_assert(!ahead);
	}
	ck_assert_uint_eq(compare(file, data, 0, SIZE, 2 * MIB), 0);
	ck_assert_uint_eq(compare(object, data, 0, SIZE, PIECE), 0);
	fixture.call.attrs.copy = COPYING_BAR;
	ck_assert_uint_eq(compare(file, data, 0, SIZE, PIECE), 0);
	fixture.call.attrs.copy = COPYING_AUTO;
	ck_assert_int_eq(read_once(file, &fixture.call, buffer, PIECE, SIZE, &ahead), 0);
	free(buffer);
	file_free(file, &fixture.call);
	file_free(object, &fixture.call);
}
END_TEST

/* --- changes */

static void change_write(struct file *file, uint64_t at)
{
	memset(data + at, 1, PIECE);
	ck_assert_int_eq(file_write(file, &fixture.call, data + at, PIECE, at), PIECE);
}

static void change_copy(struct file *file, uint64_t at)
{
	memmove(data + at, data, PIECE);
	ck_assert_int_eq(file_copy(file, 0, file, &fixture.call, at, PIECE), PIECE);
}

static void change_allocate(struct file *file, uint64_t at, int mode)
{
	memset(data + at, 0, PIECE);
	ck_assert_int_eq(file_allocate(file, &fixture.call, mode | FALLOC_FL_KEEP_SIZE, at, PIECE),
			 0);
}

static void change_punch(struct file *file, uint64_t at)
{
	change_allocate(file, at, FALLOC_FL_PUNCH_HOLE);
}

static void change_zero(struct file *file, uint64_t at)
{
	change_allocate(file, at, FALLOC_FL_ZERO_RANGE);
}

static void change_truncate(struct file *file, uint64_t at)
{
	memset(data + at, 0, SIZE - at);
	ck_assert_int_eq(file_truncate(file, &fixture.call, at), 0);
	ck_assert_int_eq(file_truncate(file, &fixture.call, SIZE), 0);
}

/* Frees the memory that the blocks were copied from, and overwrites it. */
static void change_move(struct file *file, uint64_t at)
{
	struct file_move *move;

	(void)at;
	ck_assert_int_eq(file_move_begin(file, &fixture.call, &fixture.volumes[GPU1], &move), 0);
	file_move_end(move, FILE_MOVE_COMMIT);
	file_move_free(move);
	ck_assert_int_eq(file_move_begin(file, &fixture.call, &fixture.volumes[GPU0], &move), 0);
	file_move_end(move, FILE_MOVE_COMMIT);
	file_move_free(move);
}

static void change_lease(struct file *file, uint64_t at)
{
	struct file_chunk chunks[8];
	struct file_place place;

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 FILE_LEASE_HOLDS);
	int n = file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, 8, &place);

	ck_assert_int_gt(n, 0);
	memset(data + at, 2, PIECE);
	for (int i = 0; i < n; i++)
		if (at >= chunks[i].offset && at < chunks[i].offset + chunks[i].bytes)
			ck_assert_int_eq(
			    pwrite(chunks[i].fd, data + at, PIECE, (off_t)(at - chunks[i].offset)),
			    PIECE);
	file_chunks_close(chunks, (uint32_t)n);
	file_unlease(file, 1);
}

static void (*const changes[])(struct file *file, uint64_t at) = {
    change_write,    change_copy, change_punch, change_zero,
    change_truncate, change_move, change_lease,
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

START_TEST(changed_bytes_are_read)
{
	struct file *file = file_filled(GPU0);
	uint64_t middle = SIZE / 2;

	ck_assert_uint_gt(compare(file, data, 0, middle, PIECE), 0);
	ck_assert_uint_gt(atomic_load(&file->memory.ahead), 0);
	changes[_i](file, middle);
	ck_assert_uint_eq(atomic_load(&file->memory.ahead), 0);
	compare(file, data, middle, SIZE, PIECE);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(leased_files_get_none)
{
	struct file *file = file_filled(GPU0);

	change_lease(file, 0);
	ck_assert_uint_eq(compare(file, data, 0, SIZE, PIECE), 0);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(a_freed_file_has_no_blocks)
{
	struct file *file = file_filled(GPU0);

	compare(file, data, 0, SIZE / 2, PIECE);
	ck_assert_uint_gt(atomic_load(&file->memory.ahead), 0);
	file_free(file, &fixture.call);
	/* The next file may have the same address. */
	memset(data, 7, SIZE);
	file = file_filled(GPU0);
	compare(file, data, SIZE / 2, SIZE, PIECE);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(a_failed_copy_is_no_answer)
{
	unsigned char buffer[PIECE];
	struct file *file = file_filled(GPU0);
	bool ahead;

	compare(file, data, 0, PIECE, PIECE);
	/* The read itself works, the copy ahead of the program does not. */
	atomic_store(&fixture_work_left, 0);
	file_read_ahead(file, &fixture.call, PIECE, PIECE, &(const char *){NULL});
	atomic_store(&fixture_work_left, -1);
	ck_assert_int_eq(read_once(file, &fixture.call, buffer, PIECE, 2 * PIECE, &ahead), PIECE);
	ck_assert_mem_eq(buffer, data + 2 * PIECE, PIECE);
	ck_assert(!ahead);
	compare(file, data, 3 * PIECE, SIZE, PIECE);
	file_free(file, &fixture.call);
}
END_TEST

/* A reader that comes after so long a time that its block, the only one, could be reused. */
struct partial {
	struct span span;
	struct copier *copier; /* of the copy that failed */
};

/* The first piece is enqueued, and the second fails. */
static ssize_t partial_copy(void *pointer, struct copier *copier, void *to, size_t bytes,
			    uint64_t offset)
{
	struct partial *partial = pointer;

	(void)bytes, (void)offset;
	partial->copier = copier;
	ck_assert_int_eq(copy_out(copier, to, &partial->span, 0, PIECE, COPY_DMA), 0);
	return -EIO;
}

/* Otherwise the device would write into the block after the block has another file, and read memory
 * that is freed. */
START_TEST(a_failed_copy_is_not_under_way)
{
	struct chunk *chunk;
	_Atomic uint8_t blocks = 0;
	struct ahead *ahead;
	const char *at;

	ck_assert_int_eq(chunk_new(fixture.backend->devices[0], PLACE_GPU, CHUNK_ALIGN, &chunk), 0);
	struct partial partial = {.span = {.chunk = chunk, .bytes = CHUNK_ALIGN}};
	const struct ahead_file file = {&blocks, partial_copy, &partial};

	ck_assert_int_eq(ahead_new(fixture.backend, 4, &ahead), 0);
	ck_assert_ptr_null(ahead_read(ahead, &file, 0, PIECE, &at));
	ck_assert_ptr_null(ahead_read(ahead, &file, PIECE, PIECE, &at));
	ck_assert_ptr_nonnull(partial.copier);
	ck_assert(!partial.copier->enqueued);
	ck_assert_uint_eq(blocks, 0);
	ahead_free(ahead);
	chunk_free(chunk);
}
END_TEST

START_TEST(a_slow_reader_keeps_its_block)
{
	struct ahead *all = fixture.ahead;
	struct file *file = file_filled(GPU0);

	ck_assert_int_eq(ahead_new(fixture.backend, 1, &fixture.ahead), 0);
	fixture.volumes[GPU0].ahead = fixture.ahead;
	compare(file, data, 0, 2 * PIECE, PIECE);
	for (uint64_t at = 2 * PIECE; at < 6 * PIECE; at += PIECE) {
		usleep(25000);
		ck_assert_uint_eq(compare(file, data, at, at + PIECE, PIECE), 1);
	}
	file_free(file, &fixture.call);
	ahead_free(fixture.ahead);
	fixture.ahead = all;
}
END_TEST

/* More readers than blocks. */
START_TEST(more_readers_than_blocks)
{
	struct file *files[AHEAD_BLOCKS + 1];
	unsigned n = 0;

	for (unsigned i = 0; i <= AHEAD_BLOCKS; i++) {
		files[i] = file_filled(i % 2 ? GPU1 : GPU0);
		ck_assert_int_eq(file_truncate(files[i], &fixture.call, 3 * MIB), 0);
	}
	for (uint64_t at = 0; at < 3 * MIB; at += PIECE)
		for (unsigned i = 0; i <= AHEAD_BLOCKS; i++)
			n += compare(files[i], data, at, at + PIECE, PIECE);
	ck_assert_uint_gt(n, 0);
	for (unsigned i = 0; i <= AHEAD_BLOCKS; i++)
		file_free(files[i], &fixture.call);
}
END_TEST

/* --- threads */

#define PARTS	4
#define PART	(MIB / 2)
#define READERS 3

/* Each part is filled with one byte, which the writer publishes after the write. A reader that
 * begins later must get this byte, or a later one. */
static struct file *shared;
static _Atomic unsigned published[PARTS];
static atomic_bool ending;

/* A GPU copies bytes of a file while another copy changes them, which the sanitizer does not see on
 * a GPU either. */
static int unseen_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		     size_t bytes)
{
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	int rc = backend_host_ops.dma_in(copier, to, offset, from, bytes);

	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	return rc;
}

static int unseen_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		      size_t bytes)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	int rc = backend_host_ops.dma_out(copier, to, from, offset, bytes);

	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	return rc;
}

static void *write_beside_readers(void *pointer)
{
	unsigned char *bytes = malloc(PART);
	struct file_call call = fixture.call;

	(void)pointer;
	ck_assert_int_eq(copier_open(fixture.backend, &call.copier), 0);
	for (unsigned value = 1; value < 24; value++)
		for (unsigned part = 0; part < PARTS; part++) {
			memset(bytes, (int)value, PART);
			ck_assert_int_eq(file_write(shared, &call, bytes, PART, part * PART), PART);
			atomic_store(&published[part], value);
			if (value % 8 == part)
				change_move(shared, 0);
		}
	atomic_store(&ending, true);
	copier_close(call.copier);
	free(bytes);
	return NULL;
}

static void *read_beside_writer(void *pointer)
{
	size_t piece = (size_t)(uintptr_t)pointer;
	unsigned char *bytes = malloc(piece);
	struct file_call call = fixture.call;
	unsigned n = 0;

	ck_assert_int_eq(copier_open(fixture.backend, &call.copier), 0);
	while (!atomic_load(&ending))
		for (uint64_t at = 0; at < PARTS * PART; at += piece) {
			unsigned least = atomic_load(&published[at / PART]);
			bool ahead;

			ck_assert_int_eq(read_once(shared, &call, bytes, piece, at, &ahead),
					 (ssize_t)piece);
			n += ahead;
			for (size_t i = 0; i < piece; i += 512)
				ck_assert_uint_ge(bytes[i], least);
		}
	copier_close(call.copier);
	free(bytes);
	return (void *)(uintptr_t)n;
}

START_TEST(readers_beside_a_writer)
{
	static const size_t pieces[READERS] = {16 * KIB, 64 * KIB, 256 * KIB};
	pthread_t writer, readers[READERS];

	fixture.ops.dma_in = unseen_in;
	fixture.ops.dma_out = unseen_out;
	memset(data, 0, SIZE);
	shared = file_filled(GPU0);
	ck_assert_int_eq(file_truncate(shared, &fixture.call, PARTS * PART), 0);
	for (uintptr_t i = 0; i < READERS; i++)
		ck_assert_int_eq(
		    pthread_create(&readers[i], NULL, read_beside_writer, (void *)pieces[i]), 0);
	ck_assert_int_eq(pthread_create(&writer, NULL, write_beside_readers, NULL), 0);
	pthread_join(writer, NULL);
	uintptr_t ahead = 0;

	for (unsigned i = 0; i < READERS; i++) {
		void *n;

		pthread_join(readers[i], &n);
		ahead += (uintptr_t)n;
	}
	ck_assert_uint_gt(ahead, 0);
	file_free(shared, &fixture.call);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("file_ahead", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, readers_get_blocks);
	tcase_add_test(tcase, readers_into_unaligned_memory_get_blocks);
	tcase_add_test(tcase, other_readers_get_none);
	tcase_add_loop_test(tcase, changed_bytes_are_read, 0, (int)CHANGES);
	tcase_add_test(tcase, leased_files_get_none);
	tcase_add_test(tcase, a_freed_file_has_no_blocks);
	tcase_add_test(tcase, a_failed_copy_is_no_answer);
	tcase_add_test(tcase, a_failed_copy_is_not_under_way);
	tcase_add_test(tcase, a_slow_reader_keeps_its_block);
	tcase_add_test(tcase, more_readers_than_blocks);
	tcase_add_test(tcase, readers_beside_a_writer);
	return unit_main(suite);
}
