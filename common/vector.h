/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Arrays that grow by one element and double when they are full, so no capacity is stored; and the
 * search in sorted arrays. */
#ifndef COMMON_VECTOR_H
#define COMMON_VECTOR_H

#include <stdlib.h>

/* The array `at` of `count` elements with room for one more; `at` may be NULL while count is 0. The
 * array may move. NULL: no memory, and the array is as before. Only for arrays that no other code
 * grows.
 */
static inline void *vector_grow(void *at, size_t count, size_t size)
{
	/* The array is full whenever the count is a power of two, or 0. */
	if (count & (count - 1))
		return at;
	return reallocarray(at, count ? count * 2 : 1, size);
}

/* By binary search, the first index i of a sorted array of `count` elements for which `before`, an
 * expression of i, is false; count if none is. */
#define vector_search(i, count, before)                                                            \
	({                                                                                         \
		size_t low_ = 0, high_ = (count);                                                  \
		while (low_ < high_) {                                                             \
			size_t i = low_ + (high_ - low_) / 2;                                      \
			if (before)                                                                \
				low_ = i + 1;                                                      \
			else                                                                       \
				high_ = i;                                                         \
		}                                                                                  \
		low_;                                                                              \
	})

#endif
