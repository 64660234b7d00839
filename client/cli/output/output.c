/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/output/output.h"

#include <inttypes.h>
#include <langinfo.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/text/utf8.h"

#define EIGHTHS 8

enum output_glyphs output_glyphs(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? OUTPUT_UNICODE : OUTPUT_ASCII;
}

unsigned output_terminal_width(FILE *out)
{
	struct winsize size;

	return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* The number of steps that are full. */
static unsigned bar_steps(uint64_t part, uint64_t whole, unsigned steps)
{
	if (!whole || !part)
		return 0;
	if (part >= whole)
		return steps;
	unsigned full = (unsigned)((double)part / (double)whole * steps);

	return full == 0 ? 1 : full >= steps ? steps - 1 : full;
}

const char *output_bar(uint64_t part, uint64_t whole, unsigned width, enum output_glyphs glyphs,
		       char *text)
{
	/* Left eighths of a block: U+258F is one eighth, U+2588 all eight. */
	static const char *const blocks[] = {"·",      "\u258f", "\u258e", "\u258d", "\u258c",
					     "\u258b", "\u258a", "\u2589", "\u2588"};
	unsigned per_cell = glyphs == OUTPUT_UNICODE ? EIGHTHS : 1;
	unsigned full = bar_steps(part, whole, width * per_cell);
	char *at = text;

	for (unsigned cell = 0; cell < width; cell++) {
		unsigned steps = full > per_cell ? per_cell : full;

		full -= steps;
		at = stpcpy(at, glyphs == OUTPUT_UNICODE ? blocks[steps] : steps ? "#" : ".");
	}
	return text;
}

const char *output_curve(const double *values, unsigned count, enum output_glyphs glyphs,
			 char *text)
{
	static const char *const unicode[] = {" ",	"\u2581", "\u2582", "\u2583", "\u2584",
					      "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const ascii[] = {" ", ".", ".", ":", ":", "+", "*", "#", "#"};
	double top = 0;
	char *at = text;

	*at = '\0';
	for (unsigned i = 0; i < count; i++)
		top = values[i] > top ? values[i] : top;
	for (unsigned i = 0; i < count; i++) {
		unsigned step = top > 0 ? (unsigned)(values[i] / top * EIGHTHS + 0.5) : 0;

		if (values[i] > 0 && step == 0)
			step = 1;
		at = stpcpy(at, glyphs == OUTPUT_UNICODE ? unicode[step] : ascii[step]);
	}
	return text;
}

unsigned output_width(const char *text)
{
	unsigned width = 0;

	/* Continuation bytes of UTF-8 take no column. */
	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

char *output_shown(const char *text, const char *extra)
{
	size_t room = UTF8_ESCAPED_BYTES(strlen(text));
	char *shown = malloc(room);

	if (shown)
		utf8_escape(text, extra, shown, room);
	return shown;
}

char *output_escape(const char *text)
{
	return output_shown(text, "\\");
}

json_t *output_json_text(const char *text)
{
	AUTO_FREE char *escaped = output_escape(text);

	return escaped ? json_string(escaped) : NULL;
}

json_t *output_json_user(uid_t uid)
{
	const struct passwd *user = getpwuid(uid);

	return output_json_text(user ? user->pw_name : "");
}

void output_vtext(FILE *out, const char *format, va_list args)
{
	AUTO_FREE char *text = NULL, *shown = NULL;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	shown = text ? output_shown(text, "") : NULL;
	fputs(shown ? shown : "(no memory for the message)", out);
}

void output_text(FILE *out, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	output_vtext(out, format, args);
	va_end(args);
}

void output_line(FILE *out, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	output_vtext(out, format, args);
	va_end(args);
	fputc('\n', out);
}

bool output_coloured(FILE *out)
{
	const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");

	return isatty(fileno(out)) && !(no_colour && *no_colour) && term &&
	       strcmp(term, "dumb") != 0;
}

const char *output_colour(FILE *out, enum output_colour colour)
{
	static const char *const sequences[] = {
	    [COLOUR_NONE] = "\033[0m", [COLOUR_GOOD] = "\033[32m", [COLOUR_WARN] = "\033[33m",
	    [COLOUR_BAD] = "\033[31m", [COLOUR_DIM] = "\033[2m",   [COLOUR_STRONG] = "\033[1m"};

	return output_coloured(out) ? sequences[colour] : "";
}
