/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names of files are any bytes; JSON is UTF-8. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

/* Puts '?' for every byte that is not part of a well-formed character. */
void utf8_clean(char *text);

#endif
