/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Mappings that the kernel has made, as sources of copies to a GPU and to memory: the GPU copies
 * the bytes out of the file's memory, instead of out of pages that the daemon would have to fill
 * first. A private mapping need not show changes of the file, and may show them, so both copies are
 * right. Of shared mappings only those are sources that the program does not store into.
 *
 * The kernel serves all other accesses to such a mapping. The library takes a lease of the file at
 * the first large copy, and maps the memory for the device of the calling thread's context. */
#ifndef CLIENT_PRELOAD_COPY_SOURCE_H
#define CLIENT_PRELOAD_COPY_SOURCE_H

#include "client/preload/core/identity.h"
#include "client/preload/core/request.h"

/* The smallest mapping that is kept as a source, and the smallest copy that justifies a lease. */
#define SOURCE_MIN (1UL << 20)
#define SOURCE_USE (64UL << 10)

/* GPUMEM_PRELOAD_COPY=0 leaves all copies to the driver. */
void source_start(void);

/* The kernel has made this mapping of a file that may be on a GPU. only_loads: the program cannot
 * store through the mapping, until source_stores. The calling thread is in the library. */
void source_add(const struct mapping_request *request, const struct slot_identity *identity,
		const void *address, bool only_loads);

/* Before the addresses are unmapped, moved or mapped anew. A source that the range touches is no
 * source any more. */
void source_forget(const void *address, size_t bytes);

/* Before the program may store into these addresses: shared mappings are no sources any more. */
void source_stores(const void *address, size_t bytes);

/* Whether there are sources, and the calling thread is in the program. Takes no lock. */
bool source_exists(void);

/* Copies to a device address on a stream of the driver, and waits for the stream, in the calling
 * thread. False: nothing was copied, or the driver failed, and the caller makes the program's call.
 */
bool source_copy(uint64_t to, const void *from, size_t bytes, void *stream);

/* Copies to memory of the CPU. False: as above, or the calling thread has no current context. */
bool source_copy_to_memory(void *to, const void *from, size_t bytes);

/* Ends the sources of a file and their leases. Whether there was a lease. */
bool source_yield(const struct slot_identity *identity);

/* Around fork(2). */
void source_before_fork(void);
void source_after_fork(void);
void source_forked(void);

#endif
