/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/control/params.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/pool.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define SAYS	"gpumemfs: .gpumem/params: "
#define NOTHING "; nothing was changed\n"

static params_gpus gpus = {"gpu0", NULL, "gpu2", "gpu5.mig1"};

/* The parsed text, and the log lines on stderr meanwhile. */
static int parse(const char *text, struct params *params, char *said, size_t room)
{
	int old = dup(STDERR_FILENO), file = memfd_create("stderr", 0);

	dup2(file, STDERR_FILENO);
	int error = params_parse(text, strlen(text), gpus, params);

	dup2(old, STDERR_FILENO);
	ssize_t length = pread(file, said, room - 1, 0);

	ck_assert_int_ge(length, 0);
	said[length] = 0;
	close(file);
	close(old);
	return error;
}

static const struct {
	const char *text, *said;
} bad[] = {
    {"gpu0.size 12Q\n", "'gpu0.size 12Q': not a size (use 8G, 512M or 50%)"},
    {"gpu0.size\n", "'gpu0.size': has no value (NAME VALUE)"},
    {"gpu0.size 0\n", "'gpu0.size 0': must be more than nothing"},
    {"gpu0.size 101%\n", "'gpu0.size 101%': more than 100%"},
    {"gpu0.size 1G 2G\n", "'gpu0.size 1G 2G': not a size (use 8G, 512M or 50%)"},
    {"gpu0.size=1G\n", "'gpu0.size=1G': cannot be set"},
    {"gpu1.size 1G\n", "'gpu1.size 1G': no such GPU here"},
    {"gpu64.size 1G\n", "'gpu64.size 1G': no such GPU here"},
    {"gpu.size 1G\n", "'gpu.size 1G': no such GPU here"},
    {"gpu00000.size 1G\n", "'gpu00000.size 1G': no such GPU here"},
    {"gpu5.size 1G\n", "'gpu5.size 1G': no such GPU here"},
    {"gpu5.mig10.size 1G\n", "'gpu5.mig10.size 1G': no such GPU here"},
    {"gpu5.mig1 1G\n", "'gpu5.mig1 1G': no such GPU here"},
    {"gpu0.mig1.size 1G\n", "'gpu0.mig1.size 1G': no such GPU here"},
    {"gpu0.uuid x\n", "'gpu0.uuid x': cannot be set"},
    {"gpu0.log_level debug\n", "'gpu0.log_level debug': cannot be set"},
    {"gpu0. 1\n", "'gpu0. 1': cannot be set"},
    {"reserve none\n", "'reserve none': not a size (use 8G, 512M or 50%)"},
    {"log_level loud\n", "'log_level loud': not one of error|warn|info|debug"},
    {"trace yes\n", "'trace yes': not one of on|off"},
    {"backend host\n", "'backend host': cannot be set"},
    {"size 1G\nreserve 1G\nlog_level none", "'log_level none': not one of error|warn|info|debug"},
};

START_TEST(malformed_lines_are_named_and_change_nothing)
{
	struct params before = {.level = LOG_LEVEL_WARN}, after = before;
	char said[512], wanted[512];

	snprintf(wanted, sizeof(wanted), SAYS "%s" NOTHING, bad[_i].said);
	ck_assert_int_eq(parse(bad[_i].text, &after, said, sizeof(said)), -EINVAL);
	ck_assert_str_eq(said, wanted);
	ck_assert_mem_eq(&after, &before, sizeof(after));
}
END_TEST

START_TEST(no_text_changes_nothing)
{
	struct params params = {0}, zero = {0};
	char big[PARAMS_BYTES_MAX + 1];

	memset(big, '\n', sizeof(big));
	ck_assert_int_eq(params_parse(big, PARAMS_BYTES_MAX, gpus, &params), 0);
	ck_assert_int_eq(params_parse(big, sizeof(big), gpus, &params), -EINVAL);
	ck_assert_int_eq(params_parse("size 1G\0\n", 9, gpus, &params), -EINVAL);
	ck_assert_int_eq(params_parse("", 0, gpus, &params), 0);
	ck_assert_mem_eq(&params, &zero, sizeof(zero));
}
END_TEST

START_TEST(lines_are_about_one_gpu_or_all)
{
	struct params params = {0};
	char said[512];

	ck_assert_int_eq(
	    parse("size 50%\n\n \t gpu2.size \t none \ngpu0.reserve 0\ngpu5.mig1.reserve 1M\n"
		  "log_level debug\ntrace on",
		  &params, said, sizeof(said)),
	    0);
	ck_assert_str_eq(said, "");
	ck_assert(params.size[0].changes && params.size[0].amount.percent);
	ck_assert_uint_eq(params.size[0].amount.value, 50);
	ck_assert(!params.size[1].changes);
	ck_assert(params.size[2].changes && !params.size[2].amount.given);
	ck_assert(params.reserve[0].changes && !params.reserve[2].changes);
	ck_assert(params.size[3].changes && params.reserve[3].changes);
	ck_assert_uint_eq(params.reserve[3].amount.value, 1 << 20);
	ck_assert(params.level_changes);
	ck_assert_int_eq(params.level, LOG_LEVEL_DEBUG);
	ck_assert(params.trace_changes && params.trace);
}
END_TEST

static int set(const char *text)
{
	return control_params_set(&fixture, text, strlen(text));
}

START_TEST(limits_are_applied)
{
	uint64_t total = fixture.volumes[1].device->total;

	ck_assert_int_eq(set("size 50%\ngpu0.size 8M\ngpu1.reserve 4M\n"), 0);
	ck_assert_uint_eq(pool_limits(fixture.volumes[0].pool).size, 8 << 20);
	ck_assert_uint_eq(pool_limits(fixture.volumes[0].pool).reserve, 0);
	ck_assert_uint_eq(pool_limits(fixture.volumes[1].pool).size, total / 2);
	ck_assert_uint_eq(pool_limits(fixture.volumes[1].pool).reserve, 4 << 20);
	ck_assert_int_eq(set("size none"), 0);
	ck_assert_uint_eq(pool_limits(fixture.volumes[0].pool).size, UINT64_MAX);
	ck_assert_int_eq(set("log_level error"), 0);
	ck_assert_int_eq(log_level_get(), LOG_LEVEL_ERROR);
}
END_TEST

/* Files stay above a lower limit; new data has no room. */
START_TEST(size_below_what_is_held)
{
	char data[4096] = "data", back[4096];

	ck_assert_int_eq(make_file(gpu(0), "a"), 0);
	ck_assert_int_eq(write_to(at(gpu(0), "a"), data, sizeof(data), 0), sizeof(data));
	ck_assert_int_eq(set("gpu0.size 1M"), 0);
	ck_assert_int_eq(read_from(at(gpu(0), "a"), back, sizeof(back), 0), sizeof(back));
	ck_assert_mem_eq(data, back, sizeof(data));
	ck_assert_int_eq(write_to(at(gpu(0), "a"), data, sizeof(data), 8 << 20), -ENOSPC);
	ck_assert_int_eq(set("gpu0.size none"), 0);
	ck_assert_int_eq(write_to(at(gpu(0), "a"), data, sizeof(data), 8 << 20), sizeof(data));
}
END_TEST

int main(void)
{
	TCase *tests, *mounted = tcase_create("applied");
	Suite *suite = unit_suite("params", &tests, 60);

	tcase_add_loop_test(tests, malformed_lines_are_named_and_change_nothing, 0,
			    sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tests, no_text_changes_nothing);
	tcase_add_test(tests, lines_are_about_one_gpu_or_all);
	tcase_add_checked_fixture(mounted, fixture_up, fixture_down);
	tcase_add_test(mounted, limits_are_applied);
	tcase_add_test(mounted, size_below_what_is_held);
	suite_add_tcase(suite, mounted);
	return unit_main(suite);
}
