/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/raw.h"
#include "tests/bench/report.h"

/* All sizes are in the SVG's pixels. */
#define WIDTH	     960
#define MARGIN	     24
#define AXIS_LEFT    76 /* room for the rates, left of a panel */
#define PANEL_GAP    30
#define PANEL_HEIGHT 270
#define PANEL_TITLE  30
#define PANEL_FOOT   34
#define HEAD	     74
#define LEGEND_LINE  22
#define LEGEND_MARK  34
#define CHAR_WIDTH   7.6 /* of the legend's text, rounded up */
#define ROWS_MAX     2
#define COLUMNS	     2

/* Read on light and dark pages: mid-tones for the lines, and the text's colour follows the page. */
static const char style[] =
    "<style>\n"
    "text { font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2933; }\n"
    ".paper { fill: #ffffff; }\n"
    ".title { font-size: 18px; font-weight: 600; }\n"
    ".sub, .tick { font-size: 12px; fill: #5b6773; }\n"
    ".panel { font-size: 14px; font-weight: 600; }\n"
    ".key { font-size: 13px; }\n"
    ".grid { stroke: #e4e8ec; stroke-width: 1; }\n"
    ".frame { stroke: #9aa5b1; stroke-width: 1; fill: none; }\n"
    ".line { fill: none; stroke-linejoin: round; stroke-linecap: round; }\n"
    ".c0 { stroke: #52606d; } .d0 { fill: #52606d; }\n"
    ".c1 { stroke: #8c6d1f; } .d1 { fill: #8c6d1f; }\n"
    ".c2 { stroke: #c2410c; } .d2 { fill: #c2410c; }\n"
    ".c3 { stroke: #1d6fd6; } .d3 { fill: #1d6fd6; }\n"
    ".c4 { stroke: #0e9384; } .d4 { fill: #0e9384; }\n"
    ".c5 { stroke: #9b4dca; } .d5 { fill: #9b4dca; }\n"
    ".c6 { stroke: #d6336c; } .d6 { fill: #d6336c; }\n"
    ".c7 { stroke: #5c7c0f; } .d7 { fill: #5c7c0f; }\n"
    ".c8 { stroke: #b08900; } .d8 { fill: #b08900; }\n"
    ".c9 { stroke: #7a5195; } .d9 { fill: #7a5195; }\n"
    ".c10 { stroke: #2f7d32; } .d10 { fill: #2f7d32; }\n"
    ".c11 { stroke: #a0522d; } .d11 { fill: #a0522d; }\n"
    ".c12 { stroke: #00838f; } .d12 { fill: #00838f; }\n"
    ".c13 { stroke: #616161; } .d13 { fill: #616161; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #e6eaee; } .sub, .tick { fill: #a3afba; } .paper { fill: #14191f; }\n"
    ".grid { stroke: #2a323b; } .frame { stroke: #5b6773; }\n"
    ".c0 { stroke: #b8c4cf; } .d0 { fill: #b8c4cf; }\n"
    ".c1 { stroke: #d9b44a; } .d1 { fill: #d9b44a; }\n"
    ".c2 { stroke: #fb8c5a; } .d2 { fill: #fb8c5a; }\n"
    ".c3 { stroke: #5ba8ff; } .d3 { fill: #5ba8ff; }\n"
    ".c4 { stroke: #3fd0bd; } .d4 { fill: #3fd0bd; }\n"
    ".c5 { stroke: #c893f0; } .d5 { fill: #c893f0; }\n"
    ".c6 { stroke: #ff7eab; } .d6 { fill: #ff7eab; }\n"
    ".c7 { stroke: #a3c644; } .d7 { fill: #a3c644; }\n"
    ".c8 { stroke: #f2cf5b; } .d8 { fill: #f2cf5b; }\n"
    ".c9 { stroke: #d4a6ea; } .d9 { fill: #d4a6ea; }\n"
    ".c10 { stroke: #81c784; } .d10 { fill: #81c784; }\n"
    ".c11 { stroke: #e0a17c; } .d11 { fill: #e0a17c; }\n"
    ".c12 { stroke: #4dd0e1; } .d12 { fill: #4dd0e1; }\n"
    ".c13 { stroke: #bdbdbd; } .d13 { fill: #bdbdbd; }\n"
    "}\n"
    "</style>\n";

/* A line style for each kind of target: limits are dashed, gpumemfs is the thickest line. The
 * kinds without a width are in the tables alone: more lines than these cannot be told apart. */
static const struct look {
	const char *dash;
	double width;
} looks[] = {
    [TARGET_RAW_COPY] = {"9 5", 1.8}, [TARGET_STOCK] = {"4 4", 1.8}, [TARGET_GPU] = {NULL, 3.2},
    [TARGET_TMPFS] = {NULL, 2},	      [TARGET_PEER] = {NULL, 2},
};

static bool has_line(const struct target *target)
{
	return !*target->absent && looks[target->kind].width > 0;
}

/* Without a GPU the raw targets are copies in memory. */
static const char *shown_name(const struct bench *bench, const struct target *target)
{
	bool host = bench->options.backend == BENCH_HOST;

	switch (target->kind) {
	case TARGET_RAW_COPY:
		return host ? "memcpy" : "raw pinned copy";
	case TARGET_RAW_BAR:
		return host ? "streaming copy" : "raw BAR";
	case TARGET_NULL:
		return "FUSE alone, this session";
	case TARGET_GPU:
		return "gpumemfs gpu0/";
	case TARGET_RING:
		return "gpumemfs gpu0/, io_uring";
	case TARGET_HOST:
		return "gpumemfs host/";
	default:
		return target->name;
	}
}

struct chart {
	const struct bench *bench;
	FILE *out;
	const struct case_report *columns[COLUMNS];
	unsigned n_columns;
	unsigned threads[ROWS_MAX];
	unsigned n_rows;
	double sizes[2], rates[2]; /* minimum and maximum, as logarithms (base 2, base 10) */
	double legend;		   /* height */
};

struct panel {
	double x, y, width;
};

/* --- selecting results */

static const struct result *result_at(const struct chart *chart, unsigned column, unsigned point,
				      unsigned target)
{
	return &chart->columns[column]->results[point * chart->bench->n_targets + target];
}

static bool is_drawn(const struct result *result)
{
	return result->state == FIGURE_GOOD && result->value > 0;
}

static void include(double range[2], double value)
{
	range[0] = fmin(range[0], value);
	range[1] = fmax(range[1], value);
}

static void find_columns(struct chart *chart)
{
	for (unsigned i = 0; i < chart->bench->n_reports; i++) {
		const struct case_report *report = &chart->bench->reports[i];
		const char *name = report->of->name;

		if (report->n_points && chart->n_columns < COLUMNS &&
		    (strcmp(name, "read") == 0 || strcmp(name, "write") == 0))
			chart->columns[chart->n_columns++] = report;
	}
}

/* A number of threads with a single size gives no line. */
static bool has_sizes(const struct case_report *report, unsigned threads)
{
	unsigned n = 0;

	for (unsigned i = 0; i < report->n_points; i++)
		n += report->points[i].lanes == threads;
	return n > 1;
}

static void find_ranges(struct chart *chart)
{
	unsigned least = LANES_MAX, most = 1;

	chart->sizes[0] = chart->rates[0] = HUGE_VAL;
	chart->sizes[1] = chart->rates[1] = -HUGE_VAL;
	for (unsigned column = 0; column < chart->n_columns; column++) {
		const struct case_report *report = chart->columns[column];
		for (unsigned i = 0; i < report->n_points; i++) {
			const struct point *point = &report->points[i];

			least = point->lanes < least ? point->lanes : least;
			most = point->lanes > most && has_sizes(report, point->lanes) ? point->lanes
										      : most;
			include(chart->sizes, log2((double)point->bytes));
			for (unsigned t = 0; t < chart->bench->n_targets; t++)
				if (has_line(&chart->bench->targets[t]) &&
				    is_drawn(result_at(chart, column, i, t)))
					include(chart->rates,
						log10(result_at(chart, column, i, t)->value));
		}
	}
	chart->threads[0] = least;
	chart->threads[1] = most;
	chart->n_rows = most > least ? 2 : 1;
	chart->rates[0] = floor(chart->rates[0]);
	chart->rates[1] = ceil(chart->rates[1]);
}

/* --- drawing */

static double x_of(const struct chart *chart, const struct panel *panel, double size)
{
	double span = chart->sizes[1] - chart->sizes[0], inset = 18;

	return panel->x + inset +
	       (panel->width - 2 * inset) *
		   (span > 0 ? (log2(size) - chart->sizes[0]) / span : 0.5);
}

static double y_of(const struct chart *chart, const struct panel *panel, double rate)
{
	return panel->y + PANEL_HEIGHT * (1 - (log10(rate) - chart->rates[0]) /
						  (chart->rates[1] - chart->rates[0]));
}

/* Escapes the text: names of peers come from the command line. */
static void put_text(const struct chart *chart, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", chart->out);
			break;
		case '&':
			fputs("&amp;", chart->out);
			break;
		default:
			fputc(*text, chart->out);
		}
}

/* A class of the style. */
static unsigned colour(const struct chart *chart, const struct target *target)
{
	return (unsigned)(target - chart->bench->targets);
}

static void line_style(const struct chart *chart, const struct target *target)
{
	const struct look *look = &looks[target->kind];

	fprintf(chart->out, " class=\"line c%u\" stroke-width=\"%.1f\"", colour(chart, target),
		look->width);
	if (look->dash)
		fprintf(chart->out, " stroke-dasharray=\"%s\"", look->dash);
}

static void draw_grid(const struct chart *chart, const struct panel *panel)
{
	char text[FIGURE_TEXT_MAX];

	for (double decade = chart->rates[0]; decade <= chart->rates[1]; decade++) {
		double y = y_of(chart, panel, pow(10, decade));
		char *zeros;

		report_value(UNIT_RATE, pow(10, decade), text);
		zeros = strchr(text, '.'); /* "1.00 GB/s": the number at a tick is round */
		if (zeros)
			memmove(zeros, strchr(text, ' '), strlen(strchr(text, ' ')) + 1);
		fprintf(
		    chart->out,
		    "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n"
		    "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
		    panel->x, y, panel->x + panel->width, y, panel->x - 8, y + 4, text);
	}
	fprintf(chart->out,
		"<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n",
		panel->x, panel->y, panel->width, PANEL_HEIGHT);
}

static void draw_sizes(const struct chart *chart, const struct panel *panel, unsigned column,
		       unsigned threads)
{
	const struct case_report *report = chart->columns[column];
	double free_from = 0; /* of labels */
	char size[FIGURE_TEXT_MAX];

	for (unsigned i = 0; i < report->n_points; i++) {
		double x = x_of(chart, panel, (double)report->points[i].bytes);

		if (report->points[i].lanes != threads)
			continue;
		fprintf(chart->out,
			"<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
			"y2=\"%.1f\"/>\n",
			x, panel->y, x, panel->y + PANEL_HEIGHT);
		report_size(report->points[i].bytes, size);
		double half = CHAR_WIDTH * (double)strlen(size) / 2;

		if (x - half < free_from)
			continue;
		fprintf(chart->out,
			"<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
			"text-anchor=\"middle\">%s</text>\n",
			x, panel->y + PANEL_HEIGHT + 18, size);
		free_from = x + half;
	}
}

/* From the 10th to the 90th percentile of the repetitions. */
static void draw_spread(const struct chart *chart, const struct panel *panel,
			const struct target *target, const struct point *point,
			const struct result *result)
{
	double x = x_of(chart, panel, (double)point->bytes);

	fprintf(chart->out,
		"<path class=\"line c%u\" stroke-width=\"1\" d=\"M%.1f %.1f V%.1f\"/>\n",
		colour(chart, target), x,
		y_of(chart, panel, fmax(result->p10, pow(10, chart->rates[0]))),
		y_of(chart, panel, result->p90));
}

static void draw_marks(const struct chart *chart, const struct panel *panel, unsigned column,
		       unsigned threads, unsigned index)
{
	const struct target *target = &chart->bench->targets[index];
	const struct case_report *report = chart->columns[column];

	for (unsigned i = 0; i < report->n_points; i++) {
		const struct result *result = result_at(chart, column, i, index);
		char text[FIGURE_TEXT_MAX];

		if (report->points[i].lanes != threads || !is_drawn(result))
			continue;
		draw_spread(chart, panel, target, &report->points[i], result);
		fprintf(chart->out,
			"<circle class=\"d%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>",
			colour(chart, target), x_of(chart, panel, (double)report->points[i].bytes),
			y_of(chart, panel, result->value), target->kind == TARGET_GPU ? 4.5 : 3.2);
		put_text(chart, shown_name(chart->bench, target));
		fprintf(chart->out, ", %s: %s", report->points[i].label,
			report_value(UNIT_RATE, result->value, text));
		fprintf(chart->out, ", %s", report_value(UNIT_RATE, result->p10, text));
		fprintf(chart->out, " to %s</title></circle>\n",
			report_value(UNIT_RATE, result->p90, text));
	}
}

static void draw_target(const struct chart *chart, const struct panel *panel, unsigned column,
			unsigned threads, unsigned index)
{
	const struct case_report *report = chart->columns[column];
	const char *move = "M";

	fprintf(chart->out, "<path");
	line_style(chart, &chart->bench->targets[index]);
	fprintf(chart->out, " d=\"");
	for (unsigned i = 0; i < report->n_points; i++) {
		const struct result *result = result_at(chart, column, i, index);

		if (report->points[i].lanes != threads || !is_drawn(result))
			continue;
		fprintf(chart->out, "%s%.1f %.1f", move,
			x_of(chart, panel, (double)report->points[i].bytes),
			y_of(chart, panel, result->value));
		move = " L";
	}
	fprintf(chart->out, "\"/>\n");
	draw_marks(chart, panel, column, threads, index);
}

static void draw_panel(const struct chart *chart, unsigned row, unsigned column)
{
	double width = (WIDTH - 2.0 * MARGIN - chart->n_columns * AXIS_LEFT -
			(chart->n_columns - 1) * PANEL_GAP) /
		       chart->n_columns;
	const struct panel panel = {
	    .x = MARGIN + AXIS_LEFT + column * (width + AXIS_LEFT + PANEL_GAP),
	    .y = HEAD + chart->legend + PANEL_TITLE +
		 row * (PANEL_TITLE + PANEL_HEIGHT + PANEL_FOOT),
	    .width = width,
	};
	unsigned threads = chart->threads[row];

	fprintf(chart->out, "<text class=\"panel\" x=\"%.1f\" y=\"%.1f\">%s, %u thread%s</text>\n",
		panel.x, panel.y - 10,
		strcmp(chart->columns[column]->of->name, "read") == 0 ? "Read" : "Write", threads,
		threads == 1 ? "" : "s");
	draw_grid(chart, &panel);
	draw_sizes(chart, &panel, column, threads);
	/* Draw gpumemfs last, on top of the other lines. */
	for (unsigned i = 0; i < chart->bench->n_targets; i++)
		if (has_line(&chart->bench->targets[i]) &&
		    chart->bench->targets[i].kind != TARGET_GPU)
			draw_target(chart, &panel, column, threads, i);
	for (unsigned i = 0; i < chart->bench->n_targets; i++)
		if (chart->bench->targets[i].kind == TARGET_GPU)
			draw_target(chart, &panel, column, threads, i);
}

/* An entry of the legend: returns where the next entry may begin. */
static double legend_entry(const struct chart *chart, const struct target *target, double x,
			   double y)
{
	const char *name = shown_name(chart->bench, target);

	if (chart->out) {
		fprintf(chart->out, "<path");
		line_style(chart, target);
		fprintf(chart->out,
			" d=\"M%.1f %.1f h%d\"/><text class=\"key\" x=\"%.1f\" y=\"%.1f\">", x, y,
			LEGEND_MARK, x + LEGEND_MARK + 8, y + 4);
		put_text(chart, name);
		fprintf(chart->out, "</text>\n");
	}
	return x + LEGEND_MARK + 8 + CHAR_WIDTH * (double)strlen(name) + 20;
}

/* The filesystems in a line, their bounds in the next, each wrapped: returns the height. Draws if
 * there is a file. */
static double legend(const struct chart *chart)
{
	double y = HEAD;

	for (unsigned dashed = 0; dashed < 2; dashed++) {
		double x = MARGIN;

		for (unsigned i = 0; i < chart->bench->n_targets; i++) {
			const struct target *target = &chart->bench->targets[i];
			double width =
			    LEGEND_MARK + 8 +
			    CHAR_WIDTH * (double)strlen(shown_name(chart->bench, target));

			if (!has_line(target) || dashed != (looks[target->kind].dash != NULL))
				continue;
			if (x > MARGIN && x + width > WIDTH - MARGIN) {
				x = MARGIN;
				y += LEGEND_LINE;
			}
			x = legend_entry(chart, target, x, y);
		}
		y += LEGEND_LINE;
	}
	return y - HEAD;
}

static void draw(const struct chart *chart)
{
	double height = HEAD + chart->legend +
			chart->n_rows * (PANEL_TITLE + PANEL_HEIGHT + PANEL_FOOT) + MARGIN / 2.0;
	char machine[256];

	fprintf(chart->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
		"height=\"%.0f\">\n%s<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
		WIDTH, height, WIDTH, height, style);
	fprintf(chart->out,
		"<text class=\"title\" x=\"%d\" y=\"30\">Rate by size of one read or write</text>\n"
		"<text class=\"sub\" x=\"%d\" y=\"49\">",
		MARGIN, MARGIN);
	put_text(chart, chart->bench->raw ? chart->bench->raw->device : "");
	put_text(chart, "; ");
	put_text(chart, report_machine(machine, sizeof(machine)));
	fprintf(chart->out, "; medians of %u, with p10 to p90. Dashed: the ceilings</text>\n",
		chart->bench->reps);
	legend(chart);
	for (unsigned row = 0; row < chart->n_rows; row++)
		for (unsigned column = 0; column < chart->n_columns; column++)
			draw_panel(chart, row, column);
	fprintf(chart->out, "</svg>\n");
}

int report_svg(const struct bench *bench, const char *path)
{
	struct chart chart = {.bench = bench};

	find_columns(&chart);
	find_ranges(&chart);
	if (!chart.n_columns || !(chart.rates[1] > chart.rates[0])) {
		fprintf(stderr, "bench: %s: no rates to draw (cases read and write)\n", path);
		return -1;
	}
	chart.legend = legend(&chart);
	chart.out = fopen(path, "we");
	if (!chart.out) {
		fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
		return -1;
	}
	draw(&chart);
	if (fclose(chart.out)) {
		fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}
