/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies and fills. Each range is checked at the call and again when the operation runs, because a
 * program may have unmapped or unpinned the range in between. */
#include <string.h>
#include <unistd.h>

#include "tests/driver/standin.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

/* ThreadSanitizer watches host memory. Device memory is excluded: two programs, or two users of a
 * file, may write a byte at once, and real devices allow the overlap. */
#ifdef UNDER_TSAN
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_read_range(void *address, long size);
void __tsan_write_range(void *address, long size);

static void watch_read(void *host, uint64_t size)
{
	__tsan_read_range(host, (long)size);
}

static void watch_write(void *host, uint64_t size)
{
	__tsan_write_range(host, (long)size);
}

static void unwatched_begin(void)
{
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void unwatched_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}
#else
static void watch_read(void *host, uint64_t size)
{
	(void)host, (void)size;
}

static void watch_write(void *host, uint64_t size)
{
	(void)host, (void)size;
}

static void unwatched_begin(void)
{
}

static void unwatched_end(void)
{
}
#endif

/* A part of a range. The part lies in a single mapping, or in host memory (memory is then NULL). */
struct piece {
	uint8_t *bytes;
	uint64_t size;
	struct memory *memory;
};

static bool is_device(uint64_t address)
{
	STANDIN_LOCKED(SHARED);
	return table_find(&standin.reservations, address) != NULL;
}

/* Whose access rights count for a range. */
enum side { SIDE_DEVICE, SIDE_HOST };

static bool may_access(const struct mapping *mapping, const struct op *op, enum side side,
		       unsigned right)
{
	uint8_t rights = side == SIDE_HOST ? mapping->cpu_access : mapping->access[op->device];

	return (rights & right) == right;
}

/* Finds the first piece of [address, address + size) and takes a reference to the piece's memory.
 */
static CUresult take_piece(uint64_t address, uint64_t size, const struct op *op, enum side side,
			   unsigned right, struct piece *piece)
{
	const struct table_entry *entry;
	const struct mapping *mapping;
	uint64_t offset;

	STANDIN_LOCKED(SHARED);
	if (!table_find(&standin.reservations, address)) {
		*piece = (struct piece){(uint8_t *)(uintptr_t)address, size, NULL};
		return CUDA_SUCCESS;
	}
	entry = table_find(&standin.mappings, address);
	if (!entry || !may_access(entry->object, op, side, right))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	mapping = entry->object;
	offset = address - entry->base;
	*piece = (struct piece){mapping->memory->bytes + offset,
				size < entry->size - offset ? size : entry->size - offset,
				mapping->memory};
	memory_get(mapping->memory);
	return memory_lost(mapping->memory);
}

/* A read of bad memory counts as a fault; a write does not. */
static CUresult look_at(const struct piece *piece, const struct op *op)
{
	return piece->memory ? fault_memory(piece->memory->number, op->device) : CUDA_SUCCESS;
}

static void put_piece(const struct piece *piece)
{
	if (piece->memory)
		memory_put(piece->memory);
}

/* The kernel moves the bytes: for pages that were cut off the file after pinning, the system call
 * returns an error, where memcpy would end the process. A real GPU goes on with the pages, which no
 * other process sees any more. */
static void move_pinned(const struct piece *to, const struct piece *from, uint64_t size)
{
	const struct memory *memory = to->memory ? to->memory : from->memory;
	const uint8_t *device = to->memory ? to->bytes : from->bytes;
	off_t offset = (off_t)(device - memory->bytes);
	ssize_t n = 1;

	uint64_t done = 0;

	for (; n > 0 && done<size; done += n> 0 ? (uint64_t)n : 0)
		n = to->memory
			? pwrite(memory->fd, from->bytes + done, size - done, offset + (off_t)done)
			: pread(memory->fd, to->bytes + done, size - done, offset + (off_t)done);
	/* The pinned pages held bytes of the file. */
	if (to->memory && done < size)
		memset(to->bytes + done, 0, size - done);
}

static void move(const struct op *op, const struct piece *to, const struct piece *from,
		 uint64_t size)
{
	bool pinned = (!from->memory && op->from_pinned) || (!to->memory && op->to_pinned);

	if (!from->memory)
		watch_read(from->bytes, size);
	if (!to->memory)
		watch_write(to->bytes, size);
	unwatched_begin();
	if (pinned && !from->memory != !to->memory)
		move_pinned(to, from, size);
	else
		memcpy(to->bytes, from->bytes, size);
	unwatched_end();
}

static CUresult copy_piece(const struct op *op, uint64_t done, uint64_t *moved)
{
	struct piece to = {0}, from = {0};
	CUresult result;

	result =
	    take_piece(op->to + done, op->size - done, op, op->to_cpu ? SIDE_HOST : SIDE_DEVICE,
		       CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &to);
	if (result == CUDA_SUCCESS && op->kind == OP_COPY)
		result =
		    take_piece(op->from + done, to.size, op, op->from_cpu ? SIDE_HOST : SIDE_DEVICE,
			       CU_MEM_ACCESS_FLAGS_PROT_READ, &from);
	if (result == CUDA_SUCCESS && op->kind == OP_COPY)
		result = look_at(&from, op);
	*moved = op->kind == OP_COPY ? from.size : to.size;
	if (result == CUDA_SUCCESS && op->kind == OP_COPY) {
		move(op, &to, &from, *moved);
	} else if (result == CUDA_SUCCESS) {
		unwatched_begin();
		memset(to.bytes, op->value, *moved);
		unwatched_end();
	}
	put_piece(&to);
	put_piece(&from);
	return result;
}

CUresult copy_execute(const struct op *op, const struct context *context)
{
	uint64_t moved;

	if ((op->to_pinned && host_pinned(op->to, op->size, context) != PINNED) ||
	    (op->from_pinned && host_pinned(op->from, op->size, context) != PINNED)) {
		standin_violation("host memory was unpinned while a copy of %llu bytes needed it",
				  (unsigned long long)op->size);
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	for (uint64_t done = 0; done < op->size; done += moved) {
		CUresult result = copy_piece(op, done, &moved);

		if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
			standin_violation("device memory was unmapped while work needed it");
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/* Waits as a GPU does: without an end, while the device works. */
CUresult word_execute(const struct op *op, const struct context *context)
{
	struct piece piece = {0};
	CUresult result = take_piece(op->to, op->size, op, SIDE_DEVICE,
				     CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &piece);
	uint64_t *word = (uint64_t *)(void *)piece.bytes;

	if (result != CUDA_SUCCESS)
		return result;
	if (op->kind == OP_WORD_WRITE)
		__atomic_store_n(word, op->word, __ATOMIC_SEQ_CST);
	while (result == CUDA_SUCCESS && op->kind == OP_WORD_WAIT &&
	       (int64_t)(__atomic_load_n(word, __ATOMIC_SEQ_CST) - op->word) < 0) {
		usleep(100);
		result = device_state(context->device);
	}
	put_piece(&piece);
	return result;
}

/* Checks a range of device addresses: every byte is mapped, and the side has access. */
static CUresult check_mapped(const struct op *op, enum side side, uint64_t address, unsigned right)
{
	STANDIN_LOCKED(SHARED);
	if (!table_find(&standin.reservations, address))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t done = 0; done < op->size;) {
		const struct table_entry *entry = table_find(&standin.mappings, address + done);

		if (!entry || !may_access(entry->object, op, side, right))
			return CUDA_ERROR_INVALID_VALUE;
		done = entry->base + entry->size - address;
	}
	return CUDA_SUCCESS;
}

enum wait { RETURN_AT_ONCE, WAIT_UNTIL_DONE };

/* Host-located memory with access for the CPU serves as pinned host memory, too; cpu is then set.
 */
static CUresult check_side(struct op *op, enum side side, uint64_t address, unsigned right,
			   const struct stream *stream, enum wait wait, bool *pinned, bool *cpu)
{
	enum host_pinned how;

	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	*cpu = side == SIDE_HOST && is_device(address);
	if (side == SIDE_DEVICE || *cpu)
		return check_mapped(op, side, address, right);
	how = host_pinned(address, op->size, stream_context(stream));
	if (how == PINNED_IN_PART)
		return CUDA_ERROR_INVALID_VALUE;
	*pinned = how == PINNED;
	if (*pinned || wait == WAIT_UNTIL_DONE)
		return CUDA_SUCCESS;
	atomic_fetch_add_explicit(&standin.pageable_copies, 1, memory_order_relaxed);
	if (!settings.pageable_is_error)
		return CUDA_SUCCESS;
	standin_violation("an asynchronous copy of %llu bytes with memory that is not pinned",
			  (unsigned long long)op->size);
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_op(struct op *op, enum side to, enum side from, const struct stream *stream,
			 enum wait wait)
{
	CUresult result = check_side(op, to, op->to, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, stream,
				     wait, &op->to_pinned, &op->to_cpu);

	if (result != CUDA_SUCCESS || op->kind != OP_COPY)
		return result;
	if (op->to < op->from + op->size && op->from < op->to + op->size)
		return CUDA_ERROR_INVALID_VALUE;
	return check_side(op, from, op->from, CU_MEM_ACCESS_FLAGS_PROT_READ, stream, wait,
			  &op->from_pinned, &op->from_cpu);
}

static CUresult run(struct op op, enum side to, enum side from, CUstream on, enum wait wait)
{
	struct stream *stream;
	CUresult result = stream_get(on, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	/* The access rights of the current context count, not those of the stream's context. */
	op.device = context_device();
	if (op.size)
		result = check_op(&op, to, from, stream, wait);
	if (result == CUDA_SUCCESS && op.size)
		result = stream_submit(stream, &op);
	if (result == CUDA_SUCCESS && wait == WAIT_UNTIL_DONE)
		result = stream_wait(stream);
	stream_put(stream);
	return result;
}

static struct op copy_op(uint64_t to, uint64_t from, uint64_t size)
{
	return (struct op){.kind = OP_COPY, .to = to, .from = from, .size = size};
}

static struct op set_op(uint64_t to, uint8_t value, uint64_t size)
{
	return (struct op){.kind = OP_SET, .to = to, .value = value, .size = size};
}

STANDIN_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op(to, (uintptr_t)from, size), SIDE_DEVICE, SIDE_HOST, NULL,
		   WAIT_UNTIL_DONE);
}

STANDIN_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op((uintptr_t)to, from, size), SIDE_HOST, SIDE_DEVICE, NULL,
		   WAIT_UNTIL_DONE);
}

/* The calls without a stream do not wait either when both sides are in devices. */
STANDIN_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op(to, from, size), SIDE_DEVICE, SIDE_DEVICE, NULL, RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t size)
{
	ENTER(NEEDS_CONTEXT);
	return run(set_op(to, value, size), SIDE_DEVICE, SIDE_DEVICE, NULL, RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size,
					  CUstream stream)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op(to, (uintptr_t)from, size), SIDE_DEVICE, SIDE_HOST, stream,
		   RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op((uintptr_t)to, from, size), SIDE_HOST, SIDE_DEVICE, stream,
		   RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size,
					  CUstream stream)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op(to, from, size), SIDE_DEVICE, SIDE_DEVICE, stream, RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size,
				     CUstream stream)
{
	ENTER(NEEDS_CONTEXT);
	return run(set_op(to, value, size), SIDE_DEVICE, SIDE_DEVICE, stream, RETURN_AT_ONCE);
}

static enum side side_of(uint64_t address)
{
	return is_device(address) ? SIDE_DEVICE : SIDE_HOST;
}

STANDIN_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER(NEEDS_CONTEXT);
	return run(copy_op(to, from, size), side_of(to), side_of(from), stream, RETURN_AT_ONCE);
}

STANDIN_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	enum side to_side, from_side;

	ENTER(NEEDS_CONTEXT);
	to_side = side_of(to);
	from_side = side_of(from);
	return run(copy_op(to, from, size), to_side, from_side, NULL,
		   to_side == from_side ? RETURN_AT_ONCE : WAIT_UNTIL_DONE);
}

/* Of the flags only those that the library uses. */
static CUresult run_word(enum op_kind kind, CUstream stream, CUdeviceptr address, uint64_t word,
			 unsigned int flags)
{
	if (!address || address % sizeof(word) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return run((struct op){.kind = kind, .to = address, .size = sizeof(word), .word = word},
		   side_of(address), SIDE_DEVICE, stream, RETURN_AT_ONCE);
}

STANDIN_API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t word,
					     unsigned int flags)
{
	ENTER(NEEDS_CONTEXT);
	return run_word(OP_WORD_WRITE, stream, address, word, flags);
}

STANDIN_API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t word,
					    unsigned int flags)
{
	ENTER(NEEDS_CONTEXT);
	return run_word(OP_WORD_WAIT, stream, address, word, flags);
}
