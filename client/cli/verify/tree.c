/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/verify/tree.h"

#include <string.h>

#include "common/hash.h"

#define STRINGS 32
#define PIECE	16 /* bytes; the pieces go to the strings in turn */
#define ACCUMULATORS                                                                               \
	128 /* of all strings: XXH64 has four, which take a word of 8 bytes in turn                \
	     */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken as they are");
_Static_assert(STRINGS * 2 * PIECE == ACCUMULATORS * 8, "each accumulator takes one word");

/* XXH64's. */
#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)

static inline __attribute__((always_inline)) uint64_t word_rotate(uint64_t value, unsigned bits)
{
	return value << bits | value >> (64 - bits);
}

static inline __attribute__((always_inline)) uint64_t accumulator_round(uint64_t accumulator,
									uint64_t word)
{
	return word_rotate(accumulator + word * PRIME_2, 31) * PRIME_1;
}

/* Two pieces of each string, one after the other, so that the accumulators have the order of the
 * words. */
static inline __attribute__((always_inline)) void stripes(uint64_t *restrict all,
							  const char *restrict bytes)
{
	for (size_t at = 0; at < TREE_BLOCK; at += sizeof(uint64_t[ACCUMULATORS]))
		for (size_t i = 0; i < ACCUMULATORS; i++) {
			uint64_t word;

			memcpy(&word, bytes + at + i * sizeof(word), sizeof(word));
			all[i] = accumulator_round(all[i], word);
		}
}

#if defined(__x86_64__)
/* These targets have products of 64 bits in vectors. */
__attribute__((target("avx512f,avx512dq"))) static void stripes_avx512(uint64_t *restrict all,
								       const char *restrict bytes)
{
	stripes(all, bytes);
}

static void stripes_any(uint64_t *restrict all, const char *restrict bytes)
{
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
		stripes_avx512(all, bytes);
	else
		stripes(all, bytes);
}
#else
static void stripes_any(uint64_t *restrict all, const char *restrict bytes)
{
	stripes(all, bytes);
}
#endif

/* The end of XXH64 for a length without rest. */
static uint64_t string_sum(const uint64_t v[4])
{
	uint64_t sum = word_rotate(v[0], 1) + word_rotate(v[1], 7) + word_rotate(v[2], 12) +
		       word_rotate(v[3], 18);

	for (unsigned i = 0; i < 4; i++)
		sum = (sum ^ accumulator_round(0, v[i])) * PRIME_1 + PRIME_4;
	sum += TREE_BLOCK / STRINGS;
	sum = (sum ^ sum >> 33) * PRIME_2;
	sum = (sum ^ sum >> 29) * PRIME_3;
	return sum ^ sum >> 32;
}

uint64_t tree_block(const void *bytes)
{
	uint64_t all[ACCUMULATORS], sums[STRINGS];

	for (size_t i = 0; i < ACCUMULATORS / 2; i += 2) {
		all[i] = PRIME_1 + PRIME_2;
		all[i + 1] = PRIME_2;
		all[ACCUMULATORS / 2 + i] = 0;
		all[ACCUMULATORS / 2 + i + 1] = -PRIME_1;
	}
	stripes_any(all, bytes);
	for (size_t i = 0; i < STRINGS; i++) {
		const uint64_t *first = &all[2 * i], *second = first + ACCUMULATORS / 2;

		sums[i] = string_sum((uint64_t[]){first[0], first[1], second[0], second[1]});
	}
	return XXH64(sums, sizeof(sums), 0);
}

uint64_t tree_sum(const uint64_t *sums, uint64_t bytes)
{
	XXH64_state_t state;

	XXH64_reset(&state, 0);
	XXH64_update(&state, sums, tree_blocks(bytes) * sizeof(*sums));
	XXH64_update(&state, &bytes, sizeof(bytes));
	return XXH64_digest(&state);
}
