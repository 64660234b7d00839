/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

/* For every pair of bytes the escaped text is printable and represents the two bytes. */
START_TEST(pairs_of_bytes)
{
	char text[3] = {0}, escaped[UTF8_ESCAPED_BYTES(2)];

	for (unsigned pair = 0x101; pair < 0x10000; pair++) {
		text[0] = (char)(pair >> 8);
		text[1] = (char)pair;
		ck_assert_str_eq(utf8_escape(text, "", escaped, sizeof(escaped)), "");
		for (const unsigned char *at = (unsigned char *)escaped; *at; at++) {
			ck_assert_uint_ge(*at, ' ');
			ck_assert_uint_ne(*at, 0x7f);
			/* The checked ranges are all of two-byte UTF-8. */
			if (*at < 0x80)
				continue;
			ck_assert(*at >= 0xc2 && *at < 0xe0 && (at[1] & 0xc0) == 0x80);
			ck_assert(*at > 0xc2 || at[1] >= 0xa0);
			at++;
		}
	}
}
END_TEST

START_TEST(cut_between_characters)
{
	static const struct {
		size_t room;
		const char *taken, *left;
	} cuts[] = {
	    {1, "", "a\xe2\x82\xac\n!"},     {2, "a", "\xe2\x82\xac\n!"},
	    {4, "a", "\xe2\x82\xac\n!"},     {5, "a\xe2\x82\xac", "\n!"},
	    {8, "a\xe2\x82\xac", "\n!"},     {9, "a\xe2\x82\xac\\012", "!"},
	    {10, "a\xe2\x82\xac\\012!", ""},
	};
	char text[16];

	for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		ck_assert_str_eq(utf8_escape("a\xe2\x82\xac\n!", "", text, cuts[i].room),
				 cuts[i].left);
		ck_assert_str_eq(text, cuts[i].taken);
	}
}
END_TEST

START_TEST(further_characters)
{
	char text[32];

	utf8_escape("a b\\c", " \\", text, sizeof(text));
	ck_assert_str_eq(text, "a\\040b\\134c");
}
END_TEST

START_TEST(json_for_a_terminal)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	utf8_write_json("{\"a\": \"\xc2\x9b\xc2\xa0\x7f\xc3\x9f\"}\n", out);
	fclose(out);
	ck_assert_str_eq(text, "{\"a\": \"\\u009b\xc2\xa0\\u007f\xc3\x9f\"}\n");
	free(text);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("utf8", &tests, 60);

	tcase_add_test(tests, pairs_of_bytes);
	tcase_add_test(tests, cut_between_characters);
	tcase_add_test(tests, further_characters);
	tcase_add_test(tests, json_for_a_terminal);
	return unit_main(suite);
}
