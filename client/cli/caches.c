/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The frameworks put the versions of framework and compiler, the flags, and the kind of the GPU or
 * the driver into the names of entries. So a directory serves all versions and GPUs. */
#include "client/cli/caches.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/private_dir.h"
#include "common/cleanup.h"

static const struct cache {
	const char *variable, *folder;
} cache_variables[] = {
    {"TORCHINDUCTOR_CACHE_DIR", "inductor"},
    {"TRITON_CACHE_DIR", "triton"},
    {"TORCH_EXTENSIONS_DIR", "torch_extensions"},
    {"CUDA_CACHE_PATH", "cuda"},
    {"FLASHINFER_WORKSPACE_BASE", "flashinfer"},
    {"JAX_COMPILATION_CACHE_DIR", "jax"},
    {"VLLM_CACHE_ROOT", "vllm"},
};

#define CACHES (sizeof(cache_variables) / sizeof(cache_variables[0]))

static int folders_make(const struct private_dir *dir)
{
	/* A mount without a spool refuses, and other file systems have no such attribute. */
	if (faccessat(dir->fd, cache_variables[0].folder, F_OK, 0) < 0)
		fsetxattr(dir->fd, "user.gpumem.persist", "disk", strlen("disk"), 0);
	for (size_t i = 0; i < CACHES; i++)
		if (mkdirat(dir->fd, cache_variables[i].folder, S_IRWXU) < 0 && errno != EEXIST)
			return cli_fail(dir->path, errno);
	return CLI_OK;
}

static int cache_set(const struct private_dir *dir, const struct cache *cache)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/%s", dir->path, cache->folder) < 0 ||
	    setenv(cache->variable, path, 0))
		return cli_fail(cache->variable, ENOMEM);
	return CLI_OK;
}

int caches_set(const char *path)
{
	AUTO_PRIVATE_DIR struct private_dir dir = PRIVATE_DIR_NONE;
	int status = private_dir_need(path, "change the code that the command runs", &dir);

	/* The ranks of a job start at the same time. */
	if (!status && flock(dir.fd, LOCK_EX) < 0)
		status = cli_fail(path, errno);
	if (!status)
		status = folders_make(&dir);
	for (size_t i = 0; !status && i < CACHES; i++)
		status = cache_set(&dir, &cache_variables[i]);
	return status;
}
