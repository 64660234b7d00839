/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_align on ordinary files: the results, the refusals, and the files that remain after a
 * failure. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/gpumem.h"
#include "client/lib/safetensors/safetensors.h"
#include "tests/unit/unit.h"

#define HEADER_ROOM 4096

static char folder[] = "/tmp/gpumem-align-XXXXXX";

/* The number of bytes that copy_file_range copies before the call fails. */
static size_t inside_bytes = SIZE_MAX;
/* The file that copy_file_range truncates, as another process might. */
static const char *shrinks;

/* The file that copy_file_range creates, as another process might. */
static const char *appears;
/* The filesystem has no O_TMPFILE. */
static bool no_nameless;

/* Replaces libc's function. */
int openat(int folder, const char *name, int flags, ...)
{
	va_list arguments;

	va_start(arguments, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (no_nameless && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_openat, folder, name, flags, mode);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size,
			unsigned flags)
{
	char piece[4096];
	size_t n = size < sizeof(piece) ? size : sizeof(piece);

	ck_assert_uint_eq(flags, 0);
	if (n > inside_bytes)
		n = inside_bytes;
	if (appears)
		close(open(appears, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	if (shrinks)
		ck_assert_int_eq(truncate(shrinks, 4000000), 0);
	if (!n) {
		errno = EXDEV;
		return -1;
	}
	ssize_t got = pread(from, piece, n, *from_at);
	if (got <= 0)
		return got;
	got = pwrite(to, piece, (size_t)got, *to_at);
	if (got > 0) {
		*from_at += got;
		*to_at += got;
		inside_bytes -= (size_t)got;
	}
	return got;
}

static void enter(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	umask(022);
}

static void leave(void)
{
	DIR *dir = opendir(".");
	struct dirent *entry;

	while ((entry = readdir(dir)))
		if (unlink(entry->d_name) < 0)
			rmdir(entry->d_name);
	closedir(dir);
	ck_assert_int_eq(rmdir(folder), 0);
}

static unsigned count_files(void)
{
	DIR *dir = opendir(".");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static unsigned char data_at(uint64_t i)
{
	return (unsigned char)(i * 2654435761U >> 13);
}

/* Writes a file with the header and the given number of bytes of data. */
static void put(const char *name, const char *header, uint64_t bytes)
{
	FILE *file = fopen(name, "we");
	uint64_t length = strlen(header);

	ck_assert_ptr_nonnull(file);
	fwrite(&length, sizeof(length), 1, file);
	fwrite(header, length, 1, file);
	for (uint64_t i = 0; i < bytes; i++)
		putc(data_at(i), file);
	ck_assert_int_eq(fclose(file), 0);
}

/* Checks that the file has the header, padded with spaces, and the given number of bytes of data at
 * start. */
static void expect(const char *name, const char *header, uint64_t bytes, uint64_t start)
{
	FILE *file = fopen(name, "re");
	char text[HEADER_ROOM];
	uint64_t length;

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fread(&length, sizeof(length), 1, file), 1);
	ck_assert_uint_eq(8 + length, start);
	ck_assert_uint_lt(length, sizeof(text));
	ck_assert_uint_eq(fread(text, 1, length, file), length);
	ck_assert_mem_eq(text, header, strlen(header));
	/* No ck_assert in the loops: each ck_assert is a system call. */
	for (uint64_t i = strlen(header); i < length; i++)
		if (text[i] != ' ')
			ck_abort_msg("no space at %llu of the header", (unsigned long long)i);
	for (uint64_t i = 0; i < bytes; i++)
		if (getc(file) != data_at(i))
			ck_abort_msg("another byte at %llu", (unsigned long long)i);
	ck_assert_int_eq(getc(file), EOF);
	fclose(file);
}

/* Returns the offset of the data in target. */
static uint64_t align(const char *source, const char *target)
{
	struct gpumem_safetensors *header = NULL;

	ck_assert_msg(gpumem_align(source, target, 256, &header) == 0, "%s", gpumem_error());
	uint64_t start = header->data_start;
	gpumem_safetensors_free(header);
	return start;
}

static void refused(int error, const char *text, const char *source, const char *target,
		    size_t alignment)
{
	unsigned files = count_files();

	errno = 0;
	ck_assert_int_eq(gpumem_align(source, target, alignment, NULL), -1);
	ck_assert_msg(errno == error, "%s: %s, '%s'", source, strerror(errno), gpumem_error());
	ck_assert_msg(strstr(gpumem_error(), text), "'%s' says nothing of '%s'", gpumem_error(),
		      text);
	ck_assert_uint_eq(count_files(), files);
}

#define T	       "{\"dtype\":\"U8\",\"shape\":[10],\"data_offsets\":[0,10]}"
#define TENSOR(fields) "{\"t\":{" fields "}}"
#define OF(dtype, shape, offsets)                                                                  \
	TENSOR("\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets)
#define LONG "012345678901234567890123456789012345678901234567890123456789"

static const struct {
	const char *header, *text;
	uint64_t bytes;
} bad[] = {
    {"", "begin with '{'", 0},
    {" {}", "begin with '{'", 0},
    {"[]", "begin with '{'", 0},
    {"{", "not as the format has it", 0},
    {"{} x", "not as the format has it", 0},
    {"{\"\xff\":1}", "not as the format has it", 0},
    {"{\"a\\u0000\":1}", "not as the format has it", 0},
    {"{}", "1 bytes of data", 1},
    {"{\"t\":" T ",\"t\":" T "}", "'t' is there twice", 10},
    {"{\"\\\\\\\"" LONG "\":1,\"\\\\\\\"" LONG "\":1}", "'\\\\\\\"" LONG, 10},
    {TENSOR("\"dtype\":\"U8\",\"dtype\":\"U8\""), "'dtype' is there twice", 0},
    {"{\"a\\nb\":1}", "'a\\012b': its entry is not an object", 0},
    {"{\"__metadata__\":{\"a\":1}}", "__metadata__ is not an object of strings", 0},
    {"{\"__metadata__\":[]}", "__metadata__ is not an object of strings", 0},
    {TENSOR("\"dtype\":\"U8\",\"shape\":[1]"), "'t': no data_offsets", 1},
    {TENSOR("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), "'t': no shape", 1},
    {TENSOR("\"shape\":[1],\"data_offsets\":[0,1]"), "'t': no dtype", 1},
    {OF("\"F33\"", "[1]", "[0,1]"), "'t': unknown dtype 'F33'", 1},
    {OF("[\"U8\"]", "[1]", "[0,1]"), "'t': unknown dtype", 1},
    {OF("\"U8\"", "1", "[0,1]"), "'t': shape is not a list", 1},
    {OF("\"U8\"", "[-1]", "[0,1]"), "'t': shape is not a list", 1},
    {OF("\"U8\"", "[true]", "[0,1]"), "'t': shape is not a list", 1},
    {OF("\"U8\"", "[1.0]", "[0,1]"), "shape is not a list", 1},
    {OF("\"U8\"", "[9223372036854775808]", "[0,1]"), "shape is not a list", 1},
    {OF("\"U8\"", "[1099511627776,1099511627776]", "[0,1]"), "shape is too large", 1},
    {OF("\"U8\"", "[0,1099511627776,1099511627776]", "[0,0]"), "shape is too large", 0},
    {OF("\"F64\"", "[2305843009213693952]", "[0,8]"), "are not the 8 bytes", 8},
    {OF("\"F32\"", "[2]", "[0,4]"), "2 elements of F32 are not the 4 bytes", 4},
    {OF("\"F4\"", "[3]", "[0,2]"), "3 elements of 4 bits do not end at a byte", 2},
    {OF("\"U8\"", "[1]", "[0,1,2]"), "'t': data_offsets are 3 numbers", 1},
    {OF("\"U8\"", "[1]", "{}"), "'t': data_offsets is not a list", 1},
    {OF("\"U8\"", "[1]", "[1,0]"), "'t': it begins at 1, behind its end at 0", 1},
    {OF("\"U8\"", "[11]", "[0,11]"), "'t': it ends at 11; the file has 10", 10},
    {OF("\"U8\"", "[9]", "[1,10]"), "'t' begins at 1: the bytes from 0", 10},
    {"{\"t\":" T ",\"u\":" T "}", "'u' overlaps 't'", 10},
    {"{\"t\":" T "}", "end at 10; the file has 12", 12},
};

START_TEST(bad_headers)
{
	put("file", bad[_i].header, bad[_i].bytes);
	refused(EINVAL, bad[_i].text, "file", "new", 256);
	refused(EINVAL, "file: ", "file", "file", 256);
	ck_assert_ptr_null(strchr(gpumem_error(), '\n'));
}
END_TEST

/* Writes the first eight bytes, the claimed length, and the given number of bytes after the length.
 */
static void lengths(uint64_t claimed, uint64_t follow, const char *text)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_eq(write(fd, &claimed, sizeof(claimed)), sizeof(claimed));
	ck_assert_int_eq(ftruncate(fd, (off_t)(sizeof(claimed) + follow)), 0);
	close(fd);
	refused(EINVAL, text, "file", "new", 256);
}

START_TEST(bad_lengths)
{
	lengths(3, 2, "does not fit");
	lengths(1, 0, "does not fit");
	lengths(SAFETENSORS_HEADER_MAX, 10, "does not fit");
	lengths(SAFETENSORS_HEADER_MAX + 1, SAFETENSORS_HEADER_MAX + 1,
		"no safetensors file, or damaged");
	lengths(UINT64_MAX, 10, "no safetensors file, or damaged");
	lengths(UINT64_MAX - 7, 10, "no safetensors file, or damaged");
	ck_assert_int_eq(truncate("file", 7), 0);
	refused(EINVAL, "7 bytes is no safetensors file", "file", "new", 256);
	ck_assert_int_eq(truncate("file", 0), 0);
	refused(EINVAL, "0 bytes is no safetensors file", "file", "new", 256);
}
END_TEST

/* An unused field may hold any value, but the stack is not infinite. */
START_TEST(nesting)
{
	char lists[512] = "", ends[512] = "", header[HEADER_ROOM];

	for (unsigned depth = 2; depth < 200; depth++) {
		strcat(lists, "[");
		strcat(ends, "]");
		snprintf(header, sizeof(header),
			 "{\"\\\"[[[\":{\"dtype\":\"U8\",\"shape\":[10],\"data_offsets\":[0,10],"
			 "\"x\":%s%s}}",
			 lists, ends);
		put("file", header, 10);
		if (depth < 127)
			align("file", "new");
		else
			refused(EINVAL, "nested too deeply", "file", "new", 256);
	}
}
END_TEST

static const char mixed[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"x\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[1,257]},"
    "\"y\":{\"dtype\":\"BF16\",\"shape\":[2,60],\"data_offsets\":[257,497]},"
    "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[498,514]},"
    "\"odd\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
    "\"odder\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[497,498]},"
    "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[514,514]}}";
#define MIXED_BYTES 514

START_TEST(verdicts)
{
	struct gpumem_safetensors *header;
	char lines[1024] = "";

	put("file", mixed, MIXED_BYTES);
	ck_assert_int_eq(gpumem_align("file", "new", 256, &header), 0);
	for (size_t i = 0; i < header->n_tensors; i++) {
		const struct gpumem_tensor *tensor = &header->tensors[i];
		sprintf(lines + strlen(lines), "%s %s %d %u %u %u;", tensor->name, tensor->dtype,
			(int)(tensor->offset % 256), (unsigned)tensor->size, tensor->unit,
			tensor->place);
	}
	ck_assert_str_eq(lines, "x F32 0 256 4 1;y BF16 0 240 2 1;b F64 241 16 8 3;"
				"odd U8 255 1 1 2;odder BOOL 240 1 1 2;none F32 1 0 4 1;");
	ck_assert_uint_eq(header->data_start % 256, 255);
	expect("new", mixed, MIXED_BYTES, header->data_start);
	/* Aligning an aligned file adds no further padding. */
	ck_assert_int_eq(gpumem_align("new", "newer", 256, NULL), 0);
	expect("newer", mixed, MIXED_BYTES, header->data_start);
	gpumem_safetensors_free(header);
}
END_TEST

static mode_t mode_of(const char *name)
{
	struct stat st;

	ck_assert_int_eq(lstat(name, &st), 0);
	return st.st_mode;
}

START_TEST(modes)
{
	put("file", mixed, MIXED_BYTES);
	ck_assert_int_eq(chmod("file", 0666), 0);
	align("file", "new");
	ck_assert_uint_eq(mode_of("new"), S_IFREG | 0644);
	ck_assert_int_eq(chmod("new", 0606), 0);
	align("file", "new");
	ck_assert_uint_eq(mode_of("new"), S_IFREG | 0606);
	ck_assert_int_eq(chmod("file", 0400), 0);
	align("file", "read_only");
	ck_assert_uint_eq(mode_of("read_only"), S_IFREG | 0400);
	ck_assert_uint_eq(count_files(), 3);
}
END_TEST

START_TEST(onto_itself)
{
	char path[PATH_MAX];

	put("file", mixed, MIXED_BYTES);
	ck_assert_int_eq(chmod("file", 0640), 0);
	ck_assert_int_eq(symlink("file", "link"), 0);
	ck_assert_int_eq(link("file", "before"), 0);
	snprintf(path, sizeof(path), "%s/../%s/link", folder, strrchr(folder, '/') + 1);
	uint64_t start = align("file", path);
	ck_assert(S_ISLNK(mode_of("link")));
	ck_assert_uint_eq(mode_of("file"), S_IFREG | 0640);
	expect("file", mixed, MIXED_BYTES, start);
	expect("before", mixed, MIXED_BYTES, 8 + strlen(mixed));
	ck_assert_uint_eq(count_files(), 3);
}
END_TEST

START_TEST(what_is_refused)
{
	put("file", mixed, MIXED_BYTES);
	ck_assert_int_eq(mkdir("folder", 0700), 0);
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	refused(ENOENT, "missing: No such file", "missing", "new", 256);
	refused(EISDIR, "folder: it is a directory", "folder", "new", 256);
	refused(EINVAL, "fifo: it is no regular file", "fifo", "new", 256);
	refused(EISDIR, "folder is a directory", "file", "folder", 256);
	refused(EINVAL, "fifo is no regular file", "file", "fifo", 256);
	refused(EINVAL, "/dev/null is no regular file", "file", "/dev/null", 256);
	refused(ENOENT, "none/new: No such file", "file", "none/new", 256);
	refused(ENOTDIR, "file/new: Not a directory", "file", "file/new", 256);
	refused(ENOENT, "no file's name", "file", "", 256);
	refused(EISDIR, "no file's name", "file", "new/", 256);
	static const size_t alignments[] = {0, 3, 257, 1 << 21, SIZE_MAX};
	for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++)
		refused(EINVAL, "is not a power of two", "file", "new", alignments[i]);
	expect("file", mixed, MIXED_BYTES, 8 + strlen(mixed));
}
END_TEST

#define LARGE "{\"t\":{\"dtype\":\"I8\",\"shape\":[9000000],\"data_offsets\":[0,9000000]}}"

/* Bytes that the kernel does not copy are read and written. */
START_TEST(ways_to_copy)
{
	static const size_t inside[] = {0, 1, 5000000, SIZE_MAX};

	inside_bytes = inside[_i];
	put("file", LARGE, 9000000);
	align("file", "new");
	expect("new", LARGE, 9000000, 256);
}
END_TEST

START_TEST(shrinks_meanwhile)
{
	put("old", mixed, MIXED_BYTES);
	put("file", LARGE, 9000000);
	shrinks = "file";
	refused(EINVAL, "file: the file became shorter", "file", "old", 256);
	expect("old", mixed, MIXED_BYTES, 8 + strlen(mixed));
}
END_TEST

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(no_room)
{
	put("file", LARGE, 9000000);
	put("old", mixed, MIXED_BYTES);
	signal(SIGXFSZ, SIG_IGN);
	limit_files(1000000);
	refused(EFBIG, "old: File too large", "file", "old", 256);
	refused(EFBIG, "new: File too large", "file", "new", 256);
	limit_files(RLIM_INFINITY);
	expect("old", mixed, MIXED_BYTES, 8 + strlen(mixed));
}
END_TEST

/* The process is killed in the middle of a write: the folder has no extra file, and the old file is
 * unchanged. */
START_TEST(killed_meanwhile)
{
	static const char *const targets[] = {"old", "new"};
	int status;

	put("file", LARGE, 9000000);
	put("old", mixed, MIXED_BYTES);
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		signal(SIGXFSZ, SIG_DFL);
		limit_files(1000000);
		gpumem_align("file", targets[_i], 256, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGXFSZ);
	ck_assert_uint_eq(count_files(), 2);
	expect("old", mixed, MIXED_BYTES, 8 + strlen(mixed));
}
END_TEST

/* On a filesystem without nameless files, the output is written to a named file in the same folder.
 */
START_TEST(without_nameless_files)
{
	no_nameless = true;
	put("old", mixed, MIXED_BYTES);
	uint64_t start = align("old", "old");
	ck_assert_uint_eq(align("old", "new"), start);
	expect("new", mixed, MIXED_BYTES, start);
	expect("old", mixed, MIXED_BYTES, start);
	ck_assert_uint_eq(count_files(), 2);
	put("file", LARGE, 9000000);
	signal(SIGXFSZ, SIG_IGN);
	limit_files(1000000);
	refused(EFBIG, "old: File too large", "file", "old", 256);
	limit_files(RLIM_INFINITY);
	expect("old", mixed, MIXED_BYTES, start);
	ck_assert_uint_eq(count_files(), 3);
}
END_TEST

/* Another process creates the target during the write: the target is replaced all the same. */
START_TEST(appears_meanwhile)
{
	put("file", LARGE, 9000000);
	appears = "new";
	align("file", "new");
	expect("new", LARGE, 9000000, 256);
	ck_assert_uint_eq(count_files(), 2);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_align", &tcase, 60);

	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_loop_test(tcase, bad_headers, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tcase, bad_lengths);
	tcase_add_test(tcase, nesting);
	tcase_add_test(tcase, verdicts);
	tcase_add_test(tcase, modes);
	tcase_add_test(tcase, onto_itself);
	tcase_add_test(tcase, what_is_refused);
	tcase_add_loop_test(tcase, ways_to_copy, 0, 4);
	tcase_add_test(tcase, shrinks_meanwhile);
	tcase_add_test(tcase, no_room);
	tcase_add_loop_test(tcase, killed_meanwhile, 0, 2);
	tcase_add_test(tcase, without_nameless_files);
	tcase_add_test(tcase, appears_meanwhile);
	return unit_main(suite);
}
