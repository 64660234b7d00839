/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem_set_read: the members of a set, and indexes that lie. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/gpumem.h"
#include "tests/unit/unit.h"

static char folder[32], path[64];

static void enter(void)
{
	strcpy(folder, "/tmp/gpumem-set-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/tensors.json", folder);
}

static void leave(void)
{
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
}

static void put(const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* An index with these tensors. */
static void put_tensors(const char *tensors)
{
	char text[4096];

	snprintf(text, sizeof(text),
		 "{\"gpumem_tensors\":1,\"files\":[{\"name\":\"a\",\"inode\":5},"
		 "{\"name\":\"b\",\"inode\":6}],\"tensors\":{%s}}",
		 tensors);
	put(text);
}

START_TEST(members)
{
	struct gpumem_set *set;

	put_tensors(
	    "\"w\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"file\":1,\"offset\":6},"
	    "\"t\":{\"dtype\":\"F32\",\"shape\":[3,4],\"strides\":[1,3],\"file\":0,\"offset\":4},"
	    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"file\":0,\"offset\":8},"
	    "\"e\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775807]}");
	ck_assert_msg(gpumem_set_read(folder, &set) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(set->n_files, 2);
	ck_assert_str_eq(set->files[1], "b");
	ck_assert_uint_eq(set->n_tensors, 4);
	const struct gpumem_set_tensor *w = &set->tensors[0], *t = w + 1, *s = w + 2, *e = w + 3;

	ck_assert_str_eq(w->name, "w");
	ck_assert_str_eq(w->dtype, "BF16");
	ck_assert(w->rank == 2 && w->shape[0] == 3 && w->shape[1] == 4);
	ck_assert(w->strides[0] == 4 && w->strides[1] == 1);
	ck_assert(w->unit == 2 && w->size == 24 && w->offset == 6 && w->file == 1);
	ck_assert(t->strides[0] == 1 && t->strides[1] == 3 && t->size == 48 && t->file == 0);
	ck_assert(s->rank == 0 && s->size == 8);
	ck_assert(e->size == 0 && e->rank == 2);
	gpumem_set_free(set);
	gpumem_set_free(NULL);
}
END_TEST

static void refused(const char *reason)
{
	struct gpumem_set *set = (void *)path;

	errno = 0;
	ck_assert_int_eq(gpumem_set_read(folder, &set), -1);
	ck_assert_msg(errno == EINVAL && strstr(gpumem_error(), reason), "%s, '%s'",
		      strerror(errno), gpumem_error());
	ck_assert_ptr_eq(set, (void *)path);
}

START_TEST(lies)
{
	static const struct {
		const char *text, *reason;
	} tensors[] = {
	    {"\"w\":7", "dtype"},
	    {"\"w\":{\"dtype\":\"F4\",\"shape\":[2],\"file\":0,\"offset\":0}", "dtype"},
	    {"\"w\":{\"dtype\":\"F32\",\"file\":0,\"offset\":0}", "shape"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"file\":0,\"offset\":0}", "shape"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2.0],\"file\":0,\"offset\":0}", "shape"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"strides\":[],\"file\":0,\"offset\":0}",
	     "strides"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"file\":0,\"offset\":0}",
	     "too large"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[3,3],\"strides\":[9223372036854775807,1],"
	     "\"file\":0,\"offset\":0}",
	     "too large"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"file\":2,\"offset\":0}", "files"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"file\":-1,\"offset\":0}", "files"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"offset\":0}", "files"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"file\":0,\"offset\":2}", "offset"},
	    {"\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"file\":0}", "offset"},
	};
	static const char *const texts[][2] = {
	    {"", "begin"},
	    {"[]", "begin"},
	    {"{", "format"},
	    {"{\"gpumem_tensors\":2,\"files\":[],\"tensors\":{}}", "version"},
	    {"{\"gpumem_tensors\":1,\"tensors\":{}}", "files"},
	    {"{\"gpumem_tensors\":1,\"files\":[]}", "tensors"},
	    {"{\"gpumem_tensors\":1,\"files\":[{\"name\":\"../a\",\"inode\":1}],\"tensors\":{}}",
	     "directory"},
	    {"{\"gpumem_tensors\":1,\"files\":[{\"name\":\"a\\u0000\",\"inode\":1}],\"tensors\":{}"
	     "}",
	     "directory"},
	    {"{\"gpumem_tensors\":1,\"files\":[{\"name\":\"\",\"inode\":1}],\"tensors\":{}}",
	     "directory"},
	    {"{\"gpumem_tensors\":1,\"files\":[{\"name\":\"a\"}],\"tensors\":{}}", "directory"},
	    {"{\"gpumem_tensors\":1,\"files\":[7],\"tensors\":{}}", "directory"},
	};

	for (unsigned i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
		put_tensors(tensors[i].text);
		refused(tensors[i].reason);
	}
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		put(texts[i][0]);
		refused(texts[i][1]);
	}
}
END_TEST

START_TEST(no_index)
{
	struct gpumem_set *set;

	ck_assert_int_eq(gpumem_set_read(folder, &set), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	refused("no file");
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("sets of tensors", &tests, 60);

	tcase_add_checked_fixture(tests, enter, leave);
	tcase_add_test(tests, members);
	tcase_add_test(tests, lies);
	tcase_add_test(tests, no_index);
	return unit_main(suite);
}
