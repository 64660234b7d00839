/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies to a GPU, by CUDA's runtime library and by its driver. If the source is a mapping of a
 * file on a GPU, the GPU copies the file's memory. A program reaches these functions only if its
 * dynamic linker binds them: a runtime library that is linked statically, or a function found by
 * dlsym(3), copies as always. */
#include <stdint.h>

#include "client/preload/copy/caller.h"
#include "client/preload/copy/source.h"
#include "client/preload/core/calls.h"

/* cudaMemcpyKind */
#define TO_DEVICE  1
#define BY_ADDRESS 4

/* The streams that no program makes: the default stream of the process, and of the thread, which
 * programs use that were compiled for it. */
#define STREAM_LEGACY	  ((void *)0)
#define STREAM_PER_THREAD ((void *)2)

/* CUDA_ERROR_NOT_FOUND and cudaErrorSymbolNotFound: no library has the function. */
#define NOT_FOUND 500

static void *stream_or(void *stream, void *fallback)
{
	return stream ? stream : fallback;
}

static bool runtime_copy(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	return (kind == TO_DEVICE || kind == BY_ADDRESS) &&
	       source_copy((uintptr_t)to, from, bytes, stream);
}

/* Defines a function that is served, or else called in the library that has it. */
#define COPY_CALL(symbol, served, parameters, arguments)                                           \
	__attribute__((visibility("default"))) int call_##symbol parameters __asm__(#symbol);      \
	int call_##symbol parameters                                                               \
	{                                                                                          \
		int(*function) parameters;                                                         \
                                                                                                   \
		if (served)                                                                        \
			return 0;                                                                  \
		*(void **)&function = caller_function(#symbol, __builtin_return_address(0));       \
		return function ? function arguments : NOT_FOUND;                                  \
	}

#define RUNTIME_CALL(symbol, stream)                                                               \
	COPY_CALL(symbol, runtime_copy(to, from, bytes, kind, stream),                             \
		  (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind))
RUNTIME_CALL(cudaMemcpy, STREAM_LEGACY)
RUNTIME_CALL(cudaMemcpy_ptds, STREAM_PER_THREAD)

#define RUNTIME_CALL_ASYNC(symbol, fallback)                                                       \
	COPY_CALL(symbol, runtime_copy(to, from, bytes, kind, stream_or(stream, fallback)),        \
		  (void *to, const void *from, size_t bytes, int kind, void *stream),              \
		  (to, from, bytes, kind, stream))
RUNTIME_CALL_ASYNC(cudaMemcpyAsync, STREAM_LEGACY)
RUNTIME_CALL_ASYNC(cudaMemcpyAsync_ptsz, STREAM_PER_THREAD)

/* The driver's functions, with a pointer or an address as the source. */
#define DRIVER_CALL(symbol, source, stream)                                                        \
	COPY_CALL(symbol, source_copy(to, (const void *)from, bytes, stream),                      \
		  (unsigned long long to, source from, size_t bytes), (to, from, bytes))
DRIVER_CALL(cuMemcpyHtoD_v2, const void *, STREAM_LEGACY)
DRIVER_CALL(cuMemcpyHtoD_v2_ptds, const void *, STREAM_PER_THREAD)
DRIVER_CALL(cuMemcpy, uintptr_t, STREAM_LEGACY)
DRIVER_CALL(cuMemcpy_ptds, uintptr_t, STREAM_PER_THREAD)

#define DRIVER_CALL_ASYNC(symbol, source, fallback)                                                \
	COPY_CALL(symbol, source_copy(to, (const void *)from, bytes, stream_or(stream, fallback)), \
		  (unsigned long long to, source from, size_t bytes, void *stream),                \
		  (to, from, bytes, stream))
DRIVER_CALL_ASYNC(cuMemcpyHtoDAsync_v2, const void *, STREAM_LEGACY)
DRIVER_CALL_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, const void *, STREAM_PER_THREAD)
DRIVER_CALL_ASYNC(cuMemcpyAsync, uintptr_t, STREAM_LEGACY)
DRIVER_CALL_ASYNC(cuMemcpyAsync_ptsz, uintptr_t, STREAM_PER_THREAD)
