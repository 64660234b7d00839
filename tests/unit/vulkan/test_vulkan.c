/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Devices and chunks of the Vulkan provider. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "common/system/descriptors.h"
#include "tests/unit/vulkan_fixture.h"

/* A GPU that the CPU simulates says so, and is no choice of backend=auto. */
START_TEST(device)
{
	struct backend_config automatic = {
	    .kind = BACKEND_AUTO, .host_bytes = 16 * MIB, .host_gpus = 1};
	struct backend *chosen;
	struct device_memory memory;

	open_plain();
	struct device *device = backend->devices[0];

	ck_assert_str_eq(backend->name, "vulkan");
	ck_assert_int_eq(strncmp(device->uuid, "GPU-", 4), 0);
	ck_assert_uint_eq(strlen(device->uuid), strlen("GPU-") + 36);
	ck_assert_int_eq(device_memory(device, &memory), 0);
	ck_assert_uint_gt(memory.total, 0);
	ck_assert_uint_le(memory.free, memory.total);
	if (vulkan_device(device)->can.software) {
		ck_assert_ptr_nonnull(strstr(device->name, ", software"));
		ck_assert_int_eq(backend_open(&automatic, &chosen), 0);
		ck_assert_str_ne(chosen->name, "vulkan");
		backend_close(chosen);
	}
	close_all();
}
END_TEST

/* By its number, name or UUID. */
START_TEST(chosen_gpu)
{
	struct backend_config config = vulkan_config(BAR_AUTO);
	char uuid[sizeof(((struct device *)0)->uuid)];
	const char *const names[] = {"0", "gpu0", uuid};

	open_plain();
	strcpy(uuid, backend->devices[0]->uuid);
	close_all();
	config.gpus = names[_i];
	ck_assert_int_eq(backend_open(&config, &backend), 0);
	ck_assert_uint_eq(backend->n_devices, 1);
	ck_assert_uint_eq(backend->devices[0]->index, 0);
	backend_close(backend);
}
END_TEST

START_TEST(missing_gpu)
{
	struct backend_config config = vulkan_config(BAR_AUTO);

	config.gpus = "63";
	ck_assert_int_eq(backend_open(&config, &backend), -ENODEV);
}
END_TEST

/* Without any driver: an error of one line, and backend=auto takes another backend. */
START_TEST(no_driver)
{
	char why[256] = "";
	struct backend_config config = {
	    .kind = BACKEND_VULKAN, .reason = why, .reason_bytes = sizeof(why)};

	setenv("VK_DRIVER_FILES", "/nonexistent", 1);
	setenv("VK_ICD_FILENAMES", "/nonexistent", 1);
	ck_assert_int_eq(backend_open(&config, &backend), -ENODEV);
	ck_assert_str_ne(why, "");
}
END_TEST

/* Memory is counted, and a device that is full says so. A single allocation has a limit, which is
 * the same error, after which callers ask for less. */
START_TEST(full_device)
{
	struct device_memory before, after;
	struct chunk *chunk, *more;

	open_plain();
	struct device *device = backend->devices[0];
	uint64_t most = vulkan_device(device)->can.bytes_max;

	ck_assert_uint_eq(device->chunk_max, most);
	device_memory(device, &before);
	chunk = new_chunk(8 * MIB);
	device_memory(device, &after);
	ck_assert_uint_le(after.free, before.free - 8 * MIB);
	most = most / CHUNK_ALIGN * CHUNK_ALIGN + CHUNK_ALIGN;
	if (most < before.total)
		ck_assert_int_eq(chunk_new(device, PLACE_GPU, most, &more), -ENOSPC);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU,
				   before.total / CHUNK_ALIGN * CHUNK_ALIGN + CHUNK_ALIGN, &more),
			 -ENOSPC);
	/* Also if the driver would grant more. */
	device->total = 10 * MIB;
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 4 * MIB, &more), -ENOSPC);
	device->total = before.total;
	/* The number of allocations is limited as well. */
	vulkan_device(device)->can.allocations = atomic_load(&vulkan_device(device)->allocations);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &more), -ENOSPC);
	vulkan_device(device)->can.allocations++;
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 2 * MIB, &more), 0);
	chunk_free(more);
	chunk_free(chunk);
	device_memory(device, &after);
	ck_assert_uint_eq(after.free, before.free);
	close_all();
}
END_TEST

static void fd_send(int socket, int fd)
{
	char byte = 0;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union descriptor_control control;

	descriptor_attach(&message, &control, fd);
	ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
}

static int fd_receive(int socket)
{
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	union descriptor_control control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	int fd;

	ck_assert_int_eq(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* A process that makes a chunk, exports the chunk, and is killed. */
static int exported_by_the_dead(uint64_t bytes, char *pattern, size_t pattern_bytes)
{
	int sockets[2], status;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	pid_t child = fork();
	if (child == 0) {
		int fd;

		open_plain();
		struct chunk *chunk = new_chunk(bytes);
		put(chunk, bytes - pattern_bytes, pattern, pattern_bytes);
		ck_assert_int_eq(chunk_export(chunk, &fd), 0);
		fd_send(sockets[1], fd);
		for (;;)
			pause();
	}
	close(sockets[1]);
	int fd = fd_receive(sockets[0]);

	close(sockets[0]);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return fd;
}

/* Memory outlives its maker while a descriptor is open, and an imported chunk can be exported and
 * imported again. */
START_TEST(inherited)
{
	char pattern[4099];
	struct chunk *chunk, *again;
	int second;

	seed = unit_seed();
	unit_fill(pattern, sizeof(pattern), &seed);
	int fd = exported_by_the_dead(4 * MIB, pattern, sizeof(pattern));

	open_plain();
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, fd, &chunk), 0);
	expect_bytes(chunk, 4 * MIB - sizeof(pattern), pattern, sizeof(pattern));
	ck_assert_int_eq(chunk_export(chunk, &second), 0);
	ck_assert(fcntl(second, F_GETFD) & FD_CLOEXEC);
	ck_assert_int_eq(chunk_import(backend->devices[0], PLACE_GPU, 4 * MIB, second, &again), 0);
	put(again, 0, pattern, sizeof(pattern));
	expect_bytes(chunk, 0, pattern, sizeof(pattern));
	chunk_free(chunk);
	expect_bytes(again, 0, pattern, sizeof(pattern));
	chunk_free(again);
	/* Both descriptors were the chunks'. */
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(fcntl(second, F_GETFD), -1);
	close_all();
}
END_TEST

/* A descriptor that the driver refuses stays the caller's, and no other descriptor is closed. */
START_TEST(bad_import)
{
	int bad[] = {open("/dev/null", O_RDWR | O_CLOEXEC), memfd_create("small", MFD_CLOEXEC)};
	struct chunk *chunk = NULL;

	open_plain();
	for (unsigned i = 0; i < 2; i++) {
		int next = dup(bad[i]);

		close(next);
		ck_assert_int_lt(
		    chunk_import(backend->devices[0], PLACE_GPU, 2 * MIB, bad[i], &chunk), 0);
		ck_assert_ptr_null(chunk);
		ck_assert_int_ge(fcntl(bad[i], F_GETFD), 0);
		ck_assert_int_eq(fcntl(next, F_GETFD), -1); /* no descriptor is left open */
		close(bad[i]);
	}
	close_all();
}
END_TEST

static PFN_vkFreeMemory free_memory;
static int opened = -1;

static VKAPI_ATTR VkResult VKAPI_CALL bind_nothing(VkDevice device, VkBuffer buffer,
						   VkDeviceMemory memory, VkDeviceSize offset)
{
	(void)device, (void)buffer, (void)memory, (void)offset;
	return VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* Another thread, which opens a file right after the driver has closed its descriptor. */
static VKAPI_ATTR void VKAPI_CALL free_and_open(VkDevice device, VkDeviceMemory memory,
						const VkAllocationCallbacks *callbacks)
{
	free_memory(device, memory, callbacks);
	opened = open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* The driver owned its duplicate of the descriptor when the import failed at last. */
START_TEST(import_that_fails_late)
{
	struct chunk *made, *chunk = NULL;
	int fd;

	open_plain();
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	PFN_vkBindBufferMemory bind = device->vk.vkBindBufferMemory;
	bool software = device->can.software;

	ck_assert_int_eq(chunk_new(backend->devices[0], PLACE_GPU, 2 * MIB, &made), 0);
	ck_assert_int_eq(chunk_export(made, &fd), 0);
	free_memory = device->vk.vkFreeMemory;
	device->can.software = false; /* as with drivers that leave refused descriptors open */
	device->vk.vkBindBufferMemory = bind_nothing;
	device->vk.vkFreeMemory = free_and_open;
	ck_assert_int_lt(chunk_import(backend->devices[0], PLACE_GPU, 2 * MIB, fd, &chunk), 0);
	device->vk.vkFreeMemory = free_memory;
	device->vk.vkBindBufferMemory = bind;
	device->can.software = software;
	ck_assert_int_ge(fcntl(opened, F_GETFD), 0);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(opened);
	close(fd);
	chunk_free(made);
	close_all();
}
END_TEST

/* Stores through a mapping and copies by the device see each other. */
START_TEST(mapped)
{
	char pattern[] = "stored through the mapping";
	const char *why;

	open_plain();
	struct device *device = backend->devices[0];
	struct chunk *chunk = new_chunk(2 * MIB);
	struct span span = whole(chunk);

	if (copy_bar_possible(device)) {
		ck_assert_str_eq(device_bar_name(device, &why), "vulkan");
		ck_assert_int_eq(copy_in(copier, &span, 100, pattern, sizeof(pattern), COPY_BAR),
				 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert_ptr_nonnull(atomic_load(&chunk->bar));
		expect_bytes(chunk, 100, pattern, sizeof(pattern));
	}
	chunk_free(chunk);
	close_all();
}
END_TEST

START_TEST(mapping_turned_off)
{
	static const enum bar_provider off[] = {BAR_OFF, BAR_DMABUF, BAR_GDRCOPY};
	char pattern[] = "copied by the device";
	const char *why;

	for (unsigned i = 0; i < 3; i++) {
		open_with(off[i]);
		struct chunk *chunk = new_chunk(2 * MIB);

		ck_assert(!copy_bar_possible(backend->devices[0]));
		ck_assert_str_eq(device_bar_name(backend->devices[0], &why), "none");
		ck_assert_ptr_nonnull(why);
		put(chunk, 3, pattern, sizeof(pattern));
		expect_bytes(chunk, 3, pattern, sizeof(pattern));
		chunk_free(chunk);
		close_all();
	}
}
END_TEST

/* System memory that the device addresses: mapped always, and exported like the device's. */
START_TEST(host_place)
{
	char pattern[] = "in system memory";
	struct chunk *chunk, *again;
	int fd;

	open_with(BAR_OFF);
	struct device *device = backend->devices[0];

	ck_assert(device->host_memory);
	ck_assert_int_eq(chunk_new(device, PLACE_HOST, 2 * MIB, &chunk), 0);
	put(chunk, 7, pattern, sizeof(pattern));
	ck_assert_int_eq(chunk_export(chunk, &fd), 0);
	ck_assert_int_eq(chunk_import(device, PLACE_HOST, 2 * MIB, fd, &again), 0);
	chunk_free(chunk);
	struct span span = whole(again);
	char seen[sizeof(pattern)];

	ck_assert_int_eq(copy_out(copier, seen, &span, 7, sizeof(seen), COPY_AUTO), 0);
	ck_assert_int_eq(copier_wait(copier), 0);
	ck_assert_str_eq(seen, pattern);
	chunk_free(again);
	close_all();
}
END_TEST

#define LOCAL	VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define CACHED	VK_MEMORY_PROPERTY_HOST_CACHED_BIT
#define VISIBLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define GIB	(1ULL << 30)

struct layout {
	const char *name;
	VkPhysicalDeviceMemoryProperties memory;
	uint32_t exportable;
	struct vulkan_types wanted;
};

/* The types of drivers, as far as they are known, and what is chosen. */
static const struct layout layouts[] = {
    {"NVIDIA 580, H100",
     {.memoryHeapCount = 2,
      .memoryHeaps = {{80 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {94 * GIB, 0}},
      .memoryTypeCount = 5,
      .memoryTypes =
	  {{0, 1}, {LOCAL, 0}, {VISIBLE, 1}, {VISIBLE | CACHED, 1}, {LOCAL | VISIBLE, 0}}},
     0xf,
     {.places = {[PLACE_GPU] = {true, true, false, 1, 4}, [PLACE_HOST] = {true, true, true, 3, 3}},
      .stage = 3,
      .total = 80 * GIB,
      .window_bytes = 80 * GIB}},
    {"a window of 256 MiB",
     {.memoryHeapCount = 3,
      .memoryHeaps = {{8 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
		      {16 * GIB, 0},
		      {256 * MIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
      .memoryTypeCount = 4,
      .memoryTypes = {{LOCAL, 0}, {VISIBLE, 1}, {VISIBLE | CACHED, 1}, {LOCAL | VISIBLE, 2}}},
     0xf,
     {.places = {[PLACE_GPU] = {true, true, false, 0, 3}, [PLACE_HOST] = {true, true, true, 2, 2}},
      .stage = 2,
      .total = 8 * GIB,
      .window_bytes = 128 * MIB}},
    {"resizable BAR, exportable",
     {.memoryHeapCount = 2,
      .memoryHeaps = {{16 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16 * GIB, 0}},
      .memoryTypeCount = 3,
      .memoryTypes = {{LOCAL, 0}, {LOCAL | VISIBLE, 0}, {VISIBLE | CACHED, 1}}},
     0x7,
     {.places = {[PLACE_GPU] = {true, true, true, 1, 1}, [PLACE_HOST] = {true, true, true, 2, 2}},
      .stage = 2,
      .total = 16 * GIB,
      .window_bytes = 16 * GIB}},
    {"integrated",
     {.memoryHeapCount = 1,
      .memoryHeaps = {{12 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
      .memoryTypeCount = 2,
      .memoryTypes = {{LOCAL | VISIBLE, 0}, {LOCAL | VISIBLE | CACHED, 0}}},
     0x3,
     {.places = {[PLACE_GPU] = {true, true, true, 0, 0}, [PLACE_HOST] = {true, true, true, 1, 1}},
      .stage = 1,
      .total = 12 * GIB,
      .window_bytes = 12 * GIB}},
    {"system memory that can be exported, but not mapped",
     {.memoryHeapCount = 2,
      .memoryHeaps = {{8 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16 * GIB, 0}},
      .memoryTypeCount = 3,
      .memoryTypes = {{0, 1}, {LOCAL, 0}, {VISIBLE, 1}}},
     0x3,
     {.places =
	  {[PLACE_GPU] = {true, false, false, 1, 1}, [PLACE_HOST] = {true, true, false, 0, 2}},
      .stage = 2,
      .total = 8 * GIB}},
};

START_TEST(types_of_drivers)
{
	const struct layout *layout = &layouts[_i];
	struct vulkan_types got;

	ck_assert_int_eq(vulkan_types_choose(&layout->memory, layout->exportable, ~0U, &got), 0);
	for (int i = PLACE_GPU; i <= PLACE_HOST; i++) {
		const struct vulkan_place *place = &got.places[i],
					  *want = &layout->wanted.places[i];

		ck_assert_msg(place->usable == want->usable && place->type == want->type,
			      "%s: type %u", layout->name, place->type);
		ck_assert_msg(place->mappable == want->mappable && place->direct == want->direct,
			      "%s: mapping", layout->name);
		ck_assert_msg(!want->mappable || place->map_type == want->map_type,
			      "%s: mapped as %u", layout->name, place->map_type);
	}
	ck_assert_uint_eq(got.stage, layout->wanted.stage);
	ck_assert_uint_eq(got.total, layout->wanted.total);
	ck_assert_uint_eq(got.window_bytes, layout->wanted.window_bytes);
	ck_assert_int_eq(got.unmapped == NULL, layout->wanted.places[PLACE_GPU].mappable);
}
END_TEST

/* No buffer in exported memory may be on the GPU. */
START_TEST(types_without_the_gpu)
{
	struct vulkan_types got;

	ck_assert_int_eq(vulkan_types_choose(&layouts[0].memory, 0x4, ~0U, &got), -ENOTSUP);
}
END_TEST

/* A chunk whose own memory cannot be mapped is imported a second time for the mapping. */
START_TEST(mapped_by_import)
{
	char pattern[] = "stored through the second import", seen[sizeof(pattern)];

	open_plain();
	struct device *device = backend->devices[0];

	vulkan_device(device)->types.places[PLACE_GPU].direct = false;
	vulkan_device(device)->types.places[PLACE_HOST].direct = false;
	vulkan_bar_open(vulkan_device(device));
	unsigned before = 0;
	for (int place = PLACE_GPU; place <= PLACE_HOST; place++) {
		struct chunk *chunk;

		ck_assert(vulkan_device(device)->types.places[place].mappable);
		ck_assert_int_eq(chunk_new(device, (enum memory_place)place, 2 * MIB, &chunk), 0);
		struct span span = whole(chunk);

		ck_assert_int_eq(copy_in(copier, &span, 100, pattern, sizeof(pattern), COPY_BAR),
				 0);
		ck_assert_int_eq(copier_wait(copier), 0);
		ck_assert(vulkan_chunk(chunk)->window != VK_NULL_HANDLE);
		expect_bytes(chunk, 100, pattern, sizeof(pattern));
		put(chunk, MIB, pattern, sizeof(pattern));
		ck_assert_int_eq(copy_out(copier, seen, &span, MIB, sizeof(seen), COPY_BAR), 0);
		ck_assert_str_eq(seen, pattern);
		chunk_free(chunk);
		/* The import is gone with the chunk; what the copier needs stays. */
		unsigned left = atomic_load(&vulkan_device(device)->allocations);

		before = before ? before : left;
		ck_assert_uint_le(left, STAGE_SLOTS);
		ck_assert_uint_eq(left, before);
	}
	close_all();
}
END_TEST

static char elsewhere[CHUNK_ALIGN];

static VKAPI_ATTR VkResult VKAPI_CALL map_elsewhere(VkDevice handle, VkDeviceMemory memory,
						    VkDeviceSize offset, VkDeviceSize size,
						    VkMemoryMapFlags flags, void **address)
{
	(void)handle;
	(void)memory;
	(void)offset;
	(void)size;
	(void)flags;
	*address = elsewhere;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL unmap_nothing(VkDevice handle, VkDeviceMemory memory)
{
	(void)handle;
	(void)memory;
}

/* A mapping that shows other bytes is not used, and the reason is told. */
START_TEST(mapping_of_other_bytes)
{
	const char *why = NULL;
	struct chunk *chunk;

	open_plain();
	struct vulkan_device *device = vulkan_device(backend->devices[0]);
	PFN_vkMapMemory map = device->vk.vkMapMemory;
	PFN_vkUnmapMemory unmap = device->vk.vkUnmapMemory;

	device->types.places[PLACE_GPU].direct = device->types.places[PLACE_HOST].direct = false;
	device->vk.vkMapMemory = map_elsewhere;
	device->vk.vkUnmapMemory = unmap_nothing;
	vulkan_bar_open(device);
	device->vk.vkMapMemory = map;
	device->vk.vkUnmapMemory = unmap;
	ck_assert_str_eq(device_bar_name(&device->base, &why), "none");
	ck_assert_ptr_nonnull(why);
	ck_assert_int_eq(chunk_new(&device->base, PLACE_HOST, 2 * MIB, &chunk), -ENOTSUP);
	close_all();
}
END_TEST

static void tests(TCase *tcase)
{
	tcase_add_test(tcase, device);
	tcase_add_loop_test(tcase, chosen_gpu, 0, 3);
	tcase_add_test(tcase, missing_gpu);
	tcase_add_test(tcase, no_driver);
	tcase_add_test(tcase, full_device);
	tcase_add_test(tcase, inherited);
	tcase_add_test(tcase, bad_import);
	tcase_add_test(tcase, import_that_fails_late);
	tcase_add_test(tcase, mapped);
	tcase_add_test(tcase, mapping_turned_off);
	tcase_add_test(tcase, host_place);
	tcase_add_loop_test(tcase, types_of_drivers, 0, sizeof(layouts) / sizeof(layouts[0]));
	tcase_add_test(tcase, types_without_the_gpu);
	tcase_add_test(tcase, mapped_by_import);
	tcase_add_test(tcase, mapping_of_other_bytes);
}

int main(int argc, char **argv)
{
	(void)argc;
	return vulkan_main("vulkan", argv, tests);
}
