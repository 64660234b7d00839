/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names of files are any bytes; JSON is UTF-8, and a terminal obeys some characters. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdio.h>

/* What may be shown on a terminal and written in a line of text: control characters (U+0000 to
 * U+001F, U+007F to U+009F), bytes that are no UTF-8, and the ASCII characters of also become \ooo,
 * each byte of them. Whole characters, as many as fit, and NUL are written. What is left of text
 * is returned: "" if all of it fits, as it does into UTF8_ESCAPED_BYTES(strlen(text)). */
#define UTF8_ESCAPED_BYTES(length) (4 * (length) + 1)
const char *utf8_escape(const char *text, const char *also, char *to, size_t room);

/* Puts '?' for every byte that is not part of a well-formed character. */
void utf8_clean(char *text);

/* Writes JSON with U+007F to U+009F, which a terminal obeys and JSON takes as they are, as \u00xx:
 * they are in strings alone, and those are the same. */
void utf8_write_json(const char *json, FILE *out);

#endif
