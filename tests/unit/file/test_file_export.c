/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files with memory in other processes: the memory that sharers get, and the calls that stay
 * refused. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/file/export.h"
#include "tests/unit/file_fixture.h"

static struct fixture fixture;
static struct file_place place;

static void up(void)
{
	fixture_open(&fixture, 64 * MIB, 16 * MIB);
}

static void down(void)
{
	fixture_close(&fixture);
}

static struct file *file_with(unsigned volume, const void *data, size_t bytes, uint64_t offset)
{
	struct file *file;

	ck_assert_int_eq(file_new(&fixture.volumes[volume], &file), 0);
	ck_assert_int_eq(file_write(file, &fixture.call, data, bytes, offset), (ssize_t)bytes);
	return file;
}

/* Maps the chunks one after the other into a range, as a client does. */
static char *map_chunks(const struct file_chunk *chunks, uint32_t count)
{
	uint64_t end = count ? chunks[count - 1].offset + chunks[count - 1].bytes : 0, at = 0;
	char *range = mmap(NULL, end, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(range, MAP_FAILED);
	for (uint32_t i = 0; i < count; i++) {
		ck_assert_uint_eq(chunks[i].offset, at);
		ck_assert_uint_eq(chunks[i].bytes % CHUNK_ALIGN, 0);
		ck_assert_ptr_eq(mmap(range + at, chunks[i].bytes, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, chunks[i].fd, 0),
				 range + at);
		at += chunks[i].bytes;
	}
	return range;
}

static uint64_t mapped_bytes(const struct file_chunk *chunks, uint32_t count)
{
	return chunks[count - 1].offset + chunks[count - 1].bytes;
}

static bool only(const char *data, char byte, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte)
			return false;
	return true;
}

/* Small files lie side by side in a chunk: a sharer of one file sees no byte of the other file. */
START_TEST(nothing_of_other_files)
{
	char mine[5000], other[60000];
	struct file_chunk chunk;

	memset(mine, 'm', sizeof(mine));
	memset(other, 'o', sizeof(other));
	struct file *neighbour = file_with(GPU0, other, sizeof(other), 0);
	struct file *file = file_with(GPU0, mine, sizeof(mine), 0);

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, &chunk, 1, &place), 1);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 1, &chunk + 1, 1, &place), 0);
	char *map = map_chunks(&chunk, 1);

	ck_assert(only(map, 'm', sizeof(mine)));
	ck_assert(only(map + sizeof(mine), 0, CHUNK_ALIGN - sizeof(mine)));
	map[0] = 'x';
	ck_assert_int_eq(file_read(file, &fixture.call, mine, 2, 0), 2);
	ck_assert_mem_eq(mine, "xm", 2);
	ck_assert_int_eq(file_read(neighbour, &fixture.call, other, sizeof(other), 0),
			 sizeof(other));
	ck_assert(only(other, 'o', sizeof(other)));
	munmap(map, CHUNK_ALIGN);
	file_chunks_close(&chunk, 1);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
	file_free(neighbour, &fixture.call);
}
END_TEST

/* A file that grew in small steps and has holes is exported as chunks without gaps. */
START_TEST(holes_are_filled)
{
	enum { MAX = 64 };
	struct file_chunk chunks[MAX];
	char data[100000], back[100000];
	uint64_t far = 9 * MIB + 12345;

	memset(data, 'd', sizeof(data));
	struct file *file = file_with(GPU0, data, sizeof(data), 700);

	ck_assert_int_eq(file_write(file, &fixture.call, data, sizeof(data), far), sizeof(data));
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	int count =
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, MAX, &place);

	ck_assert_int_gt(count, 0);
	char *map = map_chunks(chunks, (uint32_t)count);

	ck_assert_uint_ge(mapped_bytes(chunks, (uint32_t)count), far + sizeof(data));
	ck_assert(only(map, 0, 700));
	ck_assert(only(map + 700, 'd', sizeof(data)));
	ck_assert(only(map + 700 + sizeof(data), 0, far - 700 - sizeof(data)));
	ck_assert(only(map + far, 'd', sizeof(data)));
	memset(map + 5 * MIB, 'n', 10);
	ck_assert_int_eq(file_read(file, &fixture.call, back, 12, 5 * MIB - 1), 12);
	ck_assert_mem_eq(back, "\0nnnnnnnnnn\0", 12);
	munmap(map, mapped_bytes(chunks, (uint32_t)count));
	file_chunks_close(chunks, (uint32_t)count);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(what_is_shared_stays)
{
	static char data[5 * MIB];
	struct file_call call = fixture.call;
	struct file_move *move;

	struct file *file = file_with(GPU0, data, sizeof(data), 0);

	call.attrs.page_size = PAGE_SIZE_64K;
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(file_truncate(file, &fixture.call, 100), -EBUSY);
	ck_assert_int_eq(file_truncate(file, &fixture.call, 0), -EBUSY);
	ck_assert_int_eq(file_truncate(file, &fixture.call, sizeof(data)), 0);
	ck_assert_int_eq(
	    file_allocate(file, &fixture.call, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
	    -EBUSY);
	ck_assert_int_eq(file_relayout(file, &call), -EBUSY);
	ck_assert_int_eq(file_move_begin(file, &fixture.call, &fixture.volumes[GPU1], &move),
			 -EBUSY);
	/* Growth, writes and zeroing are visible to every sharer, and do not take memory away. */
	ck_assert_int_eq(file_truncate(file, &fixture.call, sizeof(data) + 1), 0);
	ck_assert_int_eq(file_write(file, &fixture.call, "x", 1, 0), 1);
	ck_assert_int_eq(file_allocate(file, &fixture.call, FALLOC_FL_ZERO_RANGE, 0, 4096), 0);
	file_unlease(file, 1);
	ck_assert_int_eq(file_truncate(file, &fixture.call, 100), 0);
	ck_assert_int_eq(file_relayout(file, &call), 0);
	file_free(file, &fixture.call);
}
END_TEST

/* The sharer's addresses stay, and the new chunks follow. */
START_TEST(growth_is_handed_on)
{
	enum { MAX = 64 };
	static char data[3 * MIB];
	struct file_chunk before[MAX], after[MAX];

	memset(data, 'a', sizeof(data));
	struct file *file = file_with(GPU0, data, 1000, 0);

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	int had = file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, before, MAX, &place);

	ck_assert_int_eq(had, 1);
	memset(data, 'b', sizeof(data));
	ck_assert_int_eq(file_write(file, &fixture.call, data, sizeof(data), 1000), sizeof(data));
	ck_assert_int_eq(file_lease_more(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	int more = file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, (uint32_t)had, after,
			       MAX - had, &place);

	ck_assert_int_ge(more, 1);
	ck_assert_uint_eq(after[0].offset, before[0].bytes);
	char *map = mmap(NULL, CHUNK_ALIGN, PROT_READ, MAP_SHARED, before[0].fd, 0);

	ck_assert(only(map, 'a', 1000) && only(map + 1000, 'b', CHUNK_ALIGN - 1000));
	munmap(map, CHUNK_ALIGN);
	map = mmap(NULL, CHUNK_ALIGN, PROT_READ, MAP_SHARED, after[0].fd, 0);
	ck_assert(only(map, 'b', 1000 + sizeof(data) - CHUNK_ALIGN));
	munmap(map, CHUNK_ALIGN);
	file_chunks_close(before, (uint32_t)had);
	file_chunks_close(after, (uint32_t)more);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

/* Memory allocated since the file's preparation may lie beside other files' bytes, or after a hole:
 * such memory is prepared too before the export. */
START_TEST(what_is_not_fit_is_not_handed_out)
{
	static const uint64_t wheres[] = {CHUNK_ALIGN, 3 * CHUNK_ALIGN};
	static char data[CHUNK_ALIGN];
	struct file_call small = fixture.call;
	struct file_chunk chunks[8];

	small.attrs.page_size = PAGE_SIZE_64K;
	for (unsigned i = 0; i < 2; i++) {
		struct file *neighbour = file_with(GPU0, "secret", 6, 0);
		struct file *file = file_with(GPU0, data, sizeof(data), 0);

		ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
				 0);
		ck_assert_int_eq(file_allocate(file, &small, 0, wheres[i], 100), 0);
		ck_assert_int_eq(
		    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, 8, &place),
		    1);
		ck_assert_uint_eq(chunks[0].bytes, CHUNK_ALIGN);
		file_chunks_close(chunks, 1);
		ck_assert_int_eq(
		    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 1, chunks, 8, &place),
		    0);
		file_unlease(file, 1);
		file_free(file, &fixture.call);
		file_free(neighbour, &fixture.call);
	}
}
END_TEST

START_TEST(a_refused_lease_changes_nothing)
{
	static char data[40000];
	char back[40000];

	memset(data, 'r', sizeof(data));
	struct file *file = file_with(GPU0, data, sizeof(data), 0);
	uint64_t allocated = file_allocated(file);

	/* The file's own chunk would take 2 MiB of quota. */
	fixture.quota_owner.limit = 1 * MIB;
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), -EDQUOT);
	ck_assert_uint_eq(file_leases(file), 0);
	ck_assert_uint_eq(file_allocated(file), allocated);
	ck_assert_int_eq(file_read(file, &fixture.call, back, sizeof(back), 0), sizeof(back));
	ck_assert(only(back, 'r', sizeof(back)));
	fixture.quota_owner.limit = INT64_MAX;
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(host_objects_by_access)
{
	struct file_chunk chunk;

	struct file *file = file_with(HOST, "host", 4, 0);

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_READ, FILE_MAY_WAIT, 0, &chunk, 1, &place), 1);
	ck_assert_uint_eq(chunk.bytes, 4);
	ck_assert_ptr_eq(place.volume, &fixture.volumes[HOST]);
	ck_assert_uint_eq(place.size, 4);
	ck_assert_int_eq(fcntl(chunk.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_ptr_eq(mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, chunk.fd, 0),
			 MAP_FAILED);
	file_chunks_close(&chunk, 1);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, &chunk, 1, &place), 1);
	char *map = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, chunk.fd, 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_mem_eq(map, "host", 4);
	munmap(map, 4);
	file_chunks_close(&chunk, 1);
	ck_assert_int_eq(file_truncate(file, &fixture.call, 0), -EBUSY);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

/* Writable memory is exported to writers, and to readers only if the file's attribute says so. */
START_TEST(device_memory_by_access)
{
	struct file_chunk chunk;
	struct file *file = file_with(GPU0, "device", 6, 0);
	uint64_t allocated = file_allocated(file);

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_READ, FILE_MAY_WAIT), -EPERM);
	ck_assert_uint_eq(file_leases(file), 0);
	ck_assert_uint_eq(file_allocated(file), allocated);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_TRUSTED, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(file_lease_more(file, &fixture.call, FILE_SHARE_READ, FILE_MAY_WAIT),
			 -EPERM);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_READ, FILE_MAY_WAIT, 0, &chunk, 1, &place), -EPERM);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_READ, FILE_MAY_WAIT, 5, &chunk, 1, &place), -EPERM);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_TRUSTED, FILE_MAY_WAIT, 0, &chunk, 1, &place), 1);
	ck_assert_ptr_eq(place.volume, &fixture.volumes[GPU0]);
	ck_assert_uint_eq(place.size, 6);
	file_chunks_close(&chunk, 1);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

static struct file *moving;

static void *lease_to_read(void *result)
{
	*(int *)result = file_lease(moving, &fixture.call, FILE_SHARE_READ, FILE_MAY_WAIT);
	return NULL;
}

/* A reader's access is decided on the volume that the file has moved to, not on the volume at the
 * start of the reader's wait. */
START_TEST(a_move_to_a_device_is_noticed)
{
	struct file_move *move;
	struct file_chunk chunk;
	pthread_t reader;
	int leased = 1;

	moving = file_with(HOST, "moving", 6, 0);
	ck_assert_int_eq(file_move_begin(moving, &fixture.call, &fixture.volumes[GPU0], &move), 0);
	ck_assert_int_eq(pthread_create(&reader, NULL, lease_to_read, &leased), 0);
	file_move_end(move, FILE_MOVE_COMMIT);
	pthread_join(reader, NULL);
	file_move_free(move);
	ck_assert_int_eq(leased, -EPERM);
	ck_assert_uint_eq(file_leases(moving), 0);
	ck_assert_int_eq(
	    file_export(moving, NULL, FILE_SHARE_READ, FILE_MAY_WAIT, 0, &chunk, 1, &place),
	    -EPERM);
	file_free(moving, &fixture.call);
}
END_TEST

/* A lease without waiting succeeds only for a file that needs no preparation and is in no move;
 * otherwise the file does not change. */
START_TEST(without_waiting)
{
	struct file *file = file_with(GPU0, "small", 5, 0);
	struct file_chunk chunk;
	struct file_move *move;

	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT),
			 -EINPROGRESS);
	ck_assert_uint_eq(file_leases(file), 0);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT), 0);
	ck_assert_uint_eq(file_leases(file), 2);
	ck_assert_int_eq(file_lease_more(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT), 0);
	ck_assert_int_eq(file_lease_more(file, &fixture.call, FILE_SHARE_READ, FILE_NO_WAIT),
			 -EPERM);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_NO_WAIT, 0, &chunk, 1, &place), 1);
	file_chunks_close(&chunk, 1);
	file_unlease(file, 2);
	ck_assert_int_eq(file_move_begin(file, &fixture.call, &fixture.volumes[HOST], &move), 0);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT),
			 -EINPROGRESS);
	ck_assert_int_eq(file_lease_more(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT),
			 -EINPROGRESS);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_NO_WAIT, 0, &chunk, 1, &place),
	    -EINPROGRESS);
	file_move_end(move, FILE_MOVE_ABORT);
	file_move_free(move);
	ck_assert_uint_eq(file_leases(file), 0);
	file_free(file, &fixture.call);
}
END_TEST

/* Several leases of a file end in one call, as the leases of a process that ended. */
START_TEST(several_leases_end_at_once)
{
	struct file *file = file_with(GPU0, "several", 7, 0);

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
				 FILE_LEASE_HOLDS);
	file_unlease(file, 3);
	ck_assert_uint_eq(file_leases(file), 1);
	ck_assert(file_is_held(file));
	ck_assert_int_eq(file_truncate(file, &fixture.call, 0), -EBUSY);
	file_unlease(file, 1);
	ck_assert_uint_eq(file_leases(file), 0);
	ck_assert(!file_is_held(file));
	ck_assert_int_eq(file_truncate(file, &fixture.call, 0), 0);
	ck_assert_uint_eq(file_allocated(file), 0);
	file_free(file, &fixture.call);
}
END_TEST

/* The exports of a driver take time: a thread that other requests wait for neither leases nor
 * exports a file of many chunks. */
START_TEST(many_chunks_are_for_those_who_wait)
{
	enum { CHUNKS = FILE_QUICK_CHUNKS + 1 };
	static char data[CHUNK_ALIGN];
	struct file_chunk chunks[CHUNKS];
	struct file *file;

	ck_assert_int_eq(file_new(&fixture.volumes[GPU0], &file), 0);
	fixture.volumes[GPU0].max_chunk = CHUNK_ALIGN;
	for (int i = 0; i < CHUNKS; i++) {
		ck_assert_int_eq(
		    file_write(file, &fixture.call, data, sizeof(data), (uint64_t)i * sizeof(data)),
		    sizeof(data));
		ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT),
				 i < FILE_QUICK_CHUNKS ? 0 : -EINPROGRESS);
	}
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_NO_WAIT, 0, chunks, CHUNKS, &place),
	    -EINPROGRESS);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, CHUNKS, &place),
	    CHUNKS);
	file_chunks_close(chunks, CHUNKS);
	file_unlease(file, CHUNKS);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(an_empty_file_has_no_chunks)
{
	struct file_chunk chunk;
	struct file *file;

	ck_assert_int_eq(file_new(&fixture.volumes[GPU0], &file), 0);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT), 0);
	ck_assert_int_eq(
	    file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, &chunk, 1, &place), 0);
	file_unlease(file, 1);
	file_free(file, &fixture.call);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("file share", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, nothing_of_other_files);
	tcase_add_test(tests, holes_are_filled);
	tcase_add_test(tests, what_is_shared_stays);
	tcase_add_test(tests, growth_is_handed_on);
	tcase_add_test(tests, what_is_not_fit_is_not_handed_out);
	tcase_add_test(tests, a_refused_lease_changes_nothing);
	tcase_add_test(tests, host_objects_by_access);
	tcase_add_test(tests, device_memory_by_access);
	tcase_add_test(tests, a_move_to_a_device_is_noticed);
	tcase_add_test(tests, without_waiting);
	tcase_add_test(tests, several_leases_end_at_once);
	tcase_add_test(tests, many_chunks_are_for_those_who_wait);
	tcase_add_test(tests, an_empty_file_has_no_chunks);
	return unit_main(suite);
}
