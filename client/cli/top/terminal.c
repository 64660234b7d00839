/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What top asks of the terminal. The macros of <term.h> (lines, columns) keep to this file. */
#include "client/cli/top/top.h"

#include <ncurses.h>
#include <term.h>
#include <unistd.h>

bool top_terminal_places(void)
{
	int error;

	if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return false;
	const char *place = tigetstr("cup");
	bool places = place && place != (const char *)-1;

	/* newterm makes a description of its own. */
	del_curterm(cur_term);
	return places;
}
