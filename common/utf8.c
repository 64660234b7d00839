/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/utf8.h"

#include <stdbool.h>
#include <stddef.h>

static bool follows(unsigned char byte)
{
	return (byte & 0xc0) == 0x80;
}

/* The length of the character at the start; 0: it is none. Unicode 15, table 3-7: neither overlong
 * forms nor surrogates. */
static size_t character(const unsigned char *text)
{
	unsigned char first = text[0];

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4 || !follows(text[1]))
		return 0;
	if (first < 0xe0)
		return 2;
	if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
	    (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f))
		return 0;
	if (!follows(text[2]))
		return 0;
	if (first < 0xf0)
		return 3;
	return follows(text[3]) ? 4 : 0;
}

void utf8_clean(char *text)
{
	while (*text) {
		size_t length = character((const unsigned char *)text);

		if (!length)
			*text = '?';
		text += length ? length : 1;
	}
}
