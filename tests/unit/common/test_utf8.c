/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/text/utf8.h"

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

static const struct {
	const char *text, *escaped;
} malformed[] = {
    {"\x80", "\\200"},
    {"\xc0\xaf", "\\300\\257"},			  /* overlong */
    {"\xe0\x80\xaf", "\\340\\200\\257"},	  /* overlong */
    {"\xed\xa0\x80", "\\355\\240\\200"},	  /* a surrogate */
    {"\xf4\x90\x80\x80", "\\364\\220\\200\\200"}, /* beyond U+10FFFF */
    {"\xe2\x82", "\\342\\202"},			  /* cut off */
    {"\xf0\x9f\x98 x", "\\360\\237\\230 x"},	  /* cut off */
    {"\xc3\xc3\xb6", "\\303\xc3\xb6"},
};

START_TEST(malformed_characters)
{
	char escaped[32];

	ck_assert(!utf8_is_printable(malformed[_i].text));
	utf8_escape(malformed[_i].text, "", escaped, sizeof(escaped));
	ck_assert_str_eq(escaped, malformed[_i].escaped);
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

/* A name that shows as another: "a<right-to-left override>gpj.exe" looks like "aexe.jpg". */
static const struct {
	const char *text, *escaped, *json;
} disguises[] = {
    {"a\u202egpj.exe", "a\\342\\200\\256gpj.exe", "a\\u202egpj.exe"},
    {"\u202a\u202b\u202c\u202d", "\\342\\200\\252\\342\\200\\253\\342\\200\\254\\342\\200\\255",
     "\\u202a\\u202b\\u202c\\u202d"},
    {"\u2066\u2069", "\\342\\201\\246\\342\\201\\251", "\\u2066\\u2069"},
    {"\u061c", "\\330\\234", "\\u061c"},
    {"\u200e\u200f", "\\342\\200\\216\\342\\200\\217", "\\u200e\\u200f"},
    {"a\u200bb\u2060", "a\\342\\200\\213b\\342\\201\\240", "a\\u200bb\\u2060"},
    {"\u2028\u2029", "\\342\\200\\250\\342\\200\\251", "\\u2028\\u2029"},
    {"\ufeff\u3164", "\\357\\273\\277\\343\\205\\244", "\\ufeff\\u3164"},
    {"\U000e0041", "\\363\\240\\201\\201", "\\udb40\\udc41"},
};

START_TEST(names_in_disguise)
{
	char escaped[128], *json = NULL;
	size_t bytes;
	FILE *out = open_memstream(&json, &bytes);

	ck_assert(!utf8_is_printable(disguises[_i].text));
	utf8_escape(disguises[_i].text, "", escaped, sizeof(escaped));
	ck_assert_str_eq(escaped, disguises[_i].escaped);
	ck_assert(utf8_is_printable(escaped));
	utf8_write_json(disguises[_i].text, out);
	fclose(out);
	ck_assert_str_eq(json, disguises[_i].json);
	free(json);
}
END_TEST

START_TEST(names_in_any_language)
{
	static const char names[] =
	    "Gr\u00fc\u00dfe \u0645\u0644\u0641 \u05d3\u05d2\u05dd "
	    "\u0939\u093f\u0928\u094d\u0926\u0940 "
	    "\ud55c\uae00 \u65e5\u672c\u8a9e e\u0301 \u2764\ufe0f\U0001f600";
	char escaped[sizeof(names) * 4];

	ck_assert(utf8_is_printable(names));
	utf8_escape(names, "", escaped, sizeof(escaped));
	ck_assert_str_eq(escaped, names);
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
	tcase_add_loop_test(tests, malformed_characters, 0,
			    sizeof(malformed) / sizeof(malformed[0]));
	tcase_add_test(tests, cut_between_characters);
	tcase_add_test(tests, further_characters);
	tcase_add_loop_test(tests, names_in_disguise, 0, sizeof(disguises) / sizeof(disguises[0]));
	tcase_add_test(tests, names_in_any_language);
	tcase_add_test(tests, json_for_a_terminal);
	return unit_main(suite);
}
