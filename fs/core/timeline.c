/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/timeline.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"

static const char *const part_names[TIMELINE_MARKS] = {
    [TIMELINE_REAPED] = "reaping",
    [TIMELINE_PROCESS] = "process",
    [TIMELINE_DRIVER] = "driver",
    [TIMELINE_PREPARED] = "preparing",
    [TIMELINE_GO] = "keeper",
    [TIMELINE_JOURNAL] = "journal",
    [TIMELINE_MEMORY] = "memory",
    [TIMELINE_SERVING] = "serving",
    [TIMELINE_ANSWERED] = "first answer",
};

void timeline_mark(struct timeline *timeline, enum timeline_mark mark)
{
	timeline->at[mark] = clock_us();
}

/* A step that ended before the end of the earlier daemon delayed no request, and counts as 0. */
void timeline_write(const struct timeline *timeline, char text[TIMELINE_TEXT])
{
	int64_t start = timeline->at[TIMELINE_SEEN], last = start;
	int at = 0, end = timeline->idle ? TIMELINE_ANSWERED : TIMELINE_MARKS;

	for (int mark = TIMELINE_SEEN + 1; mark < end; mark++) {
		int64_t now = timeline->at[mark], part = now > last ? now - last : 0;

		at += snprintf(text + at, TIMELINE_TEXT - (size_t)at, "%s %.1f, ", part_names[mark],
			       (double)part / 1000);
		last += part;
	}
	double together = (double)(last - start) / 1000;

	at += snprintf(text + at, TIMELINE_TEXT - (size_t)at, "together %.1f ms; ", together);
	if (timeline->idle)
		snprintf(text + at, TIMELINE_TEXT - (size_t)at, "no request waited");
	else
		snprintf(text + at, TIMELINE_TEXT - (size_t)at, "requests waited %.1f ms at most",
			 together);
}

static void timeline_log(const struct timeline *timeline, const char *mountpoint)
{
	char text[TIMELINE_TEXT];

	timeline_write(timeline, text);
	log_info("%s: a daemon was replaced%s: %s", mountpoint,
		 timeline->at[TIMELINE_PREPARED] < timeline->at[TIMELINE_SEEN]
		     ? " by a standby daemon"
		     : "",
		 text);
}

void timeline_idle(struct timeline *timeline, const char *mountpoint)
{
	timeline->idle = true;
	if (!atomic_exchange(&timeline->logged, true) && timeline->at[TIMELINE_SEEN])
		timeline_log(timeline, mountpoint);
}

void timeline_answer(struct timeline *timeline, const char *mountpoint)
{
	if (atomic_exchange(&timeline->logged, true) || !timeline->at[TIMELINE_SEEN])
		return;
	timeline_mark(timeline, TIMELINE_ANSWERED);
	timeline_log(timeline, mountpoint);
}
