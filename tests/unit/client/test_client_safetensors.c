/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_safetensors_read: the members of a header, and the refusals. The headers that violate the
 * format are in test_client_align. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/gpumem.h"
#include "tests/unit/unit.h"

#define THREADS	 4
#define ROUNDS	 200
#define TEMPLATE "/tmp/gpumem-safetensors-XXXXXX"

static char path[sizeof(TEMPLATE)];
static int fd;

static void enter(void)
{
	strcpy(path, TEMPLATE);
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
}

static void leave(void)
{
	close(fd);
	ck_assert_int_eq(unlink(path), 0);
}

/* Writes a file with the header and the given number of bytes of data. */
static void put(const char *text, uint64_t data_bytes)
{
	uint64_t length = strlen(text);

	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(pwrite(fd, &length, sizeof(length), 0), sizeof(length));
	ck_assert_int_eq(pwrite(fd, text, length, sizeof(length)), length);
	ck_assert_int_eq(ftruncate(fd, (off_t)(sizeof(length) + length + data_bytes)), 0);
}

static struct gpumem_safetensors *header_read(void)
{
	struct gpumem_safetensors *header = NULL;

	ck_assert_msg(gpumem_safetensors_read(fd, &header) == 0, "%s", gpumem_error());
	return header;
}

static void refused(int error, const char *text, int file)
{
	struct gpumem_safetensors *header = (void *)path;

	errno = 0;
	ck_assert_int_eq(gpumem_safetensors_read(file, &header), -1);
	ck_assert_msg(errno == error, "%s, '%s'", strerror(errno), gpumem_error());
	ck_assert_msg(strstr(gpumem_error(), text), "'%s' says nothing of '%s'", gpumem_error(),
		      text);
	ck_assert_ptr_eq(header, path);
}

/* The length of the JSON is odd, so that the data begins at an odd byte. */
static const char model[] =
    "{\"w\": {\"dtype\":\"BF16\",\"shape\":[3,2,5],\"data_offsets\":[9,69]},"
    "\"\u00e9\\n\": {\"shape\":[],\"data_offsets\":[0,1],\"dtype\":\"BOOL\",\"more\":[null]},"
    "\"__metadata__\":{\"format\":\"pt\",\"a\":\"x\\u0000\\ud83d\\ude00\",\"\":\"\"},"
    "\"none\": {\"dtype\":\"F64\",\"shape\":[7,0],\"data_offsets\":[69,69]},"
    "\"four\": {\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[1,9]}}";
#define MODEL_BYTES 69

static void expect_tensor(const struct gpumem_safetensors *header, size_t i, const char *name,
			  const char *line)
{
	const struct gpumem_tensor *tensor = &header->tensors[i];
	char text[256];
	int n = sprintf(text, "%s %u+%u unit %u place %u:", tensor->dtype,
			(unsigned)(tensor->offset - header->data_start), (unsigned)tensor->size,
			tensor->unit, tensor->place);

	for (uint32_t j = 0; j < tensor->rank; j++)
		n += sprintf(text + n, " %u", (unsigned)tensor->shape[j]);
	ck_assert_str_eq(tensor->name, name);
	ck_assert_str_eq(text, line);
}

START_TEST(members)
{
	put(model, MODEL_BYTES);
	lseek(fd, 3, SEEK_SET);
	struct gpumem_safetensors *header = header_read();

	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 3);
	ck_assert_uint_eq(header->data_start, 8 + strlen(model));
	ck_assert_uint_eq(header->data_start % 2, 1);
	ck_assert_uint_eq(header->n_tensors, 4);
	expect_tensor(header, 0, "w", "BF16 9+60 unit 2 place 1: 3 2 5");
	expect_tensor(header, 1, "\u00e9\n", "BOOL 0+1 unit 1 place 1:");
	expect_tensor(header, 2, "none", "F64 69+0 unit 8 place 1: 7 0");
	expect_tensor(header, 3, "four", "F4 1+8 unit 1 place 1: 16");
	ck_assert_uint_eq(header->n_metadata, 3);
	ck_assert_str_eq(header->metadata[0].key, "format");
	ck_assert_str_eq(header->metadata[0].value, "pt");
	ck_assert_str_eq(header->metadata[1].key, "a");
	ck_assert_uint_eq(header->metadata[1].value_bytes, 6);
	ck_assert_mem_eq(header->metadata[1].value, "x\0\xf0\x9f\x98\x80", 7);
	ck_assert_str_eq(header->metadata[2].key, "");
	ck_assert_uint_eq(header->metadata[2].value_bytes, 0);
	gpumem_safetensors_free(header);
}
END_TEST

/* With a space behind the JSON, the data begins at an even byte. */
START_TEST(misaligned)
{
	char text[sizeof(model) + 1];

	sprintf(text, "%s ", model);
	put(text, MODEL_BYTES);
	struct gpumem_safetensors *header = header_read();
	expect_tensor(header, 0, "w", "BF16 9+60 unit 2 place 3: 3 2 5");
	gpumem_safetensors_free(header);
}
END_TEST

START_TEST(smallest)
{
	put("{}", 0);
	struct gpumem_safetensors *header = header_read();

	ck_assert_uint_eq(header->n_tensors, 0);
	ck_assert_uint_eq(header->n_metadata, 0);
	ck_assert_uint_eq(header->data_start, 10);
	gpumem_safetensors_free(header);
	gpumem_safetensors_free(NULL);
}
END_TEST

/* As the reference implementation reads them: metadata of null, and fields of any type that the
 * format does not know. align writes the text as it was. */
START_TEST(odd)
{
	static const char *const fields[] = {"1.5",
					     "-1e-3",
					     "1E-400",
					     "null",
					     "[1.5, {\"a\": -0.0}]",
					     "18446744073709551616",
					     "-99999999999999999999999999",
					     "\"123456789012345678901\"",
					     "{\"dtype\": 9223372036854775808}",
					     "9223372036854775807"};
	char text[400], beside[sizeof(path) + 4];

	sprintf(beside, "%s.new", path);
	put("{\"__metadata__\":null}", 0);
	struct gpumem_safetensors *header = header_read();
	ck_assert_uint_eq(header->n_metadata, 0);
	gpumem_safetensors_free(header);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		sprintf(text,
			"{\"t\":{\"more\":%s,\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":"
			"[0,3],\"x\":[%s,%s]}}",
			fields[i], fields[i], fields[i]);
		put(text, 3);
		header = header_read();
		expect_tensor(header, 0, "t", "U8 0+3 unit 1 place 1: 3");
		gpumem_safetensors_free(header);
		ck_assert_int_eq(gpumem_align(path, beside, 64, NULL), 0);
		char written[sizeof(text)] = "";
		int aligned = open(beside, O_RDONLY | O_CLOEXEC);
		ck_assert_int_gt(pread(aligned, written, strlen(text), 8), 0);
		close(aligned);
		ck_assert_str_eq(written, text);
	}
	ck_assert_int_eq(unlink(beside), 0);
}
END_TEST

START_TEST(refusals)
{
	int folder = open("/tmp", O_RDONLY | O_CLOEXEC), ends[2];
	int writer = open(path, O_WRONLY | O_CLOEXEC), named = open(path, O_PATH | O_CLOEXEC);

	put(model, MODEL_BYTES + 1);
	refused(EINVAL, "the tensors end at 69; the file has 70 bytes of data", fd);
	put("{\"t\":{\"dtype\":\"U8\",\"shape\":[1 ],\"data_offsets\":[0,1]}}", 1);
	gpumem_safetensors_free(header_read());
	ck_assert_int_eq(pwrite(fd, "", 1, 8 + 29), 1);
	refused(EINVAL, "the header contains a NUL", fd);
	put("{\"a\\u0000\":{}}", 0);
	refused(EINVAL, "not as the format has it", fd);
	put(model, MODEL_BYTES);
	ck_assert_int_eq(pipe(ends), 0);
	refused(EISDIR, "it is a directory", folder);
	refused(EINVAL, "it is no regular file", ends[0]);
	refused(EBADF, "Bad file descriptor", writer);
	refused(EBADF, "Bad file descriptor", named);
	refused(EBADF, "Bad file descriptor", -1);
	close(folder);
	close(writer);
	close(named);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

static void *read_often(void *argument)
{
	(void)argument;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct gpumem_safetensors *header = header_read();
		if (header->n_tensors != 4 || strcmp(header->tensors[3].name, "four"))
			ck_abort_msg("another header");
		gpumem_safetensors_free(header);
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t ids[THREADS];

	put(model, MODEL_BYTES);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&ids[i], NULL, read_often, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_safetensors", &tcase, 60);

	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_test(tcase, members);
	tcase_add_test(tcase, misaligned);
	tcase_add_test(tcase, smallest);
	tcase_add_test(tcase, odd);
	tcase_add_test(tcase, refusals);
	tcase_add_test(tcase, threads);
	return unit_main(suite);
}
