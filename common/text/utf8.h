/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* File names are arbitrary bytes, but JSON is UTF-8, and a terminal obeys some characters:
 * functions that make a name fit. Unprintable are control characters (U+0000 to U+001F, U+007F to
 * U+009F), bidirectional controls, invisible characters, and separators of lines and paragraphs. */
#ifndef COMMON_TEXT_UTF8_H
#define COMMON_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Escapes a text for a terminal or a line of text: unprintable characters, bytes outside UTF-8, and
 * the ASCII characters in extra become \ooo for each byte. Writes as many whole characters as fit,
 * and a NUL. Returns the rest of text: "" if everything fitted, as is certain with
 * UTF8_ESCAPED_BYTES(strlen(text)) bytes. */
#define UTF8_ESCAPED_BYTES(length) (4 * (length) + 1)
const char *utf8_escape(const char *text, const char *extra, char *to, size_t room);

/* Whether the text is UTF-8 without unprintable characters. */
bool utf8_is_printable(const char *text);

/* Writes JSON with unprintable characters from U+007F on as \uxxxx, which JSON does not require.
 * Strings alone have such characters, so the meaning stays. */
void utf8_write_json(const char *json, FILE *out);

#endif
