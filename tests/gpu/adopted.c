/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Costs of gpumem_share, in turns with the driver's own export and import of as much memory:
 *   adopted FOLDER PIECES MIB ROUNDS   so many allocations of so many MiB each, or one of
 *                                      cudaMalloc for 0; another process, which has a context of
 *                                      its own, maps the file by its path, and is told of the end
 *                                      of the producer's handle */
#include <poll.h>
#include <sys/wait.h>

#include "tests/gpu/pointers.h"

#define PIECES_MAX 16384
#define ROUNDS_MAX 1000
#define FILL	   7

/* Requests of the producer. */
#define BY_PATH	  'p'
#define BY_HANDLE 'h'

enum cost { SHARE, POINTER, TOLD, EXPORT, IMPORT, COSTS };

static const char *const cost_names[COSTS] = {"share", "pointer", "told", "export", "import"};

struct memory {
	gm_CUdeviceptr at;
	uint32_t n;
	uint64_t piece; /* bytes of each allocation */
	bool of_malloc;
};

static gm_CUmemAccessDesc access_of(const struct gpu *gpu)
{
	return (gm_CUmemAccessDesc){
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device},
	    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
}

static void memory_map(const struct gpu *gpu, struct memory *memory,
		       const gm_CUmemGenericAllocationHandle *handles)
{
	gm_CUmemAccessDesc access = access_of(gpu);

	MUST(gpu->cu.cuMemAddressReserve(&memory->at, memory->n * memory->piece, 0, 0, 0));
	for (uint32_t i = 0; i < memory->n; i++) {
		MUST(gpu->cu.cuMemMap(memory->at + i * memory->piece, memory->piece, 0, handles[i],
				      0));
		MUST(gpu->cu.cuMemRelease(handles[i]));
	}
	MUST(gpu->cu.cuMemSetAccess(memory->at, memory->n * memory->piece, &access, 1));
}

static void memory_fill(const struct gpu *gpu, const struct memory *memory)
{
	MUST(gpu->cu.cuMemsetD8Async(memory->at, FILL, memory->n * memory->piece, NULL));
	MUST(gpu->cuCtxSynchronize());
}

static void memory_make(const struct gpu *gpu, struct memory *memory)
{
	gm_CUmemGenericAllocationHandle handles[PIECES_MAX];
	gm_CUmemAllocationProp prop = {
	    .type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device},
	};

	if (memory->of_malloc) {
		MUST(gpu->cuMemAlloc(&memory->at, memory->piece));
		memory_fill(gpu, memory);
		return;
	}
	for (uint32_t i = 0; i < memory->n; i++)
		MUST(gpu->cu.cuMemCreate(&handles[i], memory->piece, &prop, 0));
	memory_map(gpu, memory, handles);
	memory_fill(gpu, memory);
}

static void memory_free(const struct gpu *gpu, const struct memory *memory)
{
	if (memory->of_malloc) {
		MUST(gpu->cuMemFree(memory->at));
		return;
	}
	for (uint32_t i = 0; i < memory->n; i++)
		MUST(gpu->cu.cuMemUnmap(memory->at + i * memory->piece, memory->piece));
	MUST(gpu->cu.cuMemAddressFree(memory->at, memory->n * memory->piece));
}

/* --- the consumer ---------------------------------------------------------------------------- */

/* Of the consumer, twice a round. */
struct answer {
	double seconds; /* from the path to the pointer, or of cuIpcOpenMemHandle */
	double told; /* when it learned of the end: measure_now, the same clock in all processes */
};

static void answer_write(int answers, const struct answer *answer)
{
	if (write(answers, answer, sizeof(*answer)) != sizeof(*answer))
		FAIL("write: %s", strerror(errno));
}

/* Answers with the time of the way to the pointer, and again at the end of the file's process. */
static void file_map(struct gpu *gpu, const char *path, uint64_t bytes, int answers)
{
	double start = measure_now();
	gpumem *file = lease(path);
	gm_CUdeviceptr at = device_pointer(file);
	struct answer answer = {.seconds = measure_now() - start};
	struct pollfd end = {.fd = gpumem_end_fd(file), .events = POLLIN};
	unsigned char last = 0;

	if (end.fd < 0)
		FAIL("gpumem_end_fd: %s", gpumem_error());
	MUST(gpu->cuMemcpyDtoH(&last, at + bytes - 1, 1));
	if (last != FILL)
		FAIL("the last byte is %u", last);
	answer_write(answers, &answer);
	if (poll(&end, 1, 10000) != 1)
		FAIL("the end of the process was not told");
	answer.told = measure_now();
	GOOD(gpumem_close(file));
	answer_write(answers, &answer);
}

/* The driver's own way, for memory that it does not open in the process that has it. */
static void handle_open(const struct gpu *gpu, int asks, int answers)
{
	gm_CUipcMemHandle handle;
	gm_CUdeviceptr at = 0;

	if (read(asks, &handle, sizeof(handle)) != sizeof(handle))
		FAIL("the producer has ended");
	double start = measure_now();

	MUST(gpu->cu.cuIpcOpenMemHandle(&at, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	answer_write(answers, &(struct answer){.seconds = measure_now() - start});
	MUST(gpu->cu.cuIpcCloseMemHandle(at));
	answer_write(answers, &(struct answer){0});
}

/* Serves a round for each byte from the producer. */
static void consume(const char *path, uint64_t bytes, const uint8_t uuid[16], int asks, int answers)
{
	struct gpu gpu;
	char what;

	gpu_use(&gpu, uuid);
	while (read(asks, &what, 1) == 1)
		if (what == BY_HANDLE)
			handle_open(&gpu, asks, answers);
		else
			file_map(&gpu, path, bytes, answers);
	exit(0);
}

/* --- the producer ---------------------------------------------------------------------------- */

struct consumer {
	pid_t pid;
	int asks, answers;
};

/* Before this process uses CUDA, which does not survive a fork. */
static struct consumer consumer_start(const char *path, uint64_t bytes, const uint8_t uuid[16])
{
	int asks[2], answers[2];

	if (pipe(asks) < 0 || pipe(answers) < 0)
		FAIL("pipe: %s", strerror(errno));
	pid_t pid = fork();

	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		close(asks[1]);
		consume(path, bytes, uuid, asks[0], answers[1]);
	}
	close(answers[1]);
	return (struct consumer){pid, asks[1], answers[0]};
}

static void consumer_end(const struct consumer *consumer)
{
	int status;

	close(consumer->asks);
	if (waitpid(consumer->pid, &status, 0) < 0 || status)
		FAIL("the consumer failed");
}

static struct answer answer_read(const struct consumer *consumer)
{
	struct answer answer;

	if (read(consumer->answers, &answer, sizeof(answer)) != sizeof(answer))
		FAIL("the consumer has ended");
	return answer;
}

static void consumer_ask(const struct consumer *consumer, const void *data, size_t bytes)
{
	if (write(consumer->asks, data, bytes) != (ssize_t)bytes)
		FAIL("write: %s", strerror(errno));
}

static void ours(const struct gpu *gpu, const char *path, const struct memory *sizes,
		 const struct consumer *consumer, double seconds[COSTS])
{
	struct memory memory = *sizes;

	memory_make(gpu, &memory);
	double start = measure_now();
	gpumem *file = gpumem_share(path, memory.at, memory.n * memory.piece, 0600, 0);

	seconds[SHARE] = measure_now() - start;
	if (!file)
		FAIL("gpumem_share: %s", gpumem_error());
	consumer_ask(consumer, &(char){BY_PATH}, 1);
	seconds[POINTER] = answer_read(consumer).seconds;
	start = measure_now();
	GOOD(gpumem_close(file));
	seconds[TOLD] = answer_read(consumer).told - start;
	memory_free(gpu, &memory);
}

static void drivers(const struct gpu *gpu, const struct memory *sizes, double seconds[COSTS])
{
	gm_CUmemGenericAllocationHandle handles[PIECES_MAX];
	struct memory memory = *sizes, imported = *sizes;
	int fds[PIECES_MAX];

	memory_make(gpu, &memory);
	double start = measure_now();

	for (uint32_t i = 0; i < memory.n; i++) {
		void *at = (void *)(uintptr_t)(memory.at + i * memory.piece);

		MUST(gpu->cuMemRetainAllocationHandle(&handles[i], at));
		MUST(gpu->cu.cuMemExportToShareableHandle(
		    &fds[i], handles[i], GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		MUST(gpu->cu.cuMemRelease(handles[i]));
	}
	double exported = measure_now();

	for (uint32_t i = 0; i < memory.n; i++)
		MUST(gpu->cu.cuMemImportFromShareableHandle(
		    &handles[i], (void *)(intptr_t)fds[i],
		    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	memory_map(gpu, &imported, handles);
	seconds[EXPORT] = exported - start;
	seconds[IMPORT] = measure_now() - exported;
	for (uint32_t i = 0; i < memory.n; i++)
		close(fds[i]);
	memory_free(gpu, &imported);
	memory_free(gpu, &memory);
}

static void drivers_of_malloc(const struct gpu *gpu, const struct memory *sizes,
			      const struct consumer *consumer, double seconds[COSTS])
{
	struct memory memory = *sizes;
	gm_CUipcMemHandle handle;

	memory_make(gpu, &memory);
	double start = measure_now();

	MUST(gpu->cu.cuIpcGetMemHandle(&handle, memory.at));
	seconds[EXPORT] = measure_now() - start;
	consumer_ask(consumer, &(char){BY_HANDLE}, 1);
	consumer_ask(consumer, &handle, sizeof(handle));
	seconds[IMPORT] = answer_read(consumer).seconds;
	answer_read(consumer);
	memory_free(gpu, &memory);
}

int main(int argc, char **argv)
{
	static double values[COSTS][ROUNDS_MAX];
	double seconds[COSTS];
	struct memory sizes;
	char path[4096];
	uint8_t uuid[16];
	struct gpu gpu;

	if (argc != 5)
		FAIL("usage: adopted FOLDER PIECES MIB ROUNDS");
	bool of_malloc = !strcmp(argv[2], "0");

	sizes = (struct memory){.n = of_malloc ? 1 : (uint32_t)number(argv[2], PIECES_MAX),
				.piece = number(argv[3], 1 << 20) << 20,
				.of_malloc = of_malloc};
	size_t rounds = number(argv[4], ROUNDS_MAX);

	uuid_find(argv[1], uuid);
	snprintf(path, sizeof(path), "%s/adopted", argv[1]);
	struct consumer consumer = consumer_start(path, sizes.n * sizes.piece, uuid);

	gpu_use(&gpu, uuid);
	/* The first round loads code, and is not counted. */
	for (size_t i = 0; i <= rounds; i++) {
		ours(&gpu, path, &sizes, &consumer, seconds);
		if (of_malloc)
			drivers_of_malloc(&gpu, &sizes, &consumer, seconds);
		else
			drivers(&gpu, &sizes, seconds);
		for (unsigned cost = 0; i && cost < COSTS; cost++)
			values[cost][i - 1] = seconds[cost];
	}
	consumer_end(&consumer);
	for (unsigned cost = 0; cost < COSTS; cost++) {
		printf("%s %.1f\n", cost_names[cost], measure_median(values[cost], rounds) * 1e6);
		printf("%s_p90 %.1f\n", cost_names[cost], values[cost][rounds * 9 / 10] * 1e6);
	}
	return 0;
}
