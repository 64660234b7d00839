/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: the layout of the screen, and the terminal. */
#include <errno.h>
#include <ncurses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/output/output.h"
#include "client/cli/top/top.h"
#include "common/text/utf8.h"

#define BAR_CELLS   16
#define CURVE_CELLS 30
#define LINE_BYTES  1024
/* The number of sharers shown, however many files are busy. */
#define SHARERS_SEEN 6

/* The destination of the lines, and its size. */
struct sheet {
	unsigned lines_left, columns;
	void (*put)(void *context, const char *line, bool strong);
	void *context;
};

/* Cuts a text to so many columns, between characters of UTF-8. */
static void text_cut(char *text, unsigned columns)
{
	unsigned width = 0;

	for (; *text; text++) {
		width += ((unsigned char)*text & 0xc0) != 0x80;
		if (width > columns) {
			*text = '\0';
			return;
		}
	}
}

__attribute__((format(printf, 3, 4))) static void line(struct sheet *sheet, bool strong,
						       const char *format, ...)
{
	char raw[LINE_BYTES], text[UTF8_ESCAPED_BYTES(LINE_BYTES)];
	va_list args;

	if (!sheet->lines_left)
		return;
	sheet->lines_left--;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	utf8_escape(raw, "", text, sizeof(text));
	text_cut(text, sheet->columns);
	sheet->put(sheet->context, text, strong);
}

static void rates_write(char text[LINE_BYTES], const struct top_bytes *rate)
{
	char read[OUTPUT_TEXT_MAX], write[OUTPUT_TEXT_MAX], copy[OUTPUT_TEXT_MAX];

	snprintf(text, LINE_BYTES, "%10s %10s %10s", output_rate(rate->read, read),
		 output_rate(rate->write, write), output_rate(rate->copy, copy));
}

static void gpu_write(const struct top_gpu *gpu, struct sheet *sheet)
{
	char bar[OUTPUT_BAR_BYTES(BAR_CELLS)], curve[3 * CURVE_CELLS + 1], rates[LINE_BYTES];
	char used[OUTPUT_TEXT_MAX], total[OUTPUT_TEXT_MAX], mapped[OUTPUT_TEXT_MAX];

	bool well = strcmp(gpu->health, "ok") == 0;

	rates_write(rates, &gpu->rate);
	if (!gpu->counted)
		snprintf(rates, sizeof(rates), "%10s %10s %10s", "-", "-", "-");
	line(sheet, !well, "%-6s %s %5s of %5s %6s %s %s%s%s", gpu->name,
	     output_bar(gpu->used, gpu->total, BAR_CELLS, output_glyphs(), bar),
	     output_size(gpu->used, used), output_size(gpu->total, total),
	     output_size(gpu->mapped, mapped), rates,
	     output_curve(gpu->history + TOP_HISTORY - CURVE_CELLS, CURVE_CELLS, output_glyphs(),
			  curve),
	     well ? "" : " ", well ? "" : gpu->health);
}

/* A line for a GPU with several places. */
static void places_write(const struct top_gpu *gpu, struct sheet *sheet)
{
	char files[OUTPUT_TEXT_MAX], size[OUTPUT_TEXT_MAX], rate[OUTPUT_TEXT_MAX];
	char text[LINE_BYTES] = "";
	size_t length = 0;

	for (unsigned i = 0; i < gpu->n_places; i++) {
		const struct top_place *place = &gpu->places[i];

		length +=
		    (size_t)snprintf(text + length, sizeof(text) - length, "  %s %s of %s%s%s",
				     place->name, output_size(place->files, files),
				     output_size(place->size, size), place->rate > 0 ? " +" : "",
				     place->rate > 0 ? output_rate(place->rate, rate) : "");
	}
	if (gpu->n_places > 1)
		line(sheet, false, "%-6s files:%s", "", text);
}

static void files_write(const struct top *top, struct sheet *sheet)
{
	char rates[LINE_BYTES], recent[OUTPUT_TEXT_MAX];
	/* Leave lines for some of the sharers. */
	unsigned sharer_lines = 2 + (top->n_sharers < SHARERS_SEEN ? top->n_sharers : SHARERS_SEEN);

	line(sheet, false, "%s", "");
	if (top->log >= 0)
		line(sheet, true, "%10s %10s %10s  FILE", "READ", "WRITE", "COPY");
	else
		line(sheet, true, "%10s  FILE  (rates of files: for root)", "LATELY");
	for (unsigned i = 0; i < top->n_files && sheet->lines_left > sharer_lines; i++) {
		const struct top_file *file = &top->files[i];

		if (top->log >= 0)
			rates_write(rates, &file->rate);
		else
			snprintf(rates, sizeof(rates), "%10s", output_size(file->recent, recent));
		line(sheet, false, "%s  /%s", rates, file->path);
	}
}

static void sharers_write(const struct top *top, struct sheet *sheet)
{
	char size[OUTPUT_TEXT_MAX];

	line(sheet, false, "%s", "");
	line(sheet, true, "%8s %8s %-3s %6s  %-24s FILE", "PID", "UID", "", "SIZE", "SHARER");
	for (unsigned i = 0; i < top->n_sharers; i++) {
		const struct top_sharer *row = &top->sharers[i];

		line(sheet, false, "%8d %8u %-3s %6s  %-24.24s %s", (int)row->sharer.pid,
		     (unsigned)row->sharer.uid, row->sharer.access,
		     output_size(row->sharer.bytes, size), row->command, row->sharer.path);
	}
}

void top_write(const struct top *top, unsigned lines, unsigned columns,
	       void (*put)(void *context, const char *line, bool strong), void *context)
{
	struct sheet sheet = {lines, columns, put, context};
	char rates[LINE_BYTES];

	rates_write(rates, &top->rate);
	line(&sheet, true, "%s  read, write, copy:%s  requests %.0f/s  errors %.0f/s",
	     top->mountpoint, rates, top->request_rate, top->error_rate);
	line(&sheet, true, "%-6s %-*s %14s %6s %10s %10s %10s", "GPU", BAR_CELLS, "MEMORY", "",
	     "MAPPED", "READ", "WRITE", "COPY");
	for (unsigned i = 0; i < top->n_gpus; i++) {
		gpu_write(&top->gpus[i], &sheet);
		places_write(&top->gpus[i], &sheet);
	}
	files_write(top, &sheet);
	sharers_write(top, &sheet);
}

static void curses_put(void *context, const char *text, bool strong)
{
	int *row = context;

	if (strong)
		attron(A_BOLD);
	mvaddstr((*row)++, 0, text);
	if (strong)
		attroff(A_BOLD);
}

static int screen_draw_until(struct top *top, double seconds, uint64_t count)
{
	int key = 0, error = 0;

	timeout((int)(seconds * 1000));
	for (uint64_t n = 0; key != 'q' && (!count || n <= count); n++) {
		int row = 0;

		/* A key or a new window size redraws without shortening the interval. */
		if (key == ERR || n == 0)
			error = top_sample(top, cli_seconds());
		if (error)
			return error;
		erase();
		top_write(top, (unsigned)LINES - 1, (unsigned)COLS, curses_put, &row);
		mvaddstr(LINES - 1, 0, "q ends it");
		refresh();
		key = getch();
	}
	return 0;
}

int top_screen(struct top *top, double seconds, uint64_t count)
{
	const char *term = getenv("TERM");
	/* newterm, because initscr ends the program on an unknown terminal. */
	SCREEN *screen = top_terminal_places() ? newterm(NULL, stdout, stdin) : NULL;

	if (!screen) {
		cli_error("the terminal is of the type TERM=%s, on which text cannot be placed: "
			  "--samples=N prints lines, --json JSON",
			  term ? term : "");
		return CLI_FAILED;
	}
	cbreak();
	noecho();
	curs_set(0);
	int error = screen_draw_until(top, seconds, count);

	endwin();
	delscreen(screen);
	return error ? cli_fail(top->mountpoint, -error) : CLI_OK;
}
