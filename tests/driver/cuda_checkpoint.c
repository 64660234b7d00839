/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Checkpoints of the own process, or of a process that was started with
 * GPUMEM_STANDIN_CHECKPOINTS and does the work for the caller. A checkpoint moves the bytes of
 * device memory to private memory and frees the devices; a restore makes new memory with the same
 * bytes at the same addresses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/driver/standin.h"

/* Under standin.lock: the memory that the checkpoint moved. */
static struct {
	struct memory **memories;
	size_t count;
} moved;

enum call { GET_STATE, GET_RESTORE_THREAD, LOCK, UNLOCK, CHECKPOINT, RESTORE };

struct answer {
	CUresult result;
	int value; /* of a function that gets */
};

static socklen_t address_of(int pid, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* An abstract name: the first byte is NUL. */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)sprintf(address->sun_path + 1, "standin-checkpoints-%d", pid));
}

/* Has another process make the call, with NULL in the place of arguments. */
static CUresult ask(enum call call, int pid, int *value)
{
	struct answer answer = {pid < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_VALUE,
				0};
	struct sockaddr_un address;
	socklen_t length = address_of(pid, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&address, length) == 0 &&
	    send(fd, &call, sizeof(call), MSG_NOSIGNAL) == sizeof(call) &&
	    recv(fd, &answer, sizeof(answer), 0) == sizeof(answer))
		*value = answer.value;
	close(fd);
	return answer.result;
}

static CUresult enter(const char *function)
{
	return standin_is_initialised() ? fault_call(function, ANY_DEVICE)
					: CUDA_ERROR_NOT_INITIALIZED;
}

#define ENTER_PROCESS(call, pid, value)                                                            \
	do {                                                                                       \
		CUresult entered_ = enter(__func__);                                               \
		int value_ = 0;                                                                    \
		if (entered_ != CUDA_SUCCESS)                                                      \
			return entered_;                                                           \
		if ((pid) != getpid())                                                             \
			return ask(call, pid, (value) ? (int *)(value) : &value_);                 \
	} while (0)

static bool is_zero(const void *arguments, size_t size)
{
	const uint8_t *bytes = arguments;

	for (size_t i = 0; bytes && i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

static bool state_change(CUprocessState from, CUprocessState to)
{
	int expected = (int)from;

	return atomic_compare_exchange_strong(&standin.process_state, &expected, (int)to);
}

STANDIN_API CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	ENTER_PROCESS(GET_STATE, pid, state);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = (CUprocessState)atomic_load(&standin.process_state);
	return CUDA_SUCCESS;
}

/* The driver has a thread of its own for restores; the stand-in restores in the calling thread. */
STANDIN_API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	ENTER_PROCESS(GET_RESTORE_THREAD, pid, tid);
	if (!tid)
		return CUDA_ERROR_INVALID_VALUE;
	*tid = getpid();
	return CUDA_SUCCESS;
}

/* Waits for all submitted work, without a timeout. */
STANDIN_API CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *arguments)
{
	ENTER_PROCESS(LOCK, pid, NULL);
	if (arguments &&
	    (arguments->reserved0 || !is_zero(arguments->reserved1, sizeof(arguments->reserved1))))
		return CUDA_ERROR_INVALID_VALUE;
	if (!state_change(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED))
		return CUDA_ERROR_ILLEGAL_STATE;
	streams_wait_all();
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *arguments)
{
	ENTER_PROCESS(UNLOCK, pid, NULL);
	if (!is_zero(arguments, sizeof(*arguments)))
		return CUDA_ERROR_INVALID_VALUE;
	return state_change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING)
		   ? CUDA_SUCCESS
		   : CUDA_ERROR_ILLEGAL_STATE;
}

/* Call under standin.lock, exclusive. */
static void move_out(void)
{
	moved.count = 0;
	moved.memories = calloc(standin.memories.count + 1, sizeof(struct memory *));
	if (!moved.memories)
		abort();
	for (size_t i = 0; i < standin.memories.count; i++) {
		struct memory *memory = standin.memories.entries[i].object;

		if (!memory_is_host(memory))
			moved.memories[moved.count++] = memory;
	}
	for (size_t i = 0; i < moved.count; i++)
		memory_move_out(moved.memories[i]);
	for (unsigned i = 0; i < settings.gpus; i++) {
		standin.devices[i].moved = standin.devices[i].used;
		standin.devices[i].used = 0;
	}
}

STANDIN_API CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *arguments)
{
	ENTER_PROCESS(CHECKPOINT, pid, NULL);
	if (!is_zero(arguments, sizeof(*arguments)))
		return CUDA_ERROR_INVALID_VALUE;
	streams_wait_all(); /* a call that raced with the lock may have submitted work */
	STANDIN_LOCKED(EXCLUSIVE);
	if (!state_change(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED))
		return CUDA_ERROR_ILLEGAL_STATE;
	move_out();
	return CUDA_SUCCESS;
}

/* Whether the process has a handle or a mapping for which is_so holds. */
static bool has_any(bool (*is_so)(const struct memory *memory, enum handle_kind kind))
{
	for (size_t i = 0; i < standin.handles.count; i++) {
		const struct handle *handle = standin.handles.entries[i].object;

		if (is_so(handle->memory, handle->kind))
			return true;
	}
	for (size_t i = 0; i < standin.mappings.count; i++) {
		const struct mapping *mapping = standin.mappings.entries[i].object;

		if (is_so(mapping->memory, mapping->kind))
			return true;
	}
	return false;
}

static bool is_imported(const struct memory *memory, enum handle_kind kind)
{
	(void)memory;
	return kind == HANDLE_IMPORTED;
}

static bool is_host(const struct memory *memory, enum handle_kind kind)
{
	(void)kind;
	return memory_is_host(memory);
}

static bool has_room(void)
{
	for (unsigned i = 0; i < settings.gpus; i++)
		if (standin.devices[i].moved > device_available(i))
			return false;
	return true;
}

static void count_again(void)
{
	for (unsigned i = 0; i < settings.gpus; i++) {
		standin.devices[i].used = standin.devices[i].moved;
		standin.devices[i].moved = 0;
	}
}

/* As measured, imported and host-located memory end the process's use of CUDA at the restore, not
 * before: the process stays checkpointed. */
STANDIN_API CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *arguments)
{
	ENTER_PROCESS(RESTORE, pid, NULL);
	if (!is_zero(arguments, sizeof(*arguments)))
		return CUDA_ERROR_NOT_SUPPORTED; /* a restore to other GPUs */
	STANDIN_LOCKED(EXCLUSIVE);
	if (atomic_load(&standin.process_state) != CU_PROCESS_STATE_CHECKPOINTED)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (has_any(is_host))
		return CUDA_ERROR_UNKNOWN;
	if (has_any(is_imported))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!has_room())
		return CUDA_ERROR_OUT_OF_MEMORY;
	count_again();
	for (size_t i = 0; i < moved.count; i++)
		memory_move_in(moved.memories[i]);
	free(moved.memories);
	atomic_store(&standin.process_state, CU_PROCESS_STATE_LOCKED);
	return CUDA_SUCCESS;
}

static struct answer answer_to(enum call call)
{
	struct answer answer = {CUDA_ERROR_INVALID_VALUE, 0};
	CUprocessState state = CU_PROCESS_STATE_RUNNING;
	int pid = getpid();

	switch (call) {
	case GET_STATE:
		answer.result = cuCheckpointProcessGetState(pid, &state);
		answer.value = (int)state;
		break;
	case GET_RESTORE_THREAD:
		answer.result = cuCheckpointProcessGetRestoreThreadId(pid, &answer.value);
		break;
	case LOCK:
		answer.result = cuCheckpointProcessLock(pid, NULL);
		break;
	case UNLOCK:
		answer.result = cuCheckpointProcessUnlock(pid, NULL);
		break;
	case CHECKPOINT:
		answer.result = cuCheckpointProcessCheckpoint(pid, NULL);
		break;
	case RESTORE:
		answer.result = cuCheckpointProcessRestore(pid, NULL);
		break;
	}
	return answer;
}

static void *serve(void *listener)
{
	enum call call;
	int fd;

	while ((fd = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (recv(fd, &call, sizeof(call), 0) == sizeof(call)) {
			struct answer answer = answer_to(call);
			send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
		}
		close(fd);
	}
	return NULL;
}

static void serve_start(void)
{
	struct sockaddr_un address;
	socklen_t length = address_of(getpid(), &address);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_t thread;

	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 8) ||
	    pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener))
		abort();
	pthread_detach(thread);
}

void checkpoints_serve(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (settings.checkpoints)
		pthread_once(&once, serve_start);
}
