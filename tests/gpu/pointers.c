/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Costs of libgpumem, compared with the same work by direct calls of the driver:
 *   pointers open FILE ROUNDS bare|alone   time from a path to a device pointer; bare: in
 *                                          turns with the driver's own import of memory of
 *                                          another process
 *   pointers store FILE BATCHES SEED       stores through the CPU pointer and through a plain BAR
 *                                          mapping; then fills FILE through the pointer and holds
 *                                          FILE until standard input ends */
#include <sys/socket.h>
#include <sys/wait.h>

#include "backend/cuda/bar_way.h"
#include "backend/stream/stream.h"
#include "tests/gpu/pointers.h"

#define CHUNKS_MAX 128
#define ROUNDS_MAX 1000
#define WARM_UP	   3

struct series {
	size_t n;
	double values[ROUNDS_MAX];
};

static void add(struct series *series, double value)
{
	if (series->n < ROUNDS_MAX)
		series->values[series->n++] = value;
}

static void print_series(const char *name, struct series *series, double unit)
{
	printf("%s %.2f\n", name, measure_median(series->values, series->n) / unit);
	printf("%s_p90 %.2f\n", name, series->values[series->n * 9 / 10] / unit);
}

/* --- the exporting process ------------------------------------------------------------------ */

struct request {
	uint8_t uuid[16];
	uint32_t n;
	uint64_t bytes; /* of each chunk */
};

static gm_CUmemGenericAllocationHandle create(const struct gpu *gpu, uint64_t bytes, int *fd)
{
	gm_CUmemAllocationProp prop = {
	    .type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device},
	};
	gm_CUmemGenericAllocationHandle handle;
	int rdma = 0;

	gpu->cu.cuDeviceGetAttribute(
	    &rdma, GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, gpu->device);
	prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
	MUST(gpu->cu.cuMemCreate(&handle, bytes, &prop, 0));
	MUST(gpu->cu.cuMemExportToShareableHandle(fd, handle,
						  GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return handle;
}

union control {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(CHUNKS_MAX * sizeof(int))];
};

static void send_fds(int socket, const int *fds, size_t n)
{
	union control control = {0};
	char byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(n * sizeof(int))};

	control.head = (struct cmsghdr){CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
	if (sendmsg(socket, &message, 0) != 1)
		FAIL("sendmsg: %s", strerror(errno));
}

static void receive_fds(int socket, int *fds, size_t n)
{
	union control control = {0};
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 ||
	    control.head.cmsg_len != CMSG_LEN(n * sizeof(int)))
		FAIL("the other process has no memory to share");
	memcpy(fds, CMSG_DATA(&control.head), n * sizeof(int));
}

/* Needs no CUDA context, like the exports of the daemon. Holds the memory until the other process
 * closes the socket. */
static void export_memory(int socket)
{
	struct request request;
	struct gpu gpu;
	int fds[CHUNKS_MAX];

	if (read(socket, &request, sizeof(request)) != sizeof(request))
		_exit(0);
	gpu_open(&gpu, request.uuid);
	for (uint32_t i = 0; i < request.n; i++)
		create(&gpu, request.bytes, &fds[i]);
	send_fds(socket, fds, request.n);
	while (read(socket, &request, 1) > 0)
		;
	_exit(0);
}

/* CUDA does not survive a fork, so this function must be called before any other CUDA call. Returns
 * the socket to the exporting process. */
static int start_exporter(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		FAIL("socketpair: %s", strerror(errno));
	pid_t pid = fork();

	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		close(ends[0]);
		export_memory(ends[1]);
	}
	close(ends[1]);
	return ends[0];
}

/* --- path to device pointer ------------------------------------------------------------------ */

struct bare {
	uint32_t n;
	uint64_t bytes; /* of each chunk */
	int fds[CHUNKS_MAX];
};

/* Asks for as many chunks as the file has, with the same total size. */
static void ask_for_memory(int exporter, const struct gpumem_info *info, struct bare *bare)
{
	const uint64_t unit = 2ULL << 20;
	struct request request = {.n = (uint32_t)info->n_chunks};

	if (info->n_chunks > CHUNKS_MAX)
		FAIL("a file of %llu chunks", (unsigned long long)info->n_chunks);
	memcpy(request.uuid, info->uuid, sizeof(request.uuid));
	request.bytes = (info->mappable / request.n + unit - 1) / unit * unit;
	if (write(exporter, &request, sizeof(request)) != sizeof(request))
		FAIL("write: %s", strerror(errno));
	*bare = (struct bare){.n = request.n, .bytes = request.bytes};
	receive_fds(exporter, bare->fds, bare->n);
}

/* Releases the handles: the mapping keeps the memory. */
static gm_CUdeviceptr map_handles(const struct gpu *gpu, uint32_t n, uint64_t bytes,
				  const gm_CUmemGenericAllocationHandle *handles)
{
	const gm_CUmemAccessDesc access = {
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device},
	    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	gm_CUdeviceptr at;

	MUST(gpu->cu.cuMemAddressReserve(&at, n * bytes, 0, 0, 0));
	for (uint32_t i = 0; i < n; i++) {
		MUST(gpu->cu.cuMemMap(at + i * bytes, bytes, 0, handles[i], 0));
		MUST(gpu->cu.cuMemRelease(handles[i]));
	}
	MUST(gpu->cu.cuMemSetAccess(at, n * bytes, &access, 1));
	return at;
}

static gm_CUdeviceptr map_bare(const struct gpu *gpu, const struct bare *bare)
{
	gm_CUmemGenericAllocationHandle handles[CHUNKS_MAX];

	for (uint32_t i = 0; i < bare->n; i++)
		MUST(gpu->cu.cuMemImportFromShareableHandle(
		    &handles[i], (void *)(intptr_t)bare->fds[i],
		    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return map_handles(gpu, bare->n, bare->bytes, handles);
}

static void unmap_bare(const struct gpu *gpu, const struct bare *bare, gm_CUdeviceptr at)
{
	for (uint32_t i = 0; i < bare->n; i++)
		MUST(gpu->cu.cuMemUnmap(at + i * bare->bytes, bare->bytes));
	MUST(gpu->cu.cuMemAddressFree(at, bare->n * bare->bytes));
}

static struct series opens, leases, closes, bare_opens, bare_closes;

static void time_path(const char *path)
{
	double start = measure_now();
	gpumem *file = lease(path);
	double leased = measure_now();

	device_pointer(file);
	double mapped = measure_now();

	GOOD(gpumem_close(file));
	add(&leases, leased - start);
	add(&opens, mapped - start);
	add(&closes, measure_now() - mapped);
}

static void time_bare(const struct gpu *gpu, const struct bare *bare)
{
	double start = measure_now();
	gm_CUdeviceptr at = map_bare(gpu, bare);
	double mapped = measure_now();

	unmap_bare(gpu, bare, at);
	add(&bare_opens, mapped - start);
	add(&bare_closes, measure_now() - mapped);
}

/* The timed pointer has to lead to the file's own bytes: compares the bytes at both ends. */
static void check_ends(struct gpu *gpu, const char *path, uint64_t size)
{
	unsigned char by_read[64], by_gpu[64];
	const uint64_t ends[] = {0, size - sizeof(by_read)};
	gpumem *file = lease(path);
	gm_CUdeviceptr at = device_pointer(file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	for (int i = 0; i < 2; i++) {
		MUST(gpu->cuMemcpyDtoH(by_gpu, at + ends[i], sizeof(by_gpu)));
		if (pread(fd, by_read, sizeof(by_read), (off_t)ends[i]) != sizeof(by_read) ||
		    memcmp(by_read, by_gpu, sizeof(by_read)) != 0)
			FAIL("the device pointer does not show the file");
	}
	close(fd);
	GOOD(gpumem_close(file));
}

static void run_open(const char *path, uint64_t rounds, bool with_bare)
{
	int exporter = start_exporter();
	gpumem *file = lease(path);
	struct gpumem_info info = info_of(file);
	struct gpu gpu;
	struct bare bare;

	GOOD(gpumem_close(file));
	if (with_bare)
		ask_for_memory(exporter, &info, &bare);
	gpu_use(&gpu, info.uuid);
	check_ends(&gpu, path, info.size);
	for (uint64_t i = 0; i < rounds + WARM_UP; i++) {
		if (i == WARM_UP)
			opens.n = leases.n = closes.n = bare_opens.n = bare_closes.n = 0;
		time_path(path);
		if (with_bare)
			time_bare(&gpu, &bare);
	}
	printf("chunks %llu\n", (unsigned long long)info.n_chunks);
	print_series("open_us", &opens, 1e-6);
	print_series("lease_us", &leases, 1e-6);
	print_series("close_us", &closes, 1e-6);
	if (with_bare) {
		print_series("bare_us", &bare_opens, 1e-6);
		print_series("bare_close_us", &bare_closes, 1e-6);
	}
	close(exporter);
	wait(NULL);
}

/* --- stores through the CPU pointer ---------------------------------------------------------- */

#define LINE	   64
#define BATCH	   10000
#define RAW_WINDOW (1ULL << 20)
#define FILL_BYTES 65536

struct own_memory {
	struct bar_source base; /* must be the first member */
	int fd;
};

static int export_fd(const struct bar_source *source, int *fd)
{
	*fd = fcntl(((const struct own_memory *)source)->fd, F_DUPFD_CLOEXEC, 0);
	return *fd < 0 ? -errno : 0;
}

static const struct bar_way *way_named(const char *name)
{
	const struct bar_way *const ways[] = {&cuda_bar_dmabuf, &cuda_bar_gdrcopy,
					      &cuda_bar_vulkan};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(ways[i]->name, name) == 0)
			return ways[i];
	FAIL("the CPU pointer is through %s, which is no way to the BAR", name);
}

/* Maps memory of this program alone by the same BAR provider as the file's mapping. */
static char *map_raw(const struct gpu *gpu, const struct gpumem_info *info, gm_CUdeviceptr *at)
{
	static struct own_memory memory = {.base.export = export_fd};
	const struct bar_way *way = way_named(info->provider);
	struct bar_device device = {.cu = &gpu->cu, .handle = gpu->device};
	gm_CUmemGenericAllocationHandle handle;
	char why[BAR_REASON_MAX] = "";
	void *state, *address, *mapping;

	memcpy(device.uuid.bytes, info->uuid, sizeof(device.uuid.bytes));
	memory.base.bytes = info->host_mapped;
	handle = create(gpu, memory.base.bytes, &memory.fd);
	memory.base.address = *at = map_handles(gpu, 1, memory.base.bytes, &handle);
	if (way->open(&device, &state, why) < 0 ||
	    way->map(state, &memory.base, NULL, &address, &mapping, why) < 0)
		FAIL("a plain mapping through %s: %s", way->name, why);
	return address;
}

static double time_stores(char *at, const char line[LINE], uint64_t window)
{
	double start = measure_now();

	for (uint64_t i = 0; i < BATCH; i++) {
		stream_store(at + i * LINE % window, line, LINE);
		stream_fence();
	}
	return (measure_now() - start) / BATCH;
}

static void compare_stores(struct gpu *gpu, const struct gpumem_info *info, char *by_path,
			   uint64_t batches)
{
	uint64_t window = info->size < RAW_WINDOW ? info->size / LINE * LINE : RAW_WINDOW;
	struct series stores = {0}, raw_stores = {0};
	char line[LINE], seen[LINE];
	gm_CUdeviceptr raw_at;
	char *raw = map_raw(gpu, info, &raw_at);

	for (uint64_t i = 0; i < batches + WARM_UP; i++) {
		memset(line, (int)(i % 255) + 1, LINE);
		double by_pointer = time_stores(by_path, line, window);
		double by_hand = time_stores(raw, line, window);

		if (i < WARM_UP)
			continue;
		add(&stores, by_pointer);
		add(&raw_stores, by_hand);
	}
	MUST(gpu->cuMemcpyDtoH(seen, raw_at, LINE));
	if (memcmp(seen, line, LINE) != 0)
		FAIL("the plain mapping is not of the memory that it should be of");
	printf("provider %s\n", info->provider);
	print_series("store_ns", &stores, 1e-9);
	print_series("raw_ns", &raw_stores, 1e-9);
}

static void fill(gpumem *file, char *at, uint64_t bytes, uint32_t seed)
{
	static uint32_t words[FILL_BYTES / sizeof(uint32_t)];

	for (uint64_t done = 0; done < bytes; done += FILL_BYTES) {
		uint64_t piece = bytes - done < FILL_BYTES ? bytes - done : FILL_BYTES;

		pattern_fill(words, done / sizeof(words[0]), piece / sizeof(words[0]), seed);
		stream_store(at + done, words, piece);
	}
	GOOD(gpumem_flush(file));
}

static void run_store(const char *path, uint64_t batches, uint32_t seed)
{
	gpumem *file = lease(path);
	struct gpumem_info info = info_of(file);
	struct gpu gpu;
	void *at;

	gpu_use(&gpu, info.uuid);
	if (gpumem_map_host(file, &at, NULL) < 0) {
		fprintf(stderr, "%s\n", gpumem_error());
		exit(errno == ENOTSUP ? POINTERS_ABSENT : 1);
	}
	info = info_of(file);
	compare_stores(&gpu, &info, at, batches);
	fill(file, at, info.size, seed);
	print_counts(&gpu, device_pointer(file), info.size / sizeof(uint32_t), seed);
	printf("stored %llu\n", (unsigned long long)info.size);
	fflush(stdout);
	for (char byte; read(STDIN_FILENO, &byte, 1) > 0;)
		;
	GOOD(gpumem_close(file));
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "open") == 0) {
		run_open(argv[2], number(argv[3], ROUNDS_MAX - WARM_UP),
			 strcmp(argv[4], "bare") == 0);
	} else if (argc == 5 && strcmp(argv[1], "store") == 0) {
		run_store(argv[2], number(argv[3], ROUNDS_MAX),
			  (uint32_t)number(argv[4], UINT32_MAX));
	} else {
		fprintf(stderr, "usage: pointers open FILE ROUNDS bare|alone | "
				"store FILE BATCHES SEED\n");
		return 1;
	}
	return 0;
}
