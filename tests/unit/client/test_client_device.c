/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem on GPU memory: device addresses and the ways to CPU addresses. The CUDA provider makes
 * the chunks, as in a daemon; every test leaves the driver in its initial state. */
#include "tests/unit/cuda_fixture.h"

#include "backend/cuda/provider.h"
#include "backend/stream/stream.h"
#include "client/core/driver_thread.h"
#include "client/gpu/cuda/cuda.h"
#include "tests/unit/client_fixture.h"

#define CHUNKS 3

static struct chunk *chunks[CHUNKS + 2];
static char *content; /* the bytes of the file */
static size_t content_bytes;
static struct {
	gm_CUresult (*cuCtxGetCurrent)(gm_CUcontext *);
	gm_CUresult (*cuMemGetAccess)(unsigned long long *, const gm_CUmemLocation *,
				      gm_CUdeviceptr);
	gm_CUresult (*cuCtxSetCurrent)(gm_CUcontext);
	gm_CUresult (*cuDevicePrimaryCtxRetain)(gm_CUcontext *, gm_CUdevice);
	gm_CUresult (*cuDevicePrimaryCtxRelease)(gm_CUdevice);
	gm_CUresult (*cuMemcpyDtoH)(void *, gm_CUdeviceptr, size_t);
	gm_CUresult (*cuMemcpyHtoD)(gm_CUdeviceptr, const void *, size_t);
} cu;

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	ck_assert_ptr_nonnull(library);
#define FIND(field, symbol)                                                                        \
	*(void **)&cu.field = dlsym(library, symbol);                                              \
	ck_assert_ptr_nonnull(*(void **)&cu.field)
	FIND(cuMemGetAccess, "cuMemGetAccess");
	FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
	FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
	FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
	FIND(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
	FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
	FIND(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
}

static void share_chunk(unsigned i, uint64_t bytes)
{
	int fd;

	chunks[i] = new_chunk(0, bytes);
	ck_assert_int_eq(chunk_export(chunks[i], &fd), 0);
	content = realloc(content, content_bytes + bytes);
	unit_fill(content + content_bytes, bytes, &seed);
	put(chunks[i], 0, content + content_bytes, bytes);
	content_bytes += bytes;
	FAKE(fake.bytes[i] = bytes; fake.fds[i] = fd; fake.n_chunks++; fake.size += bytes);
}

/* Writes content to the file, where the provers read the bytes. */
static void write_file(void)
{
	int fd = open(fake_path(), O_WRONLY | O_TRUNC);

	for (size_t done = 0; done < content_bytes;) {
		ssize_t n = write(fd, content + done, content_bytes - done);
		ck_assert_int_gt(n, 0);
		done += (size_t)n;
	}
	close(fd);
}

static gpumem *share_as(uint32_t kind, unsigned n)
{
	open_plain();
	load();
	fake.kind = kind;
	memcpy(fake.uuid, cuda_device(backend->devices[0])->uuid.bytes, 16);
	for (unsigned i = 0; i < n; i++)
		share_chunk(i, (i + 1) * 2 * MIB);
	write_file();
	return fake_open();
}

static gpumem *share(unsigned n)
{
	return share_as(GPUMEM_KIND_DEVICE, n);
}

static void unshare_all(gpumem *file)
{
	ck_assert_msg(gpumem_close(file) == 0, "%s", gpumem_error());
	for (unsigned i = 0; i < fake.n_chunks; i++) {
		close(fake.fds[i]);
		chunk_free(chunks[i]);
	}
	free(content);
	close_all();
	fake_forget();
}

static unsigned long long device_pointer(gpumem *file)
{
	unsigned long long address;
	size_t bytes;

	ck_assert_msg(gpumem_map_device(file, &address, &bytes) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(bytes, fake.size);
	return address;
}

static char *host_pointer(gpumem *file, const char *provider)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	void *address;
	size_t bytes;

	ck_assert_msg(gpumem_map_host(file, &address, &bytes) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(bytes, fake.size);
	ck_assert_int_eq(gpumem_get_info(file, &info), 0);
	if (provider)
		ck_assert_str_eq(info.provider, provider);
	else
		printf("client_device: CPU mapping of %llu chunks: %s\n",
		       (unsigned long long)info.n_chunks, info.provider);
	return address;
}

static void expect_device(unsigned long long address)
{
	char *seen = malloc(content_bytes);

	ck_assert_int_eq(cu.cuMemcpyDtoH(seen, address, content_bytes), 0);
	ck_assert_mem_eq(seen, content, content_bytes);
	free(seen);
}

static void expect_host(const char *at)
{
	char *seen = malloc(content_bytes);

	stream_load(seen, at, content_bytes);
	ck_assert_mem_eq(seen, content, content_bytes);
	free(seen);
}

static gm_CUcontext context_of(gm_CUdevice device)
{
	gm_CUcontext context;

	ck_assert_int_eq(cu.cuDevicePrimaryCtxRetain(&context, device), 0);
	ck_assert_int_eq(cu.cuCtxSetCurrent(context), 0);
	return context;
}

static unsigned long long access_of(unsigned long long address, int device)
{
	const gm_CUmemLocation where = {GM_CU_MEM_LOCATION_TYPE_DEVICE, device};
	unsigned long long flags = 99;

	ck_assert_int_eq(cu.cuMemGetAccess(&flags, &where, address), 0);
	return flags;
}

static void refused(int error, const char *text, int rc)
{
	int got = errno;

	ck_assert_int_eq(rc, -1);
	ck_assert_msg(got == error, "errno %d (%s), wanted %d", got, gpumem_error(), error);
	ck_assert_msg(strstr(gpumem_error(), text) != NULL, "'%s' says nothing of '%s'",
		      gpumem_error(), text);
}

START_TEST(chunks_are_one_device_range)
{
	gpumem *file = share(CHUNKS);
	unsigned long long address = device_pointer(file);
	const char mark[] = "from the importer";

	expect_device(address);
	ck_assert_int_eq(cu.cuMemcpyHtoD(address + 2 * MIB - 5, mark, sizeof(mark)), 0);
	expect_bytes(chunks[1], 0, mark + 5, sizeof(mark) - 5);
	ck_assert_uint_eq(device_pointer(file), address);
	ck_assert_int_eq(gpumem_unmap_device(file), 0);
	ck_assert_int_eq(gpumem_unmap_device(file), 0);
	device_pointer(file);
	unshare_all(file);
}
END_TEST

START_TEST(both_pointers_show_one_memory)
{
	gpumem *file = share(CHUNKS);
	unsigned long long address = device_pointer(file);
	char *at = host_pointer(file, NULL), seen[100], pattern[100];

	unit_fill(pattern, sizeof(pattern), &seed);
	stream_store(at + 5 * MIB + 3, pattern, sizeof(pattern));
	ck_assert_int_eq(gpumem_flush(file), 0);
	ck_assert_int_eq(cu.cuMemcpyDtoH(seen, address + 5 * MIB + 3, sizeof(seen)), 0);
	ck_assert_mem_eq(seen, pattern, sizeof(pattern));
	unshare_all(file);
}
END_TEST

START_TEST(no_context_is_an_error)
{
	gpumem *file = share(1);
	unsigned long long address;
	gm_CUcontext current;

	ck_assert_int_eq(cu.cuCtxSetCurrent(NULL), 0);
	refused(EINVAL, "no current CUDA context", gpumem_map_device(file, &address, NULL));
	ck_assert_int_eq(cu.cuCtxGetCurrent(&current), 0);
	ck_assert_ptr_null(current);
	unshare_all(file);
}
END_TEST

START_TEST(device_range_grows_in_place)
{
	gpumem *file = share(2);
	unsigned long long address = device_pointer(file);

	share_chunk(2, 2 * MIB);
	ck_assert_msg(gpumem_extend(file) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(device_pointer(file), address);
	expect_device(address);
	share_chunk(3, 64 * MIB);
	refused(ENOSPC, "map it again", gpumem_extend(file));
	ck_assert_int_eq(gpumem_unmap_device(file), 0);
	address = device_pointer(file);
	expect_device(address);
	unshare_all(file);
}
END_TEST

START_TEST(host_range_grows_in_place)
{
	gpumem *file = share(2);
	char *at = host_pointer(file, "vulkan");

	share_chunk(2, 2 * MIB);
	write_file();
	ck_assert_msg(gpumem_extend(file) == 0, "%s", gpumem_error());
	ck_assert_ptr_eq(host_pointer(file, "vulkan"), at);
	expect_host(at);
	share_chunk(3, 64 * MIB);
	write_file();
	refused(ENOSPC, "map it again", gpumem_extend(file));
	ck_assert_int_eq(gpumem_unmap_host(file), 0);
	expect_host(host_pointer(file, "vulkan"));
	unshare_all(file);
}
END_TEST

START_TEST(a_peer_maps)
{
	gpumem *file = share(CHUNKS);
	gm_CUcontext first, second;
	unsigned long long address;

	ck_assert_int_eq(cu.cuCtxGetCurrent(&first), 0);
	second = context_of(1);
	address = device_pointer(file);
	expect_device(address);
	/* GPUs 0 and 1 have access, or copies between the GPUs would go through the host. */
	ck_assert_uint_eq(access_of(address, 0), 3);
	ck_assert_uint_eq(access_of(address + 6 * MIB, 1), 3);
	ck_assert_int_eq(cu.cuCtxSetCurrent(first), 0);
	ck_assert_uint_eq(device_pointer(file), address);
	expect_device(address);
	ck_assert_int_eq(gpumem_unmap_device(file), 0);
	/* In the other order: the peer gets access at its first call. */
	address = device_pointer(file);
	ck_assert_uint_eq(access_of(address, 1), 0);
	ck_assert_int_eq(cu.cuCtxSetCurrent(second), 0);
	ck_assert_uint_eq(device_pointer(file), address);
	ck_assert_uint_eq(access_of(address, 0), 3);
	ck_assert_uint_eq(access_of(address + 2 * MIB, 1), 3);
	expect_device(address);
	cu.cuDevicePrimaryCtxRelease(1);
	ck_assert_int_eq(cu.cuCtxSetCurrent(first), 0);
	unshare_all(file);
}
END_TEST

START_TEST(no_peer_access)
{
	unsigned long long address;

	set("GPUMEM_STANDIN_PEER", "0");
	gpumem *file = share(1);
	gm_CUcontext first;
	ck_assert_int_eq(cu.cuCtxGetCurrent(&first), 0);
	context_of(1);
	refused(ENOTSUP, "no peer access", gpumem_map_device(file, &address, NULL));
	cu.cuDevicePrimaryCtxRelease(1);
	ck_assert_int_eq(cu.cuCtxSetCurrent(first), 0);
	expect_device(device_pointer(file));
	unshare_all(file);
}
END_TEST

START_TEST(a_gpu_that_is_not_visible)
{
	gpumem *file = share(1);
	unsigned long long address;

	fake.uuid[3] ^= 1;
	ck_assert_int_eq(gpumem_close(file), 0);
	file = fake_open();
	refused(ENXIO, "CUDA_VISIBLE_DEVICES", gpumem_map_device(file, &address, NULL));
	unshare_all(file);
}
END_TEST

START_TEST(readers_have_read_access)
{
	fake.flags = GPUMEM_LAYOUT_READ_ONLY;
	gpumem *file = share(2);
	unsigned long long address = device_pointer(file);

	ck_assert_uint_eq(access_of(address, 0), 1);
	ck_assert_uint_eq(access_of(address + 2 * MIB, 0), 1);
	expect_device(address);
	unshare_all(file);
}
END_TEST

START_TEST(registered_system_memory)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	unsigned long long address;

	open_plain();
	load();
	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 2 * MIB, &chunks[0]), 0);
	fake.kind = GPUMEM_KIND_MEMFD;
	fake_add(2 * MIB);
	fake_add(4 * MIB);
	gpumem *file = fake_open();
	address = device_pointer(file);
	*(char *)(address + 3 * MIB) = 17; /* the stand-in's device addresses are host addresses */
	char byte;
	ck_assert_int_eq(pread(fake.fds[1], &byte, 1, MIB), 1);
	ck_assert_int_eq(byte, 17);
	fake_add(2 * MIB);
	ck_assert_msg(gpumem_extend(file) == 0, "%s", gpumem_error());
	ck_assert_uint_eq(device_pointer(file), address);
	*(char *)(address + 7 * MIB) = 18;
	ck_assert_int_eq(pread(fake.fds[2], &byte, 1, MIB), 1);
	ck_assert_int_eq(byte, 18);
	ck_assert_int_eq(gpumem_get_info(file, &info), 0);
	ck_assert_uint_eq(info.mapped, 8 * MIB);
	/* A thread without a context can also give memory back. */
	gm_CUcontext current;
	ck_assert_int_eq(cu.cuCtxGetCurrent(&current), 0);
	ck_assert_int_eq(cu.cuCtxSetCurrent(NULL), 0);
	ck_assert_msg(gpumem_close(file) == 0, "%s", gpumem_error());
	ck_assert_int_eq(cu.cuCtxSetCurrent(current), 0);
	chunk_free(chunks[0]);
	close_all();
}
END_TEST

/* --- ways to a CPU address ------------------------------------------------------------------ */

static void expect_way(const char *provider, unsigned n)
{
	gpumem *file = share(n);
	char *at, pattern[5000];
	void *address;

	if (!provider && gpumem_map_host(file, &address, NULL) < 0 && errno == ENOTSUP) {
		printf("client_device: CPU mapping of %u chunks: not here: %s\n", n,
		       gpumem_error());
		unshare_all(file);
		return;
	}
	at = host_pointer(file, provider);
	expect_host(at);
	unit_fill(pattern, sizeof(pattern), &seed);
	stream_store(at + fake.size - sizeof(pattern), pattern, sizeof(pattern));
	ck_assert_int_eq(gpumem_flush(file), 0);
	expect_bytes(chunks[n - 1], chunks[n - 1]->bytes - sizeof(pattern), pattern,
		     sizeof(pattern));
	ck_assert_int_eq(gpumem_unmap_host(file), 0);
	ck_assert_int_eq(gpumem_unmap_host(file), 0);
	write_file();
	host_pointer(file, provider);
	unshare_all(file);
}

static const unsigned counts[] = {1, CHUNKS};

START_TEST(through_dmabuf)
{
	set("GPUMEM_STANDIN_DMABUF", "1");
	expect_way("dmabuf", counts[_i]);
}
END_TEST

/* Vulkan's opaque descriptors: CUDA imports them for a device address, but not for a better way to
 * the BAR. */
START_TEST(memory_of_vulkan)
{
	set("GPUMEM_STANDIN_DMABUF", "1");
	gpumem *file = share_as(GPUMEM_KIND_VULKAN, CHUNKS);

	expect_device(device_pointer(file));
	expect_host(host_pointer(file, "vulkan"));
	unshare_all(file);
}
END_TEST

START_TEST(through_gdrcopy)
{
	set("GPUMEM_STANDIN_GDR", "1");
	expect_way("gdrcopy", counts[_i]);
}
END_TEST

START_TEST(through_vulkan)
{
	expect_way("vulkan", counts[_i]);
}
END_TEST

START_TEST(as_it_comes)
{
	expect_way(NULL, counts[_i]);
}
END_TEST

START_TEST(liars_are_found_out)
{
	set("GPUMEM_STANDIN_DMABUF", "lie");
	set("GPUMEM_STANDIN_GDR", "lie");
	expect_way("vulkan", counts[_i]);
}
END_TEST

START_TEST(one_way_to_order)
{
	set("GPUMEM_STANDIN_DMABUF", "1");
	set("GPUMEM_BAR", "vulkan");
	expect_way("vulkan", 1);
}
END_TEST

static void expect_no_way(int error, const char *text, unsigned n)
{
	gpumem *file = share(n);
	void *address;
	unsigned before = open_descriptors();

	for (unsigned i = 0; i < 3; i++)
		refused(error, text, gpumem_map_host(file, &address, NULL));
	ck_assert_uint_le(open_descriptors(), before);
	expect_device(device_pointer(file));
	unshare_all(file);
}

START_TEST(nothing_but_liars)
{
	set("GPUMEM_STANDIN_DMABUF", "lie");
	set("GPUMEM_STANDIN_GDR", "lie");
	set("GPUMEM_STANDIN_VULKAN", "lie");
	expect_no_way(ENOTSUP, "does not show the file's bytes", counts[_i]);
}
END_TEST

START_TEST(no_way_at_all)
{
	set("GPUMEM_STANDIN_VULKAN", "0");
	expect_no_way(ENOTSUP, "gdrdrv", counts[_i]);
}
END_TEST

START_TEST(a_full_bar)
{
	set("GPUMEM_STANDIN_BAR", "4M");
	expect_no_way(ENOSPC, "import", CHUNKS);
}
END_TEST

/* --- faults --------------------------------------------------------------------------------- */

static const struct {
	const char *call;
	unsigned calls_before; /* calls by the provider that acts as the daemon */
} fault_points[] = {
    {"cuMemImportFromShareableHandle", 0},
    {"cuMemImportFromShareableHandle", 1},
    {"cuMemImportFromShareableHandle", 2},
    {"cuMemAddressReserve", 1},
    {"cuMemMap", CHUNKS},
    {"cuMemMap", CHUNKS + 2},
    {"cuMemSetAccess", CHUNKS},
    {"cuCtxGetDevice", 0},
};

START_TEST(map_device_fails_cleanly)
{
	char fault[128];
	unsigned long long address;

	/* A single GPU: for peers the provider makes further calls, at any time. */
	set("GPUMEM_STANDIN_GPUS", "1");
	/* The fault is permanent: a second try would hide a failing reservation. */
	snprintf(fault, sizeof(fault), "%s@%u=OUT_OF_MEMORY+", fault_points[_i].call,
		 fault_points[_i].calls_before + 1);
	set("GPUMEM_STANDIN_FAULT", fault);
	gpumem *file = share(CHUNKS);
	int rc = gpumem_map_device(file, &address, NULL);
	ck_assert_msg(rc == -1 && (errno == ENOSPC || errno == ENOMEM), "%s: %d, errno %d", fault,
		      rc, errno);
	ck_assert_uint_gt(strlen(gpumem_error()), 10);
	unshare_all(file);
}
END_TEST

static void any_driver(TCase *tcase)
{
	tcase_add_test(tcase, chunks_are_one_device_range);
	tcase_add_test(tcase, no_context_is_an_error);
	tcase_add_test(tcase, device_range_grows_in_place);
	tcase_add_test(tcase, a_gpu_that_is_not_visible);
	tcase_add_loop_test(tcase, as_it_comes, 0, 2);
}

static void standin(TCase *tcase)
{
	tcase_add_test(tcase, both_pointers_show_one_memory);
	tcase_add_test(tcase, host_range_grows_in_place);
	tcase_add_test(tcase, a_peer_maps);
	tcase_add_test(tcase, no_peer_access);
	tcase_add_test(tcase, readers_have_read_access);
	tcase_add_test(tcase, registered_system_memory);
	tcase_add_loop_test(tcase, through_dmabuf, 0, 2);
	tcase_add_loop_test(tcase, through_gdrcopy, 0, 2);
	tcase_add_loop_test(tcase, through_vulkan, 0, 2);
	tcase_add_test(tcase, memory_of_vulkan);
	tcase_add_loop_test(tcase, liars_are_found_out, 0, 2);
	tcase_add_test(tcase, one_way_to_order);
	tcase_add_loop_test(tcase, nothing_but_liars, 0, 2);
	tcase_add_loop_test(tcase, no_way_at_all, 0, 2);
	tcase_add_test(tcase, a_full_bar);
	tcase_add_loop_test(tcase, map_device_fails_cleanly, 0,
			    sizeof(fault_points) / sizeof(fault_points[0]));
}

int main(void)
{
	/* As with the preload library: the drivers' descriptors stay out of the program's table. */
	client_driver_thread_enable(NULL);
	return cuda_main("client_device", any_driver, standin);
}
