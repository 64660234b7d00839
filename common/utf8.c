/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/utf8.h"

#include <stdbool.h>
#include <stddef.h>
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

/* U+0080 to U+009F: terminals interpret parts of the range like ESC with a letter. */
static bool is_c1_control(const unsigned char *text)
{
	return text[0] == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0;
}

static bool is_control(const unsigned char *text)
{
	return text[0] < ' ' || text[0] == 0x7f || is_c1_control(text);
}

const char *utf8_escape(const char *text, const char *also, char *to, size_t room)
{
	while (*text) {
		const unsigned char *at = (const unsigned char *)text;
		size_t length = character_bytes(at);
		bool escaped = !length || is_control(at) || strchr(also, *text);

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

void utf8_clean(char *text)
{
	while (*text) {
		size_t length = character_bytes((const unsigned char *)text);

		if (!length)
			*text = '?';
		text += length ? length : 1;
	}
}

void utf8_write_json(const char *json, FILE *out)
{
	for (; *json; json++) {
		if (*json == 0x7f)
			fputs("\\u007f", out);
		else if (is_c1_control((const unsigned char *)json))
			fprintf(out, "\\u%04x", *(const unsigned char *)++json);
		else
			fputc(*json, out);
	}
}
