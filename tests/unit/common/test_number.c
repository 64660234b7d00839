/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "tests/unit/unit.h"

#define UNTOUCHED UINT64_C(0x5eed)

struct number_case {
	const char *text;
	int rc;
	uint64_t value;
};

static const struct number_case decimals[] = {
    {"0", 0, 0},
    {"7", 0, 7},
    {"007", 0, 7},
    {"18446744073709551615", 0, UINT64_MAX},
    {"18446744073709551616", -ERANGE, 0},
    {"99999999999999999999999", -ERANGE, 0},
    {"99999999999999999999999x", -EINVAL, 0},
    {"", -EINVAL, 0},
    {" 1", -EINVAL, 0},
    {"1 ", -EINVAL, 0},
    {"1\n", -EINVAL, 0},
    {"+1", -EINVAL, 0},
    {"-1", -EINVAL, 0},
    {"0x10", -EINVAL, 0},
    {"1e3", -EINVAL, 0},
    {"1.5", -EINVAL, 0},
    {"1K", -EINVAL, 0},
    {"K", -EINVAL, 0},
    {"\xd9\xa1", -EINVAL, 0},
};

static const struct number_case sizes[] = {
    {"0", 0, 0},
    {"0T", 0, 0},
    {"123", 0, 123},
    {"4K", 0, 4096},
    {"64K", 0, 65536},
    {"2M", 0, 2097152},
    {"1G", 0, 1073741824},
    {"3T", 0, UINT64_C(3298534883328)},
    {"16777215T", 0, UINT64_C(16777215) << 40},
    {"16777216T", -ERANGE, 0},
    {"18014398509481983K", 0, UINT64_C(18014398509481983) << 10},
    {"18014398509481984K", -ERANGE, 0},
    {"18446744073709551615", 0, UINT64_MAX},
    {"18446744073709551616", -ERANGE, 0},
    {"18446744073709551616K", -ERANGE, 0},
    {"18446744073709551616Q", -EINVAL, 0},
    {"", -EINVAL, 0},
    {"K", -EINVAL, 0},
    {"1KK", -EINVAL, 0},
    {"1KB", 0, 1000},
    {"1kB", 0, 1000},
    {"1KiB", 0, 1024},
    {"40GB", 0, UINT64_C(40000000000)},
    {"40GiB", 0, UINT64_C(40) << 30},
    {"3TB", 0, UINT64_C(3000000000000)},
    {"18446744073709551MB", -ERANGE, 0},
    {"1k", -EINVAL, 0},
    {"1B", -EINVAL, 0},
    {"1GiBB", -EINVAL, 0},
    {"1Gi", -EINVAL, 0},
    {"1gb", -EINVAL, 0},
    {"1iB", -EINVAL, 0},
    {"1 K", -EINVAL, 0},
    {"1P", -EINVAL, 0},
    {"-1K", -EINVAL, 0},
    {"1.5G", -EINVAL, 0},
    {"50%", -EINVAL, 0},
};

static const struct {
	const char *text;
	uint64_t whole;
	int rc;
	uint64_t value;
} percents[] = {
    {"0%", 1000, 0, 0},
    {"50%", 1000, 0, 500},
    {"33%", 10, 0, 3},
    {"99%", 199, 0, 197},
    {"100%", UINT64_MAX, 0, UINT64_MAX},
    {"50%", UINT64_MAX, 0, UINT64_MAX / 2},
    {"100%", 0, 0, 0},
    {"101%", 1000, -ERANGE, 0},
    {"99999999999999999999999%", 1000, -ERANGE, 0},
    {"%", 1000, -EINVAL, 0},
    {"-5%", 1000, -EINVAL, 0},
    {"5%%", 1000, -EINVAL, 0},
    {"5% ", 1000, -EINVAL, 0},
    {"5K%", 1000, -EINVAL, 0},
    {"2G", 1000, 0, UINT64_C(2147483648)},
    {"77", 1000, 0, 77},
    {"99999999999999999999999", 1000, -ERANGE, 0},
};

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static void expect(const char *text, int rc, uint64_t value, int expected_rc, uint64_t expected)
{
	ck_assert_msg(rc == expected_rc, "\"%s\" gave %d, not %d", text, rc, expected_rc);
	if (rc < 0)
		expected = UNTOUCHED;
	ck_assert_msg(value == expected, "\"%s\" left %" PRIu64 ", not %" PRIu64, text, value,
		      expected);
}

START_TEST(decimal)
{
	const struct number_case *test = &decimals[_i];
	uint64_t value = UNTOUCHED;
	int rc = parse_u64(test->text, 0, UINT64_MAX, &value);
	expect(test->text, rc, value, test->rc, test->value);
}
END_TEST

START_TEST(decimal_range)
{
	static const struct number_case bounded[] = {
	    {"9", -ERANGE, 0}, {"10", 0, 10}, {"20", 0, 20}, {"21", -ERANGE, 0}};
	for (int i = 0; i < COUNT(bounded); i++) {
		uint64_t value = UNTOUCHED;
		int rc = parse_u64(bounded[i].text, 10, 20, &value);
		expect(bounded[i].text, rc, value, bounded[i].rc, bounded[i].value);
	}
}
END_TEST

START_TEST(size)
{
	const struct number_case *test = &sizes[_i];
	uint64_t value = UNTOUCHED;
	int rc = parse_size(test->text, &value);
	expect(test->text, rc, value, test->rc, test->value);
}
END_TEST

START_TEST(size_or_percent)
{
	uint64_t value = UNTOUCHED;
	int rc = parse_size_or_percent(percents[_i].text, percents[_i].whole, &value);
	expect(percents[_i].text, rc, value, percents[_i].rc, percents[_i].value);
}
END_TEST

START_TEST(suffixes_multiply)
{
	uint64_t state = unit_seed();

	for (int i = 0; i < 100000; i++) {
		unsigned unit = (unsigned)(unit_random(&state) % 5);
		uint64_t value = unit_random(&state) >> 10 * unit >> unit_random(&state) % 54;
		uint64_t parsed = UNTOUCHED;
		char text[24];

		snprintf(text, sizeof(text), "%" PRIu64 "%.1s", value, &"\0KMGT"[unit]);
		ck_assert_int_eq(parse_size(text, &parsed), 0);
		ck_assert_uint_eq(parsed, value << 10 * unit);
	}
}
END_TEST

START_TEST(versions_are_compared)
{
	ck_assert(version_at_least("6.18.44-fc", 6, 9));
	ck_assert(version_at_least("3.18.3", 3, 18));
	ck_assert(version_at_least("4", 3, 18));
	ck_assert(!version_at_least("3.17.9", 3, 18));
	ck_assert(!version_at_least("2.99", 3, 18));
	ck_assert(!version_at_least("", 1, 0));
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("number", &tcase, 30);
	tcase_add_loop_test(tcase, decimal, 0, COUNT(decimals));
	tcase_add_test(tcase, decimal_range);
	tcase_add_loop_test(tcase, size, 0, COUNT(sizes));
	tcase_add_loop_test(tcase, size_or_percent, 0, COUNT(percents));
	tcase_add_test(tcase, suffixes_multiply);
	tcase_add_test(tcase, versions_are_compared);
	return unit_main(suite);
}
