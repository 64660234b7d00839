/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_export with a fake daemon, whose chunks are memfds of any kind. */
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "tests/unit/client_fixture.h"

#define CHUNKS 5

static ino_t dmabuf; /* the object that the kernel calls a dma-buf */

/* Replaces libc's function. */
int fstatfs(int fd, struct statfs *st)
{
	struct stat file;
	int rc = (int)syscall(SYS_fstatfs, fd, st);

	if (rc == 0 && dmabuf && fstat(fd, &file) == 0 && file.st_ino == dmabuf)
		st->f_type = DMA_BUF_MAGIC;
	return rc;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static gpumem *open_kind(uint32_t kind, uint32_t flags)
{
	FAKE(fake.kind = kind; fake.flags = flags; memcpy(fake.uuid, "sixteen bytes of", 16));
	for (unsigned i = 0; i < CHUNKS; i++)
		fake_add((i + 1) * 2 * MIB_);
	return fake_open();
}

static void expect_failure(int error, const char *text)
{
	int got = errno;

	ck_assert_msg(got == error && strstr(gpumem_error(), text),
		      "errno %d (%s), wanted %d and '%s'", got, gpumem_error(), error, text);
}

static void pieces_close(const struct gpumem_piece *pieces, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(close(pieces[i].fd), 0);
}

static void export_refused(gpumem *file, int flags, int error, const char *text)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;
	unsigned open = open_descriptors();

	ck_assert_int_eq(gpumem_export(file, flags, pieces, &n), -1);
	expect_failure(error, text);
	ck_assert_uint_eq(open_descriptors(), open);
}

/* Every chunk is a piece with a descriptor of its own, which outlives the handle. */
START_TEST(pieces_are_the_chunks)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = 0;
	uint64_t at = 0;

	gpumem *file = open_kind(GPUMEM_KIND_VULKAN, 0);
	dmabuf = inode_of(fake.fds[2]);
	ck_assert_int_eq(gpumem_export(file, 0, NULL, &n), 0);
	ck_assert_uint_eq(n, CHUNKS);
	ck_assert_int_eq(gpumem_export(file, 0, pieces, &n), 0);
	ck_assert_int_eq(gpumem_close(file), 0);
	for (unsigned i = 0; i < CHUNKS; i++) {
		const struct gpumem_piece *piece = &pieces[i];
		ck_assert_uint_eq(piece->offset, at);
		ck_assert_uint_eq(piece->bytes, (i + 1) * 2 * MIB_);
		ck_assert_uint_eq(piece->memory_offset, 0);
		ck_assert_uint_eq(piece->memory_bytes, piece->bytes);
		ck_assert_uint_eq(piece->handles, i == 2
						      ? GPUMEM_HANDLE_OPAQUE | GPUMEM_HANDLE_DMABUF
						      : GPUMEM_HANDLE_OPAQUE);
		ck_assert_uint_eq(inode_of(piece->fd), inode_of(fake.fds[i]));
		ck_assert_int_eq(fcntl(piece->fd, F_GETFD), FD_CLOEXEC);
		ck_assert_mem_eq(piece->uuid, "sixteen bytes of", 16);
		at += piece->bytes;
	}
	pieces_close(pieces, n);
	eventually(&fake.leases, 0);
}
END_TEST

START_TEST(cudas_memory_is_named_so)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;

	gpumem *file = open_kind(GPUMEM_KIND_DEVICE, 0);
	ck_assert_int_eq(gpumem_export(file, 0, pieces, &n), 0);
	for (unsigned i = 0; i < CHUNKS; i++)
		ck_assert_uint_eq(pieces[i].handles, GPUMEM_HANDLE_CUDA);
	pieces_close(pieces, n);
	gpumem_close(file);
}
END_TEST

START_TEST(too_little_room)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS - 1;

	gpumem *file = open_kind(GPUMEM_KIND_VULKAN, 0);
	unsigned open = open_descriptors();
	ck_assert_int_eq(gpumem_export(file, 0, pieces, &n), -1);
	expect_failure(ERANGE, "5 pieces");
	ck_assert_uint_eq(n, CHUNKS);
	ck_assert_uint_eq(open_descriptors(), open);
	gpumem_close(file);
}
END_TEST

START_TEST(system_memory_is_mapped_instead)
{
	gpumem *file = open_kind(GPUMEM_KIND_MEMFD, 0);

	export_refused(file, 0, EOPNOTSUPP, "gpumem_map_host");
	gpumem_close(file);
}
END_TEST

/* A descriptor cannot be made read-only, so the program has to promise. */
START_TEST(readers_promise)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;

	gpumem *file = open_kind(GPUMEM_KIND_VULKAN, GPUMEM_LAYOUT_READ_ONLY);
	export_refused(file, 0, EACCES, "O_RDWR");
	export_refused(file, 2, EINVAL, "flags");
	ck_assert_int_eq(gpumem_export(file, GPUMEM_EXPORT_FOR_READING, pieces, &n), 0);
	pieces_close(pieces, n);
	gpumem_close(file);
}
END_TEST

/* The copy is the handle's own, and may be written. */
START_TEST(private_copies_need_no_promise)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;

	gpumem *file = open_kind(GPUMEM_KIND_DEVICE, GPUMEM_LAYOUT_PRIVATE);
	ck_assert_int_eq(gpumem_export(file, 0, pieces, &n), 0);
	pieces_close(pieces, n);
	gpumem_close(file);
}
END_TEST

START_TEST(no_descriptors_left)
{
	struct rlimit limit, few;

	gpumem *file = open_kind(GPUMEM_KIND_VULKAN, 0);
	int next = dup(0);
	close(next);
	getrlimit(RLIMIT_NOFILE, &limit);
	few = (struct rlimit){.rlim_cur = (rlim_t)next + 3, .rlim_max = limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;
	int rc = gpumem_export(file, 0, pieces, &n);
	int error = errno;
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_int_eq(rc, -1);
	ck_assert_int_eq(error, EMFILE);
	ck_assert_int_eq(dup(0), next); /* none of the pieces is left open */
	gpumem_close(file);
}
END_TEST

/* The memory of a parked file may become another file's while the program uses imports. */
START_TEST(an_exported_file_is_not_parked)
{
	struct gpumem_piece pieces[CHUNKS];
	size_t n = CHUNKS;

	gpumem *file = open_kind(GPUMEM_KIND_DEVICE, 0);
	ck_assert_int_eq(gpumem_export(file, 0, NULL, &n), 0);
	ck_assert_int_eq(gpumem_park(file), 0);
	export_refused(file, 0, EBUSY, "parked");
	ck_assert_int_eq(gpumem_unpark(file), 0);
	ck_assert_int_eq(gpumem_export(file, 0, pieces, &n), 0);
	ck_assert_int_eq(gpumem_park(file), -1);
	expect_failure(ENOTSUP, "exported");
	pieces_close(pieces, n);
	gpumem_close(file);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_export", &tcase, 60);

	fake_path();
	tcase_add_test(tcase, pieces_are_the_chunks);
	tcase_add_test(tcase, cudas_memory_is_named_so);
	tcase_add_test(tcase, too_little_room);
	tcase_add_test(tcase, system_memory_is_mapped_instead);
	tcase_add_test(tcase, readers_promise);
	tcase_add_test(tcase, private_copies_need_no_promise);
	tcase_add_test(tcase, no_descriptors_left);
	tcase_add_test(tcase, an_exported_file_is_not_parked);
	int status = unit_main(suite);
	fake_forget();
	return status;
}
