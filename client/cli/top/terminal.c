/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: the abilities of the terminal. In a file of its own, because the macros of <term.h>
 * (lines, columns) clash with other names. */
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

	/* newterm reads the description of the terminal again. */
	del_curterm(cur_term);
	return places;
}
