/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* "Did you mean": of the names that are known, the one that a mistyped word is nearest to. */
#ifndef COMMON_CLOSEST_H
#define COMMON_CLOSEST_H

struct closest {
	const char *word;  /* as it was typed */
	const char *name;  /* the nearest so far; NULL: none is near */
	unsigned distance; /* from it to the word */
};

/* Name becomes the nearest where it is nearer than those before. */
void closest_try(struct closest *closest, const char *name);

#endif
