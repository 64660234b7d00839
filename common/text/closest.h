/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* "Did you mean": finds the known name that is closest to a mistyped word. */
#ifndef COMMON_TEXT_CLOSEST_H
#define COMMON_TEXT_CLOSEST_H

struct closest {
	const char *word;  /* as typed */
	const char *name;  /* the closest so far; NULL: no name is close */
	unsigned distance; /* between word and name */
};

/* Considers another known name. */
void closest_try(struct closest *closest, const char *name);

#endif
