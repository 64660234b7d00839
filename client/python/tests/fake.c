/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libgpumem and libcuda as the Python tests need them, on ordinary files: a path with /gpu0/ in it
 * is memory of a GPU, /vulkan/ too, of backend=vulkan, /simulated/ of a simulated one, /host/
 * system memory. Device addresses can be read by the CPU, so that tests see what a GPU would. The
 * functions for safetensors files are the real ones. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/lib/gpumem.h"

/* Read by the tests. */
int fake_leases, fake_retained[2], fake_allocations, fake_syncs, fake_visible = 2, fake_no_memory;
int fake_contexts_made, fake_parked_files;
int fake_driver; /* of device addresses in /vulkan/: 0 none, 1 HIP, 2 Level Zero */
int fake_parked; /* what the next safe points return, counted down */

static __thread int context_stack[16], context_depth; /* device + 1 of each current context */

struct gpumem {
	int fd, kind, flags, parked;
	size_t size, mapped;
	char *at, *pending;
};

static const unsigned char gpu_uuids[2][16] = {"the first GPU's", "the second GPU'"};

static int fail(int error, const char *format, ...)
{
	char text[600];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	client_fail(error, "%s", text);
	errno = error;
	return -1;
}

static int kind_of(const char *path)
{
	if (strstr(path, "/gpu0/"))
		return GPUMEM_FILE_DEVICE;
	if (strstr(path, "/host/"))
		return GPUMEM_FILE_HOST;
	if (strstr(path, "/vulkan/"))
		return GPUMEM_FILE_VULKAN;
	return strstr(path, "/simulated/") ? GPUMEM_FILE_SIMULATED : 0;
}

static gpumem *open_file(int fd, const char *path, int flags)
{
	struct stat status;
	int kind = kind_of(path);

	fstat(fd, &status);
	if (S_ISDIR(status.st_mode)) {
		fail(EISDIR, "%s is a directory", path);
		return NULL;
	}
	if (!kind) {
		fail(ENOTSUP, "%s is not on gpumemfs", path);
		return NULL;
	}
	gpumem *file = calloc(1, sizeof(*file));
	int may_read = (flags & O_ACCMODE) == O_RDONLY;
	file->fd = dup(fd);
	file->kind = kind;
	file->size = status.st_size;
	if (may_read && kind != GPUMEM_FILE_HOST && !strstr(path, "trusted"))
		file->flags = GPUMEM_INFO_PRIVATE;
	else if (may_read)
		file->flags = GPUMEM_INFO_READ_ONLY;
	if (kind == GPUMEM_FILE_HOST)
		file->flags |= GPUMEM_INFO_HOST;
	__atomic_add_fetch(&fake_leases, 1, __ATOMIC_SEQ_CST);
	return file;
}

gpumem *gpumem_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0) {
		fail(errno, "%s", strerror(errno));
		return NULL;
	}
	gpumem *file = open_file(fd, path, flags);
	close(fd);
	return file;
}

gpumem *gpumem_open_fd(int fd)
{
	char link[40], path[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = '\0';
	return open_file(fd, path, fcntl(fd, F_GETFL));
}

gpumem *gpumem_create(const char *path, size_t bytes, size_t alignment, mode_t mode, int flags)
{
	int exclusive = flags & GPUMEM_CREATE_EXCL ? O_EXCL : O_TRUNC;
	char name[PATH_MAX];

	(void)alignment;
	if (bytes > 1UL << 40) {
		fail(ENOSPC, "%s: no memory for %zu bytes", path, bytes);
		return NULL;
	}
	if (flags & GPUMEM_CREATE_EXCL && !access(path, F_OK)) {
		fail(EEXIST, "%s: %s", path, strerror(EEXIST));
		return NULL;
	}
	snprintf(name, sizeof(name), "%s%s", path, flags & GPUMEM_CREATE_PENDING ? ".pending" : "");
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | exclusive, mode);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		fail(errno, "%s: %s", path, strerror(errno));
		return NULL;
	}
	gpumem *file = open_file(fd, path, O_RDWR);
	close(fd);
	if (file && flags & GPUMEM_CREATE_PENDING)
		file->pending = strdup(path);
	return file;
}

/* The memory is the CPU's, and is copied. */
gpumem *gpumem_share(const char *path, unsigned long long address, size_t bytes, mode_t mode,
		     int flags)
{
	if (address % 2) {
		fail(ENOTSUP, "%s: CUDA exports only memory of cuMemCreate", path);
		return NULL;
	}
	gpumem *file = gpumem_create(path, bytes, 0, mode, flags & GPUMEM_SHARE_EXCL);

	if (file && pwrite(file->fd, (void *)(uintptr_t)address, bytes, 0) != (ssize_t)bytes)
		abort();
	return file;
}

/* Calls at once. */
int gpumem_on_end(gpumem *file, void (*callback)(gpumem *file, void *context), void *context)
{
	if (callback)
		callback(file, context);
	return 0;
}

int gpumem_end_fd(gpumem *file)
{
	return file->fd;
}

int gpumem_publish(gpumem *file)
{
	char name[PATH_MAX];

	if (!file->pending)
		return fail(EINVAL, "the file has its name already");
	snprintf(name, sizeof(name), "%s.pending", file->pending);
	rename(name, file->pending);
	free(file->pending);
	file->pending = NULL;
	return 0;
}

int gpumem_close(gpumem *file)
{
	if (file->pending) {
		char name[PATH_MAX];
		snprintf(name, sizeof(name), "%s.pending", file->pending);
		unlink(name);
		free(file->pending);
	}
	if (file->at)
		munmap(file->at, file->mapped);
	close(file->fd);
	fake_parked_files -= file->parked;
	free(file);
	__atomic_sub_fetch(&fake_leases, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int gpumem_get_info(gpumem *file, struct gpumem_info *info)
{
	if (info->bytes != sizeof(*info))
		return fail(EINVAL, "%zu bytes of info", info->bytes);
	struct stat st;

	fstat(file->fd, &st);
	*info = (struct gpumem_info){
	    .bytes = sizeof(*info),
	    .filesystem = st.st_dev,
	    .inode = st.st_ino,
	    .size = file->size,
	    .mappable = file->size,
	    .host_mapped = file->mapped,
	    .n_chunks = 1,
	    .kind = file->kind,
	    .flags = file->flags,
	};
	if (file->kind != GPUMEM_FILE_HOST)
		memcpy(info->uuid, gpu_uuids[0], sizeof(info->uuid));
	if (file->at)
		strcpy(info->provider, "mmap");
	bool imported = file->at && file->kind == GPUMEM_FILE_VULKAN && fake_driver;
	info->number = imported ? 3 : -1;
	if (imported)
		strcpy(info->driver, fake_driver == 1 ? "hip" : "levelzero");
	return 0;
}

static int map(gpumem *file)
{
	int protection = file->flags & GPUMEM_INFO_READ_ONLY && file->kind != GPUMEM_FILE_DEVICE
			     ? PROT_READ
			     : PROT_READ | PROT_WRITE;
	int shared =
	    file->flags & (GPUMEM_INFO_PRIVATE | GPUMEM_INFO_READ_ONLY) ? MAP_PRIVATE : MAP_SHARED;

	if (!file->size)
		return fail(EINVAL, "the file is empty: there is nothing to map");
	if (file->at)
		return 0;
	file->at = mmap(NULL, file->size, protection, shared, file->fd, 0);
	if (file->at == MAP_FAILED) {
		file->at = NULL;
		return fail(errno, "mmap");
	}
	file->mapped = file->size;
	return 0;
}

int gpumem_map_device(gpumem *file, unsigned long long *address, size_t *bytes)
{
	if (file->kind == GPUMEM_FILE_VULKAN && !fake_driver)
		return fail(ENODEV, "neither HIP nor Level Zero is here");
	if (file->kind != GPUMEM_FILE_VULKAN && !context_depth)
		return fail(EINVAL, "this thread has no current CUDA context");
	if (map(file) < 0)
		return -1;
	*address = (unsigned long long)file->at;
	if (bytes)
		*bytes = file->size;
	return 0;
}

int gpumem_map_host(gpumem *file, void **address, size_t *bytes)
{
	if (map(file) < 0)
		return -1;
	*address = file->at;
	if (bytes)
		*bytes = file->size;
	return 0;
}

int gpumem_drop_leases(const char *path, uint64_t *leases)
{
	if (access(path, F_OK) < 0)
		return fail(errno, "%s", strerror(errno));
	if (strstr(path, "others"))
		return fail(EPERM, "only the file's owner and root end leases of others");
	if (!kind_of(path))
		return fail(ENOTSUP, "the file is not on gpumemfs, or not shared there");
	*leases = (uint64_t)fake_leases;
	return 0;
}

int gpumem_version_publish(const char *set, const char *version)
{
	(void)set, (void)version;
	return fail(ENOTSUP, "shown on a mount");
}

int gpumem_watch(const char *set)
{
	(void)set;
	return fail(ENOTSUP, "shown on a mount");
}

int gpumem_watch_read(int fd)
{
	(void)fd;
	return fail(ENOTSUP, "shown on a mount");
}

int gpumem_switch(gpumem *const *files, const char *const *paths, size_t n)
{
	(void)files, (void)paths, (void)n;
	return fail(ENOTSUP, "shown on a mount");
}

int gpumem_extend(gpumem *file)
{
	struct stat status;

	fstat(file->fd, &status);
	file->size = status.st_size;
	return 0;
}

/* Two pieces: the first page, and the others. */
int gpumem_export(gpumem *file, int flags, struct gpumem_piece *pieces, size_t *n)
{
	size_t room = *n, page = 4096;

	if (file->kind != GPUMEM_FILE_DEVICE)
		return fail(EOPNOTSUPP, "the file is in system memory");
	if (file->flags & GPUMEM_INFO_READ_ONLY && !(flags & GPUMEM_EXPORT_FOR_READING))
		return fail(EACCES, "the file is open for reading");
	*n = 2;
	if (!pieces)
		return 0;
	if (room < *n)
		return fail(ERANGE, "no room");
	for (size_t i = 0; i < *n; i++) {
		pieces[i] = (struct gpumem_piece){
		    .offset = i * page,
		    .bytes = i ? file->size - page : page,
		    .memory_offset = i * 512,
		    .memory_bytes = file->size,
		    .handles = i ? GPUMEM_HANDLE_OPAQUE | GPUMEM_HANDLE_DMABUF : GPUMEM_HANDLE_CUDA,
		    .fd = dup(file->fd)};
		memcpy(pieces[i].uuid, gpu_uuids[0], sizeof(pieces[i].uuid));
	}
	return 0;
}

int gpumem_park(gpumem *file)
{
	fake_parked_files += !file->parked;
	file->parked = 1;
	return 0;
}

/* A file has changed if its size has; an empty file cannot be unparked. */
int gpumem_unpark(gpumem *file)
{
	struct stat status;
	size_t size = file->size;

	if (!file->parked)
		return 0;
	fstat(file->fd, &status);
	if (!status.st_size)
		return fail(ESTALE, "the file was emptied, or removed");
	fake_parked_files--;
	file->parked = 0;
	file->size = status.st_size;
	return file->size != size;
}

/* No pool is ever open. */
int gpumem_torch_open(const char *directory, const char *name, int device,
		      struct gpumem_torch *functions)
{
	(void)directory, (void)name, (void)device, (void)functions;
	return fail(ENOTSUP, "there are no pools");
}

int gpumem_torch_close(const struct gpumem_torch *functions)
{
	(void)functions;
	return fail(EINVAL, "no such pool is open");
}

int gpumem_torch_park(const struct gpumem_torch *functions)
{
	return functions ? -1 : 0;
}

int gpumem_torch_unpark(const struct gpumem_torch *functions)
{
	return functions ? -1 : 0;
}

int gpumem_arena_find(unsigned long long address, char *path, size_t bytes, uint64_t *offset)
{
	(void)address, (void)path, (void)bytes, (void)offset;
	return fail(ENOENT, "there are no pools");
}

static void (*pressure_callback)(uint64_t bytes, unsigned device, void *context);
static void *pressure_context;
int fake_callbacks; /* how many the library has got */

int gpumem_safe_point(void)
{
	if (pressure_callback)
		pressure_callback(4096, 1, pressure_context);
	return fake_parked ? fake_parked-- : 0;
}

int gpumem_on_pressure(void (*callback)(uint64_t bytes, unsigned device, void *context),
		       void *context)
{
	static void (*last)(uint64_t, unsigned, void *);

	if (callback && callback != last) {
		fake_callbacks++;
		last = callback;
	}
	pressure_callback = callback;
	pressure_context = context;
	return 0;
}

int gpumem_flush(gpumem *file)
{
	return file ? 0 : -1;
}

const char *gpumem_error(void)
{
	return client_error_text();
}

/* --- libcuda: two devices, numbered the other way round than gpumemfs does when one is hidden */

enum { OK, INVALID = 1, NO_MEMORY = 2, NO_CONTEXT = 201, NOT_FOUND = 500 };

int cuInit(unsigned flags)
{
	return flags ? INVALID : OK;
}

int cuDeviceGetCount(int *count)
{
	*count = fake_visible;
	return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < fake_visible ? OK : INVALID;
}

/* The file's GPU is CUDA's device 1. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	memcpy(uuid, gpu_uuids[!device], 16);
	return OK;
}

int cuCtxGetCurrent(void **context)
{
	*context = context_depth ? (void *)(long)context_stack[context_depth - 1] : NULL;
	return OK;
}

int cuCtxGetDevice(int *device)
{
	if (!context_depth)
		return NO_CONTEXT;
	*device = context_stack[context_depth - 1] - 1;
	return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
	context_stack[context_depth++] = (int)(long)context;
	return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
	if (!context_depth)
		return NO_CONTEXT;
	*context = (void *)(long)context_stack[--context_depth];
	return OK;
}

int cuCtxSynchronize(void)
{
	fake_syncs++;
	return context_depth ? OK : NO_CONTEXT;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = fake_retained[device] > 0;
	return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	fake_contexts_made += fake_retained[device]++ == 0;
	*context = (void *)(long)(device + 1);
	return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	fake_retained[device]--;
	return OK;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
	if (!context_depth)
		return NO_CONTEXT;
	if (fake_no_memory)
		return NO_MEMORY;
	*address = (unsigned long long)aligned_alloc(256, (size + 255) / 256 * 256);
	fake_allocations++;
	return OK;
}

int cuMemFree_v2(unsigned long long address)
{
	if (!context_depth)
		return NO_CONTEXT;
	free((void *)address);
	fake_allocations--;
	return OK;
}

/* Of no allocation, as for memory of the CPU. */
int cuMemGetAddressRange_v2(unsigned long long *base, size_t *size, unsigned long long address)
{
	(void)base, (void)size, (void)address;
	return context_depth ? NOT_FOUND : NO_CONTEXT;
}

int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t size)
{
	if (!context_depth)
		return NO_CONTEXT;
	memcpy((void *)to, (void *)from, size);
	return OK;
}

int cuGetErrorName(int error, const char **name)
{
	*name = error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
	return OK;
}

/* The timelines of one process: open gives what create made, by any path. */
struct gpumem_timeline {
	uint64_t words[8];
	size_t count;
};

static gpumem_timeline fake_timelines;
int fake_timelines_open, fake_timelines_ended;
unsigned long long fake_stream; /* of the last call */

gpumem_timeline *gpumem_timeline_create(const char *path, size_t count, mode_t mode, int flags)
{
	(void)path, (void)mode, (void)flags;
	if (!count || count > 8) {
		fail(EINVAL, "a file has 1 to 8 timelines");
		return NULL;
	}
	fake_timelines = (gpumem_timeline){.count = count};
	fake_timelines_open++;
	return &fake_timelines;
}

gpumem_timeline *gpumem_timeline_open(const char *path)
{
	if (!fake_timelines_open) {
		fail(ENOENT, "%s: no such file", path);
		return NULL;
	}
	fake_timelines_open++;
	return &fake_timelines;
}

int gpumem_timeline_signal_host(gpumem_timeline *timeline, size_t number, uint64_t value)
{
	if (number >= timeline->count)
		return fail(EINVAL, "no such timeline");
	timeline->words[number] = value;
	return 0;
}

int gpumem_timeline_signal(gpumem_timeline *timeline, size_t number, void *stream, uint64_t value)
{
	fake_stream = (uintptr_t)stream;
	return gpumem_timeline_signal_host(timeline, number, value);
}

int gpumem_timeline_wait(gpumem_timeline *timeline, size_t number, void *stream, uint64_t value)
{
	(void)value;
	fake_stream = (uintptr_t)stream;
	return number < timeline->count ? 0 : fail(EINVAL, "no such timeline");
}

int gpumem_timeline_value(gpumem_timeline *timeline, size_t number, uint64_t *value)
{
	*value = timeline->words[number];
	return 0;
}

int gpumem_timeline_wait_host(gpumem_timeline *timeline, size_t number, uint64_t value,
			      int64_t timeout)
{
	if (fake_timelines_ended)
		return fail(EOWNERDEAD, "the creator has ended");
	if (timeline->words[number] < value && timeout >= 0)
		return fail(ETIMEDOUT, "not after %lld ns", (long long)timeout);
	return 0;
}

int gpumem_timeline_check(gpumem_timeline *timeline)
{
	(void)timeline;
	return fake_timelines_ended ? fail(EOWNERDEAD, "the creator has ended") : 0;
}

int gpumem_timeline_close(gpumem_timeline *timeline)
{
	(void)timeline;
	fake_timelines_open--;
	return 0;
}
