/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/text/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_continuation(unsigned char byte)
{
	return (byte & 0xc0) == 0x80;
}

/* The length of the first character; 0: not well-formed. Unicode 15, table 3-7: neither overlong
 * forms nor surrogates. */
static size_t character_bytes(const unsigned char *text)
{
	unsigned char first = text[0];

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4 || !is_continuation(text[1]))
		return 0;
	if (first < 0xe0)
		return 2;
	if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
	    (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f))
		return 0;
	if (!is_continuation(text[2]))
		return 0;
	if (first < 0xf0)
		return 3;
	return is_continuation(text[3]) ? 4 : 0;
}

/* The code point of a well-formed character. */
static uint32_t character_decode(const unsigned char *text, size_t bytes)
{
	static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t code = text[0] & masks[bytes];

	for (size_t i = 1; i < bytes; i++)
		code = code << 6 | (text[i] & 0x3f);
	return code;
}

/* Characters that a terminal obeys, in order. U+0080 to U+009F are like ESC with a letter;
 * bidirectional controls change the order of the text around them; and the others are line ends,
 * or invisible (Default_Ignorable_Code_Point of Unicode 15, without the selectors of variants). */
static const struct range {
	uint32_t first, last;
} unprintable_ranges[] = {
    {0x00, 0x1f},	{0x7f, 0x9f},	    {0xad, 0xad},	{0x34f, 0x34f},
    {0x61c, 0x61c},	{0x115f, 0x1160},   {0x17b4, 0x17b5},	{0x180e, 0x180e},
    {0x200b, 0x200f},	{0x2028, 0x202e},   {0x2060, 0x206f},	{0x3164, 0x3164},
    {0xfeff, 0xfeff},	{0xffa0, 0xffa0},   {0xfff0, 0xfffb},	{0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff}, {0xe01f0, 0xe0fff},
};

static bool character_is_printable(uint32_t code)
{
	for (size_t i = 0; i < sizeof(unprintable_ranges) / sizeof(unprintable_ranges[0]); i++)
		if (code <= unprintable_ranges[i].last)
			return code < unprintable_ranges[i].first;
	return true;
}

bool utf8_is_printable(const char *text)
{
	for (size_t bytes; *text; text += bytes) {
		const unsigned char *at = (const unsigned char *)text;

		bytes = character_bytes(at);
		if (!bytes || !character_is_printable(character_decode(at, bytes)))
			return false;
	}
	return true;
}

const char *utf8_escape(const char *text, const char *extra, char *to, size_t room)
{
	while (*text) {
		const unsigned char *at = (const unsigned char *)text;
		size_t length = character_bytes(at);
		bool escaped = !length || strchr(extra, *text) ||
			       !character_is_printable(character_decode(at, length));

		length = length ? length : 1;
		if (length * (escaped ? 4 : 1) >= room)
			break;
		for (; length; length--, text++) {
			int bytes =
			    snprintf(to, room, escaped ? "\\%03o" : "%c", (unsigned char)*text);
			to += bytes;
			room -= (size_t)bytes;
		}
	}
	*to = '\0';
	return text;
}

static void character_write_json(uint32_t code, FILE *out)
{
	if (code > 0xffff)
		fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
			0xdc00 + (code & 0x3ff));
	else
		fprintf(out, "\\u%04x", code);
}

void utf8_write_json(const char *json, FILE *out)
{
	for (size_t bytes; *json; json += bytes) {
		const unsigned char *at = (const unsigned char *)json;
		uint32_t code;

		bytes = character_bytes(at);
		code = character_decode(at, bytes);
		bytes += bytes == 0;
		if (code > ' ' && !character_is_printable(code))
			character_write_json(code, out);
		else
			fwrite(json, 1, bytes, out);
	}
}
