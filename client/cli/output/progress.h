/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The line of progress on a terminal, which must not wrap: a carriage return leads to the beginning
 * of the last line alone. */
#ifndef CLIENT_CLI_OUTPUT_PROGRESS_H
#define CLIENT_CLI_OUTPUT_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

/* The columns of the terminal at standard error; 80 if it does not say. */
unsigned progress_columns(void);

/* Draws the line anew: a percentage, a bar, and the parts, the most important first. What does not
 * fit is left out, the last parts first, then the bar. */
void progress_draw(FILE *out, unsigned columns, uint64_t amount, uint64_t total,
		   const char *const *parts, unsigned n_parts);

#endif
