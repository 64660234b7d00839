/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* File names are arbitrary bytes, but JSON is UTF-8, and a terminal interprets control characters:
 * functions that make a name fit. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdio.h>

/* Escapes a text for a terminal or a line of text: control characters (U+0000 to U+001F, U+007F to
 * U+009F), bytes outside UTF-8, and the ASCII characters in also become \ooo for each byte. Writes
 * as many whole characters as fit, and a NUL. Returns the rest of text: "" if everything fitted, as
 * is certain with UTF8_ESCAPED_BYTES(strlen(text)) bytes. */
#define UTF8_ESCAPED_BYTES(length) (4 * (length) + 1)
const char *utf8_escape(const char *text, const char *also, char *to, size_t room);

/* Replaces the bytes outside well-formed characters by '?'. */
void utf8_clean(char *text);

/* Writes JSON with U+007F to U+009F as \u00xx: terminals interpret the raw characters, while JSON
 * does not require the escape. Strings alone have such characters, so the meaning stays. */
void utf8_write_json(const char *json, FILE *out);

#endif
