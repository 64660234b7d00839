/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Four vectors in each iteration: enough loads in flight to fill the processor's line buffers, few
 * enough to stay in registers. Wider processors get functions of their own, not files. */
#include "backend/stream/stream_arch.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define AVX2   __attribute__((target("avx2")))
#define SSE41  __attribute__((target("sse4.1")))

/* A load of a whole line also reads neighbouring bytes, maybe while another thread writes there.
 * The bytes are dropped, but a sanitizer reports the race. */
#define WHOLE_LINE __attribute__((no_sanitize("address", "thread")))

static bool avx512_usable(void)
{
	return __builtin_cpu_supports("avx512f");
}

AVX512 static void avx512_store(char *to, const char *from, size_t lines)
{
	for (; lines >= 4; lines -= 4, to += 256, from += 256) {
		__m512i a = _mm512_loadu_si512(from);
		__m512i b = _mm512_loadu_si512(from + 64);
		__m512i c = _mm512_loadu_si512(from + 128);
		__m512i d = _mm512_loadu_si512(from + 192);
		_mm512_stream_si512((void *)to, a);
		_mm512_stream_si512((void *)(to + 64), b);
		_mm512_stream_si512((void *)(to + 128), c);
		_mm512_stream_si512((void *)(to + 192), d);
	}
	for (; lines; lines--, to += 64, from += 64)
		_mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}

AVX512 static void avx512_zero(char *to, size_t lines)
{
	for (; lines; lines--, to += 64)
		_mm512_stream_si512((void *)to, _mm512_setzero_si512());
}

AVX512 WHOLE_LINE static void avx512_load(char *to, const char *from, size_t lines)
{
	for (; lines >= 4; lines -= 4, to += 256, from += 256) {
		__m512i a = _mm512_stream_load_si512((void *)from);
		__m512i b = _mm512_stream_load_si512((void *)(from + 64));
		__m512i c = _mm512_stream_load_si512((void *)(from + 128));
		__m512i d = _mm512_stream_load_si512((void *)(from + 192));
		_mm512_storeu_si512(to, a);
		_mm512_storeu_si512(to + 64, b);
		_mm512_storeu_si512(to + 128, c);
		_mm512_storeu_si512(to + 192, d);
	}
	for (; lines; lines--, to += 64, from += 64)
		_mm512_storeu_si512(to, _mm512_stream_load_si512((void *)from));
}

static bool avx2_usable(void)
{
	return __builtin_cpu_supports("avx2");
}

AVX2 static void avx2_store(char *to, const char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m256i a = _mm256_loadu_si256((const void *)from);
		__m256i b = _mm256_loadu_si256((const void *)(from + 32));
		_mm256_stream_si256((void *)to, a);
		_mm256_stream_si256((void *)(to + 32), b);
	}
}

AVX2 static void avx2_zero(char *to, size_t lines)
{
	for (; lines; lines--, to += 64) {
		_mm256_stream_si256((void *)to, _mm256_setzero_si256());
		_mm256_stream_si256((void *)(to + 32), _mm256_setzero_si256());
	}
}

AVX2 WHOLE_LINE static void avx2_load(char *to, const char *from, size_t lines)
{
	for (; lines >= 2; lines -= 2, to += 128, from += 128) {
		__m256i a = _mm256_stream_load_si256((void *)from);
		__m256i b = _mm256_stream_load_si256((void *)(from + 32));
		__m256i c = _mm256_stream_load_si256((void *)(from + 64));
		__m256i d = _mm256_stream_load_si256((void *)(from + 96));
		_mm256_storeu_si256((void *)to, a);
		_mm256_storeu_si256((void *)(to + 32), b);
		_mm256_storeu_si256((void *)(to + 64), c);
		_mm256_storeu_si256((void *)(to + 96), d);
	}
	if (lines) {
		__m256i a = _mm256_stream_load_si256((void *)from);
		__m256i b = _mm256_stream_load_si256((void *)(from + 32));
		_mm256_storeu_si256((void *)to, a);
		_mm256_storeu_si256((void *)(to + 32), b);
	}
}

static bool sse41_usable(void)
{
	return __builtin_cpu_supports("sse4.1");
}

SSE41 static void sse41_store(char *to, const char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m128i a = _mm_loadu_si128((const void *)from);
		__m128i b = _mm_loadu_si128((const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const void *)(from + 48));
		_mm_stream_si128((void *)to, a);
		_mm_stream_si128((void *)(to + 16), b);
		_mm_stream_si128((void *)(to + 32), c);
		_mm_stream_si128((void *)(to + 48), d);
	}
}

SSE41 static void sse41_zero(char *to, size_t lines)
{
	for (; lines; lines--, to += 64)
		for (int at = 0; at < 64; at += 16)
			_mm_stream_si128((void *)(to + at), _mm_setzero_si128());
}

SSE41 WHOLE_LINE static void sse41_load(char *to, const char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m128i a = _mm_stream_load_si128((void *)from);
		__m128i b = _mm_stream_load_si128((void *)(from + 16));
		__m128i c = _mm_stream_load_si128((void *)(from + 32));
		__m128i d = _mm_stream_load_si128((void *)(from + 48));
		_mm_storeu_si128((void *)to, a);
		_mm_storeu_si128((void *)(to + 16), b);
		_mm_storeu_si128((void *)(to + 32), c);
		_mm_storeu_si128((void *)(to + 48), d);
	}
}

const struct stream_variant stream_arch[] = {
    {"avx512", avx512_usable, avx512_store, avx512_zero, avx512_load},
    {"avx2", avx2_usable, avx2_store, avx2_zero, avx2_load},
    {"sse4.1", sse41_usable, sse41_store, sse41_zero, sse41_load},
    {0},
};
#endif
