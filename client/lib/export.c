/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Hands the descriptors of a file's memory to the program, for imports by other interfaces. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "client/gpu/external.h"
#include "client/lib/file.h"
#include "common/cleanup.h"

static uint32_t chunk_handles(const struct client_layout *layout, int fd)
{
	if (layout->kind == GPUMEM_KIND_DEVICE)
		return GPUMEM_HANDLE_CUDA;
	return GPUMEM_HANDLE_OPAQUE | (external_is_dmabuf(fd) ? GPUMEM_HANDLE_DMABUF : 0);
}

static int piece_fill(struct gpumem_piece *piece, const struct client_layout *layout,
		      const struct client_chunk *chunk)
{
	int fd = fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return client_fail(errno, "a descriptor of the file's memory: %s", strerror(errno));
	uint64_t skip = chunk->offset ? 0 : layout->skip;

	*piece = (struct gpumem_piece){.offset = chunk->offset ? chunk->offset - layout->skip : 0,
				       .bytes = chunk->bytes - skip,
				       .memory_offset = skip,
				       .memory_bytes = chunk->bytes,
				       .handles = chunk_handles(layout, chunk->fd),
				       .fd = fd};
	memcpy(piece->uuid, layout->uuid, sizeof(piece->uuid));
	return 0;
}

static int pieces_fill(struct gpumem_piece *pieces, const struct client_layout *layout)
{
	int rc = 0;

	for (uint32_t i = 0; i < layout->n_chunks; i++) {
		rc = piece_fill(&pieces[i], layout, &layout->chunks[i]);
		if (rc == 0)
			continue;
		while (i > 0)
			close(pieces[--i].fd);
		break;
	}
	return rc;
}

static int layout_check(const struct client_layout *layout, int flags)
{
	struct ipc_memory of_malloc;

	if (flags & ~GPUMEM_EXPORT_FOR_READING)
		return client_fail(EINVAL, "flags are 0 or GPUMEM_EXPORT_FOR_READING");
	if (layout->kind != GPUMEM_KIND_DEVICE && layout->kind != GPUMEM_KIND_VULKAN)
		return client_fail(EOPNOTSUPP, "the file is in system memory, which no driver "
					       "exports: map it by gpumem_map_host");
	if (client_layout_of_malloc(layout, &of_malloc))
		return client_fail(EOPNOTSUPP, "the memory is of another process's cudaMalloc, for "
					       "which CUDA has no descriptors");
	if (layout->flags & GPUMEM_LAYOUT_READ_ONLY && !(flags & GPUMEM_EXPORT_FOR_READING))
		return client_fail(EACCES, "the file is open for reading, and its descriptors "
					   "would let the program write: open it with O_RDWR, or "
					   "promise to read only (GPUMEM_EXPORT_FOR_READING)");
	return 0;
}

static int file_export(struct gpumem *file, int flags, struct gpumem_piece *pieces, size_t *n)
{
	scoped_lock(&file->lock);

	int rc = client_file_renew(file);
	if (rc == 0)
		rc = layout_check(&file->layout, flags);
	if (rc < 0)
		return rc;
	size_t room = *n;
	*n = file->layout.n_chunks;
	if (!pieces)
		return 0;
	if (room < *n)
		return client_fail(ERANGE, "the file has %zu pieces, and there is room for %zu", *n,
				   room);
	rc = pieces_fill(pieces, &file->layout);
	file->exported |= rc == 0 && *n > 0;
	return rc;
}

int gpumem_export(gpumem *file, int flags, struct gpumem_piece *pieces, size_t *n)
{
	CLIENT_CALL();
	return client_errno_return(file_export(file, flags, pieces, n));
}
