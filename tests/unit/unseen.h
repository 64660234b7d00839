/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Accesses that the thread sanitizer must not see: in place of a GPU's, which it cannot see, or of
 * memory that a GPU writes meanwhile. */
#ifndef TESTS_UNIT_UNSEEN_H
#define TESTS_UNIT_UNSEEN_H

#include <string.h>

#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line)
#define AnnotateIgnoreReadsEnd(file, line)
#define AnnotateIgnoreWritesBegin(file, line)
#define AnnotateIgnoreWritesEnd(file, line)
#endif

static inline int unseen_compare(const void *a, const void *b, size_t bytes)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	int order = memcmp(a, b, bytes);

	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	return order;
}

#endif
