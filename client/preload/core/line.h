/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A line of the statistics. It is written at once, so that the lines of processes that end together
 * do not mix. */
#ifndef CLIENT_PRELOAD_CORE_LINE_H
#define CLIENT_PRELOAD_CORE_LINE_H

#include <stddef.h>

struct line {
	char text[2048]; /* a longer line is cut off */
	size_t bytes;
};

/* Begins with the name of the library and the process. */
void line_begin(struct line *line);
__attribute__((format(printf, 2, 3))) void line_add(struct line *line, const char *format, ...);
/* Ends the line and writes it to the descriptor. */
void line_write(struct line *line, int out);

#endif
