/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* import GPU-UUID ORIGINAL: a program without gpumemfs code. The test hands it chunks (share.h, on
 * standard input); the program uses only the CUDA driver, compares the content of the chunks with
 * ORIGINAL, then changes the content by a memset and a kernel. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/driver/abi.h"
#include "tests/gpu/share.h"

#define PIECES_MAX 4096
#define THREADS	   256 /* of a block of the kernel */

typedef struct gm_CUmod_st *gm_CUmodule;
typedef struct gm_CUfunc_st *gm_CUfunction;

/* clang-format off */
#define FUNCTIONS(X) \
	X(cuInit, cuInit, (unsigned int)) \
	X(cuDeviceGetCount, cuDeviceGetCount, (int *)) \
	X(cuDeviceGet, cuDeviceGet, (gm_CUdevice *, int)) \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (gm_CUuuid *, gm_CUdevice)) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (gm_CUcontext *, gm_CUdevice)) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (gm_CUdevice)) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (gm_CUcontext)) \
	X(cuCtxSynchronize, cuCtxSynchronize, (void)) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, \
	  (gm_CUmemGenericAllocationHandle *, void *, gm_CUmemAllocationHandleType)) \
	X(cuMemAddressReserve, cuMemAddressReserve, \
	  (gm_CUdeviceptr *, size_t, size_t, gm_CUdeviceptr, unsigned long long)) \
	X(cuMemAddressFree, cuMemAddressFree, (gm_CUdeviceptr, size_t)) \
	X(cuMemMap, cuMemMap, \
	  (gm_CUdeviceptr, size_t, size_t, gm_CUmemGenericAllocationHandle, unsigned long long)) \
	X(cuMemUnmap, cuMemUnmap, (gm_CUdeviceptr, size_t)) \
	X(cuMemRelease, cuMemRelease, (gm_CUmemGenericAllocationHandle)) \
	X(cuMemSetAccess, cuMemSetAccess, \
	  (gm_CUdeviceptr, size_t, const gm_CUmemAccessDesc *, size_t)) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gm_CUdeviceptr, size_t)) \
	X(cuMemsetD8, cuMemsetD8_v2, (gm_CUdeviceptr, unsigned char, size_t))
#define KERNEL_FUNCTIONS(X) \
	X(cuModuleLoadData, cuModuleLoadData, (gm_CUmodule *, const void *)) \
	X(cuModuleGetFunction, cuModuleGetFunction, (gm_CUfunction *, gm_CUmodule, const char *)) \
	X(cuModuleUnload, cuModuleUnload, (gm_CUmodule)) \
	X(cuLaunchKernel, cuLaunchKernel, \
	  (gm_CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	   gm_CUstream, void **, void **))
/* clang-format on */

#define FIELD(field, symbol, arguments) gm_CUresult(*field) arguments;
static struct {
	FUNCTIONS(FIELD)
	KERNEL_FUNCTIONS(FIELD)
} cu;

/* Fails the test when the CUDA call fails. */
#define MUST(call)                                                                                 \
	do {                                                                                       \
		gm_CUresult result_ = cu.call;                                                     \
		if (result_ != GM_CUDA_SUCCESS) {                                                  \
			printf("import: %s: CUDA error %d\n", #call, (int)result_);                \
			exit(SHARE_FAILED);                                                        \
		}                                                                                  \
	} while (0)

static const char scramble[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
			       ".visible .entry scramble(.param .u64 at, .param .u64 count,\n"
			       "                         .param .u32 with)\n"
			       "{\n"
			       ".reg .pred %p;\n.reg .b32 %r<6>;\n.reg .b64 %d<5>;\n"
			       "ld.param.u64 %d1, [at];\n"
			       "ld.param.u64 %d2, [count];\n"
			       "ld.param.u32 %r5, [with];\n"
			       "mov.u32 %r1, %ctaid.x;\n"
			       "mov.u32 %r2, %ntid.x;\n"
			       "mov.u32 %r3, %tid.x;\n"
			       "cvt.u64.u32 %d4, %r3;\n"
			       "mad.wide.u32 %d3, %r1, %r2, %d4;\n"
			       "setp.ge.u64 %p, %d3, %d2;\n"
			       "@%p bra done;\n"
			       "cvta.to.global.u64 %d1, %d1;\n"
			       "shl.b64 %d3, %d3, 2;\n"
			       "add.s64 %d1, %d1, %d3;\n"
			       "ld.global.u32 %r4, [%d1];\n"
			       "xor.b32 %r4, %r4, %r5;\n"
			       "st.global.u32 [%d1], %r4;\n"
			       "done:\nret;\n"
			       "}\n";

static struct share_piece pieces[PIECES_MAX];
static size_t n_pieces;
static gm_CUdevice device;
static const uint8_t *original;

static void load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		printf("import: %s\n", dlerror());
		exit(SHARE_FAILED);
	}
#define LOAD(field, symbol, arguments)                                                             \
	*(void **)&cu.field = dlsym(library, #symbol);                                             \
	if (!cu.field) {                                                                           \
		printf("import: libcuda.so.1 has no %s\n", #symbol);                               \
		exit(SHARE_FAILED);                                                                \
	}
	FUNCTIONS(LOAD)
#define LOAD_IF_THERE(field, symbol, arguments) *(void **)&cu.field = dlsym(library, #symbol);
	KERNEL_FUNCTIONS(LOAD_IF_THERE)
}

static bool is_device(gm_CUdevice candidate, const char *wanted)
{
	char text[48] = "GPU";
	gm_CUuuid uuid;

	MUST(cuDeviceGetUuid(&uuid, candidate));
	for (unsigned i = 0; i < sizeof(uuid.bytes); i++) {
		bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

		sprintf(text + strlen(text), "%s%02x", group ? "-" : "", (uint8_t)uuid.bytes[i]);
	}
	return strcmp(text, wanted) == 0;
}

static void use_device(const char *uuid)
{
	gm_CUcontext context;
	int count;

	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		MUST(cuDeviceGet(&device, i));
		if (!is_device(device, uuid))
			continue;
		MUST(cuDevicePrimaryCtxRetain(&context, device));
		MUST(cuCtxSetCurrent(context));
		return;
	}
	printf("import: no device %s\n", uuid);
	exit(SHARE_FAILED);
}

static gm_CUdeviceptr map_chunk(const struct share_piece *piece)
{
	const gm_CUmemAccessDesc access = {
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	gm_CUmemGenericAllocationHandle handle;
	gm_CUdeviceptr address;

	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)piece->fd,
					    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	MUST(cuMemAddressReserve(&address, piece->chunk_bytes, 0, 0, 0));
	MUST(cuMemMap(address, piece->chunk_bytes, 0, handle, 0));
	MUST(cuMemRelease(handle)); /* the mapping keeps the memory */
	MUST(cuMemSetAccess(address, piece->chunk_bytes, &access, 1));
	return address;
}

static void unmap_chunk(const struct share_piece *piece, gm_CUdeviceptr address)
{
	MUST(cuMemUnmap(address, piece->chunk_bytes));
	MUST(cuMemAddressFree(address, piece->chunk_bytes));
}

static void compare(const struct share_piece *piece, gm_CUdeviceptr at)
{
	uint8_t *found = malloc(piece->bytes);

	if (!found) {
		printf("import: no memory\n");
		exit(SHARE_FAILED);
	}
	MUST(cuMemcpyDtoH(found, at, piece->bytes));
	for (uint64_t i = 0; i < piece->bytes; i++)
		if (found[i] != original[piece->file_offset + i]) {
			printf("import: byte %llu of the file is %02x here, and dd wrote %02x\n",
			       (unsigned long long)(piece->file_offset + i), found[i],
			       original[piece->file_offset + i]);
			exit(SHARE_FAILED);
		}
	free(found);
}

/* NULL, after a line with the reason, on a machine that cannot run kernels. */
static gm_CUfunction load_kernel(gm_CUmodule *module)
{
	gm_CUfunction function;

	if (!cu.cuModuleLoadData || !cu.cuModuleGetFunction || !cu.cuLaunchKernel) {
		printf("import: kernel: not here: this libcuda.so.1 has none\n");
		return NULL;
	}
	gm_CUresult result = cu.cuModuleLoadData(module, scramble);

	if (result == GM_CUDA_SUCCESS)
		result = cu.cuModuleGetFunction(&function, *module, "scramble");
	if (result == GM_CUDA_SUCCESS)
		return function;
	printf("import: kernel: not loaded: CUDA error %d\n", (int)result);
	return NULL;
}

static void change(const struct share_piece *piece, gm_CUdeviceptr at, gm_CUfunction kernel)
{
	uint64_t filled = share_filled(piece->bytes), words = share_words(piece->bytes);
	gm_CUdeviceptr rest = at + filled;
	uint32_t with = SHARE_WORD;
	void *arguments[] = {&rest, &words, &with};

	if (filled)
		MUST(cuMemsetD8(at, SHARE_FILL, filled));
	if (kernel && words)
		MUST(cuLaunchKernel(kernel, (unsigned)((words + THREADS - 1) / THREADS), 1, 1,
				    THREADS, 1, 1, 0, NULL, arguments, NULL));
	MUST(cuCtxSynchronize());
}

static void read_request(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	n_pieces = fread(pieces, sizeof(pieces[0]), PIECES_MAX, stdin);
	if (fd < 0 || fstat(fd, &st) || n_pieces == 0 ||
	    (original = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) ==
		MAP_FAILED) {
		printf("import: nothing to do: %zu pieces of %s\n", n_pieces, path);
		exit(SHARE_FAILED);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	gm_CUdeviceptr *addresses;
	gm_CUmodule module = NULL;
	uint64_t bytes = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: import GPU-UUID ORIGINAL <pieces\n");
		return SHARE_FAILED;
	}
	read_request(argv[2]);
	load_driver();
	use_device(argv[1]);
	addresses = calloc(n_pieces, sizeof(*addresses));
	if (!addresses)
		return SHARE_FAILED;
	for (size_t i = 0; i < n_pieces; i++) {
		addresses[i] = map_chunk(&pieces[i]);
		compare(&pieces[i], addresses[i] + pieces[i].chunk_offset);
		bytes += pieces[i].bytes;
	}
	printf("import: %llu bytes in %zu pieces of imported chunks are what dd wrote\n",
	       (unsigned long long)bytes, n_pieces);
	gm_CUfunction kernel = load_kernel(&module);

	for (size_t i = 0; i < n_pieces; i++) {
		change(&pieces[i], addresses[i] + pieces[i].chunk_offset, kernel);
		unmap_chunk(&pieces[i], addresses[i]);
	}
	printf("import: memset: ran%s\n", kernel ? "\nimport: kernel: ran" : "");
	if (module)
		MUST(cuModuleUnload(module));
	MUST(cuDevicePrimaryCtxRelease(device));
	free(addresses);
	return kernel ? SHARE_BY_KERNEL : SHARE_BY_MEMSET;
}
