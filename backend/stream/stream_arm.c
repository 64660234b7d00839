/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* LDNP and STNP move 32 bytes without keeping the line in the cache; compilers have no portable
 * intrinsics for them. Every aarch64 has NEON. */
#include "backend/stream/stream_arch.h"

#if defined(__aarch64__)
#include <arm_neon.h>

struct pair {
	uint8x16_t low, high;
};

static inline struct pair neon_load_pair(const char *from)
{
	struct pair pair;
	__asm__ volatile("ldnp %q0, %q1, [%2]"
			 : "=w"(pair.low), "=w"(pair.high)
			 : "r"(from)
			 : "memory");
	return pair;
}

static inline void neon_store_pair(char *to, struct pair pair)
{
	__asm__ volatile("stnp %q0, %q1, [%2]"
			 :
			 : "w"(pair.low), "w"(pair.high), "r"(to)
			 : "memory");
}

static inline struct pair neon_get_pair(const char *from)
{
	const uint8_t *bytes = (const uint8_t *)from;
	return (struct pair){vld1q_u8(bytes), vld1q_u8(bytes + 16)};
}

static inline void neon_put_pair(char *to, struct pair pair)
{
	vst1q_u8((uint8_t *)to, pair.low);
	vst1q_u8((uint8_t *)to + 16, pair.high);
}

static bool neon_usable(void)
{
	return true;
}

static void neon_store(char *to, const char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		struct pair a = neon_get_pair(from);
		struct pair b = neon_get_pair(from + 32);
		neon_store_pair(to, a);
		neon_store_pair(to + 32, b);
	}
}

static void neon_zero(char *to, size_t lines)
{
	struct pair zero = {vdupq_n_u8(0), vdupq_n_u8(0)};
	for (; lines; lines--, to += 64) {
		neon_store_pair(to, zero);
		neon_store_pair(to + 32, zero);
	}
}

static void neon_load(char *to, const char *from, size_t lines)
{
	for (; lines >= 2; lines -= 2, to += 128, from += 128) {
		struct pair a = neon_load_pair(from);
		struct pair b = neon_load_pair(from + 32);
		struct pair c = neon_load_pair(from + 64);
		struct pair d = neon_load_pair(from + 96);
		neon_put_pair(to, a);
		neon_put_pair(to + 32, b);
		neon_put_pair(to + 64, c);
		neon_put_pair(to + 96, d);
	}
	if (lines) {
		struct pair a = neon_load_pair(from);
		struct pair b = neon_load_pair(from + 32);
		neon_put_pair(to, a);
		neon_put_pair(to + 32, b);
	}
}

const struct stream_variant stream_arch[] = {
    {"neon", neon_usable, neon_store, neon_zero, neon_load},
    {0},
};
#endif
