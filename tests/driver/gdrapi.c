/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stand-in libgdrapi.so.2. Without GPUMEM_STANDIN_GDR the library behaves as on a machine without
 * gdrdrv. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/driver/other.h"

#define GPU_PAGE_SIZE (64ULL << 10)

struct buffer {
	struct buffer *next;
	unsigned long id;
	uint64_t address, size; /* whole GPU pages */
	uint64_t offset;	/* of address in fd */
	int fd;
	unsigned gpu;
	void *mapped; /* NULL if not mapped */
	uint64_t mapped_size;
};

typedef struct gdr {
	pthread_mutex_t lock;
	struct buffer *buffers;
	unsigned long last_id;
} * gdr_t;

typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

typedef enum {
	GDR_MAPPING_TYPE_NONE = 0,
	GDR_MAPPING_TYPE_WC = 1,
} gdr_mapping_type_t;

typedef struct {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
	gdr_mapping_type_t mapping_type;
} gdr_info_v2_t;

enum { GDR_PIN_FLAG_FORCE_PCIE = 1 };
enum {
	GDR_ATTR_USE_PERSISTENT_MAPPING = 1,
	GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2,
	GDR_ATTR_USING_DMA_BUF_MMAP = 3,
};

static bool can_force_pcie(void)
{
	return other_setting_is("GPUMEM_STANDIN_GDR", "pcie");
}

STANDIN_API gdr_t gdr_open(void)
{
	gdr_t gdr;

	if (!other_setting_is("GPUMEM_STANDIN_GDR", "1") &&
	    !other_setting_is("GPUMEM_STANDIN_GDR", "lie") && !can_force_pcie()) {
		errno = ENOENT;
		return NULL;
	}
	gdr = calloc(1, sizeof(*gdr));
	if (gdr)
		pthread_mutex_init(&gdr->lock, NULL);
	return gdr;
}

static void unmap(struct buffer *buffer)
{
	munmap(buffer->mapped, buffer->mapped_size);
	buffer->mapped = NULL;
	other_helpers()->bar_take(buffer->gpu, -(int64_t)buffer->size);
}

static void buffer_free(struct buffer *buffer)
{
	if (buffer->mapped)
		unmap(buffer);
	close(buffer->fd);
	free(buffer);
}

STANDIN_API int gdr_close(gdr_t gdr)
{
	unsigned left = 0;

	if (!gdr)
		return EINVAL;
	while (gdr->buffers) {
		struct buffer *buffer = gdr->buffers;

		gdr->buffers = buffer->next;
		buffer_free(buffer);
		left++;
	}
	if (left)
		other_leak_line("standin: pid=%d gdr_buffers=%u\n", (int)getpid(), left);
	pthread_mutex_destroy(&gdr->lock);
	free(gdr);
	return 0;
}

/* Call under gdr->lock. Returns the link to the buffer, or the end of the list. */
static struct buffer **find(gdr_t gdr, gdr_mh_t handle)
{
	struct buffer **link = &gdr->buffers;

	while (*link && (*link)->id != handle.h)
		link = &(*link)->next;
	return link;
}

/* The memory must be a single mapping and must have been created gpuDirectRDMACapable. */
STANDIN_API int gdr_pin_buffer_v2(gdr_t gdr, unsigned long address, size_t size, uint32_t flags,
				  gdr_mh_t *handle)
{
	uint64_t start = address & ~(GPU_PAGE_SIZE - 1);
	uint64_t end = (address + size + GPU_PAGE_SIZE - 1) & ~(GPU_PAGE_SIZE - 1);
	struct buffer *buffer;

	if (!gdr || !handle || !size || (flags && flags != GDR_PIN_FLAG_FORCE_PCIE))
		return EINVAL;
	if (flags && !can_force_pcie())
		return EINVAL;
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return ENOMEM;
	buffer->address = start;
	buffer->size = end - start;
	buffer->fd = other_helpers()->range_fd(start, end - start, &buffer->offset, &buffer->gpu);
	if (buffer->fd < 0) {
		free(buffer);
		return EINVAL;
	}
	pthread_mutex_lock(&gdr->lock);
	buffer->id = ++gdr->last_id;
	buffer->next = gdr->buffers;
	gdr->buffers = buffer;
	handle->h = buffer->id;
	pthread_mutex_unlock(&gdr->lock);
	return 0;
}

STANDIN_API int gdr_pin_buffer(gdr_t gdr, unsigned long address, size_t size, uint64_t token,
			       uint32_t va_space, gdr_mh_t *handle)
{
	(void)token, (void)va_space;
	return gdr_pin_buffer_v2(gdr, address, size, 0, handle);
}

STANDIN_API int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle)
{
	struct buffer **link, *buffer;

	if (!gdr)
		return EINVAL;
	pthread_mutex_lock(&gdr->lock);
	link = find(gdr, handle);
	buffer = *link;
	if (buffer)
		*link = buffer->next;
	pthread_mutex_unlock(&gdr->lock);
	if (!buffer)
		return EINVAL;
	buffer_free(buffer);
	return 0;
}

static int map(struct buffer *buffer, void **address, size_t size)
{
	bool lie = other_setting_is("GPUMEM_STANDIN_GDR", "lie");
	uint64_t rounded = (size + 4095) & ~4095ULL;
	void *mapped;

	if (buffer->mapped)
		return EAGAIN;
	if (!size || rounded > buffer->size)
		return EINVAL;
	if (other_helpers()->bar_take(buffer->gpu, (int64_t)buffer->size))
		return ENOMEM;
	mapped = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
		      lie ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, lie ? -1 : buffer->fd,
		      lie ? 0 : (off_t)buffer->offset);
	if (mapped == MAP_FAILED) {
		other_helpers()->bar_take(buffer->gpu, -(int64_t)buffer->size);
		return errno;
	}
	buffer->mapped = mapped;
	buffer->mapped_size = rounded;
	*address = mapped;
	return 0;
}

STANDIN_API int gdr_map(gdr_t gdr, gdr_mh_t handle, void **address, size_t size)
{
	struct buffer *buffer;
	int rc;

	if (!gdr || !address)
		return EINVAL;
	pthread_mutex_lock(&gdr->lock);
	buffer = *find(gdr, handle);
	rc = buffer ? map(buffer, address, size) : EINVAL;
	pthread_mutex_unlock(&gdr->lock);
	return rc;
}

STANDIN_API int gdr_map_v2(gdr_t gdr, gdr_mh_t handle, void **address, size_t size, int flags)
{
	return flags ? EINVAL : gdr_map(gdr, handle, address, size);
}

STANDIN_API int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *address, size_t size)
{
	struct buffer *buffer;
	int rc = EINVAL;

	if (!gdr)
		return EINVAL;
	pthread_mutex_lock(&gdr->lock);
	buffer = *find(gdr, handle);
	if (buffer && buffer->mapped && buffer->mapped == address &&
	    ((size + 4095) & ~4095ULL) == buffer->mapped_size) {
		unmap(buffer);
		rc = 0;
	}
	pthread_mutex_unlock(&gdr->lock);
	return rc;
}

STANDIN_API int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info)
{
	struct buffer *buffer;

	if (!gdr || !info)
		return EINVAL;
	pthread_mutex_lock(&gdr->lock);
	buffer = *find(gdr, handle);
	if (buffer)
		*info = (gdr_info_v2_t){
		    .va = buffer->address,
		    .mapped_size = buffer->size,
		    .page_size = GPU_PAGE_SIZE,
		    .mapped = buffer->mapped != NULL,
		    .wc_mapping = buffer->mapped != NULL,
		    .mapping_type = buffer->mapped ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_NONE,
		};
	pthread_mutex_unlock(&gdr->lock);
	return buffer ? 0 : EINVAL;
}

STANDIN_API int gdr_get_attribute(gdr_t gdr, int attribute, int *value)
{
	if (!gdr || !value || attribute < GDR_ATTR_USE_PERSISTENT_MAPPING ||
	    attribute > GDR_ATTR_USING_DMA_BUF_MMAP)
		return EINVAL;
	*value = attribute == GDR_ATTR_USE_PERSISTENT_MAPPING ||
		 (attribute == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE && can_force_pcie());
	return 0;
}

STANDIN_API int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
	(void)handle;
	memcpy(to, from, size);
	return 0;
}

STANDIN_API int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
	(void)handle;
	memcpy(to, from, size);
	return 0;
}

STANDIN_API void gdr_runtime_get_version(int *major, int *minor)
{
	*major = 2;
	*minor = 5;
}

STANDIN_API int gdr_driver_get_version(gdr_t gdr, int *major, int *minor)
{
	if (!gdr)
		return EINVAL;
	*major = 2;
	*minor = 5;
	return 0;
}
