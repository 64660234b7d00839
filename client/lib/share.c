/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files whose bytes are memory that this process has. */
#include <errno.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "client/gpu/program.h"
#include "client/lib/create.h"
#include "client/lib/file.h"
#include "client/lib/listener.h"

#define KNOWN_FLAGS (GPUMEM_SHARE_EXCL | GPUMEM_SHARE_STAYS)

static int arguments_check(size_t bytes, size_t n_pieces, int flags)
{
	if (flags & ~KNOWN_FLAGS)
		return client_fail(EINVAL, "flags are GPUMEM_SHARE_EXCL and GPUMEM_SHARE_STAYS");
	if (!bytes || !n_pieces)
		return client_fail(EINVAL, "no bytes to share");
	if (n_pieces > GPUMEM_PIECES_MAX)
		return client_fail(EINVAL, "%zu pieces are more than the %d of a file", n_pieces,
				   GPUMEM_PIECES_MAX);
	return 0;
}

static gpumem *file_share(const char *path, const struct client_adoption *from, mode_t mode,
			  int flags)
{
	struct gpumem *file = NULL;
	struct client_adoption adoption = *from;
	int create = flags & GPUMEM_SHARE_EXCL ? GPUMEM_CREATE_EXCL : 0;

	adoption.flags |= flags & GPUMEM_SHARE_STAYS ? GPUMEM_ADOPT_STAYS : 0;
	int rc = client_create_adopted(path, &adoption, mode, create, &file);

	if (client_errno_return(rc) < 0)
		return NULL;
	client_listen_file(file);
	return file;
}

gpumem *gpumem_share_fds(const char *path, const int *fds, const size_t *sizes, size_t n_pieces,
			 size_t skip, size_t bytes, mode_t mode, int flags)
{
	CLIENT_CALL();
	int rc = arguments_check(bytes, n_pieces, flags);

	if (client_errno_return(rc) < 0)
		return NULL;
	return file_share(path,
			  &(struct client_adoption){.fds = fds,
						    .sizes = sizes,
						    .n_pieces = (uint32_t)n_pieces,
						    .skip = skip,
						    .size = bytes},
			  mode, flags);
}

gpumem *gpumem_share(const char *path, unsigned long long address, size_t bytes, mode_t mode,
		     int flags)
{
	struct client_pieces pieces = {0};
	gpumem *file = NULL;

	CLIENT_CALL();
	int rc = arguments_check(bytes, 1, flags);

	if (rc == 0)
		rc = client_pieces_export(address, bytes, &pieces);
	if (rc == 0 && pieces.of_malloc && flags & GPUMEM_SHARE_STAYS)
		rc = client_fail(ENOTSUP, "memory of cudaMalloc does not outlive its process");
	/* The descriptors are the driver's own, so the daemon need not look. But a handle of
	 * cudaMalloc would open the memory that is there then. */
	if (client_errno_return(rc) == 0)
		file = file_share(
		    path,
		    &(struct client_adoption){.fds = pieces.fds,
					      .sizes = pieces.sizes,
					      .n_pieces = pieces.n,
					      .skip = pieces.skip,
					      .size = bytes,
					      .flags = pieces.of_malloc ? 0 : GPUMEM_ADOPT_LATER,
					      .uuid = pieces.uuid},
		    mode, flags);
	int error = errno;

	client_pieces_close(&pieces);
	errno = error;
	return file;
}
