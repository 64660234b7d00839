/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "client/preload/core/real.h"

void line_add(struct line *line, const char *format, ...)
{
	size_t room = sizeof(line->text) - line->bytes;
	va_list arguments;

	va_start(arguments, format);
	int n = vsnprintf(line->text + line->bytes, room, format, arguments);
	va_end(arguments);
	if (n > 0)
		line->bytes += (size_t)n < room ? (size_t)n : room - 1;
}

void line_begin(struct line *line)
{
	line->bytes = 0;
	line_add(line, "gpumem-preload: pid %d", (int)getpid());
}

void line_write(struct line *line, int out)
{
	line_add(line, "\n");
	(void)!real.write(out, line->text, line->bytes);
}
