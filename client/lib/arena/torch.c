/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Allocator functions for torch, which takes a pair of plain functions: no argument tells which
 * pool an allocation is for. So each pool has a pair of its own, from a table. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "client/gpu/cuda/primary.h"
#include "client/lib/arena/arena.h"
#include "client/lib/gpumem.h"
#include "common/cleanup.h"

#define DEVICES_MAX    64
#define UUID_TEXT_MAX  48
#define DEFAULT_PREFIX "torch-"

struct pool {
	pthread_mutex_t lock; /* of all below; taken before an arena's */
	enum {
		POOL_UNUSED,
		POOL_OPEN,
		POOL_CLOSING /* until the last allocation is freed */
	} state;
	char *directory, *name; /* name NULL: from the process and the device */
	size_t allocations;
	struct gpumem_arena *arenas[DEVICES_MAX]; /* by CUDA's number; NULL: none yet */
};

/* The numbers of pools; 0 is the pool that the environment names. */
#define POOLS(X)                                                                                   \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define POOL_INIT(n) {.lock = PTHREAD_MUTEX_INITIALIZER},
static struct pool device_pools[] = {POOLS(POOL_INIT)};

static void uuid_print(const char *kind, const uint8_t uuid[16], char text[UUID_TEXT_MAX])
{
	size_t at = (size_t)sprintf(text, "%s-", kind);

	for (int i = 0; i < 16; i++)
		at += (size_t)sprintf(text + at, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* The path of the device's directory: the pool's own directory, or a directory in the mount. */
static bool directory_of(const struct pool *pool, const char *uuid, char path[PATH_MAX])
{
	char directory_uuid[UUID_TEXT_MAX] = "";
	ssize_t n = getxattr(pool->directory, "user.gpumem.device", directory_uuid,
			     sizeof(directory_uuid) - 1);
	bool matches = n > 0 && strcmp(directory_uuid, uuid) == 0;
	int length = snprintf(path, PATH_MAX, "%s%s%s", pool->directory,
			      matches ? "" : "/.gpumem/by-uuid/", matches ? "" : uuid);

	return length < PATH_MAX && access(path, F_OK) == 0;
}

/* The directory itself if its memory is of the device, or the device's directory if the directory
 * is the root of a mount. A slice of a GPU has a UUID of another form, which CUDA does not tell. */
static int directory_find(const struct pool *pool, int device, char path[PATH_MAX])
{
	char text[UUID_TEXT_MAX];
	uint8_t uuid[16];

	int rc = cuda_device_uuid(device, uuid);
	if (rc < 0)
		return rc;
	uuid_print("MIG", uuid, text);
	if (directory_of(pool, text, path))
		return 0;
	uuid_print("GPU", uuid, text);
	if (directory_of(pool, text, path))
		return 0;
	return client_fail(ENXIO,
			   "%s is neither in the directory of %s nor the root of a mount with this "
			   "GPU",
			   pool->directory, text);
}

/* "torch-PROCESS-DEVICE-N": other files are the user's own. */
static bool name_is_default(const char *name)
{
	size_t prefix = strlen(DEFAULT_PREFIX), dashes = 0;

	if (strncmp(name, DEFAULT_PREFIX, prefix) != 0)
		return false;
	for (const char *at = name + prefix; *at; at++) {
		if (*at == '-')
			dashes++;
		/* No number is empty. */
		if (*at == '-' ? at[-1] == '-' : !isdigit((unsigned char)*at))
			return false;
	}
	return dashes == 2 && name[strlen(name) - 1] != '-';
}

/* Removes files of killed processes. */
static void directory_sweep(const char *path)
{
	DIR *folder = opendir(path);

	if (!folder)
		return;
	for (const struct dirent *at; (at = readdir(folder));)
		if (name_is_default(at->d_name))
			client_arena_sweep(dirfd(folder), at->d_name);
	closedir(folder);
}

struct arena_request {
	const struct pool *pool;
	int device;
	const char *directory;
	struct gpumem_arena *arena;
};

/* An existing file may be kept memory, or in use: such a file is not replaced. */
static int arena_open_named(struct arena_request *request, const char *name)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s/%s", request->directory, name);

	if (length >= PATH_MAX)
		return client_fail(ENAMETOOLONG, "%s: %s", path, strerror(ENAMETOOLONG));
	return client_arena_open(path, 0, GPUMEM_CREATE_EXCL, &request->arena);
}

/* The second pool of a process, and a process with the same id in another container, need another
 * name. The number is random, because another user may have taken the names of all small numbers.
 */
static int arena_open_unnamed(struct arena_request *request)
{
	char name[64];
	uint32_t number = 0;
	int rc;

	directory_sweep(request->directory);
	do {
		snprintf(name, sizeof(name), DEFAULT_PREFIX "%d-%d-%" PRIu32, getpid(),
			 request->device, number);
		rc = arena_open_named(request, name);
	} while (rc == -EEXIST && getrandom(&number, sizeof(number), 0) == sizeof(number));
	return rc;
}

static int arena_open(void *argument)
{
	struct arena_request *request = argument;

	return request->pool->name ? arena_open_named(request, request->pool->name)
				   : arena_open_unnamed(request);
}

/* Under the pool's lock. */
static int pool_get_arena(struct pool *pool, int device, struct gpumem_arena **arena)
{
	char directory[PATH_MAX];
	struct arena_request request = {.pool = pool, .device = device, .directory = directory};

	if (device < 0 || device >= DEVICES_MAX)
		return client_fail(EINVAL, "there is no device %d", device);
	if (!pool->arenas[device]) {
		int rc = directory_find(pool, device, directory);
		if (rc == 0)
			rc = cuda_primary_run(device, arena_open, &request);
		if (rc < 0)
			return rc;
		pool->arenas[device] = request.arena;
	}
	*arena = pool->arenas[device];
	return 0;
}

/* Under the pool's lock. Gives the first error. */
static int pool_end(struct pool *pool)
{
	int rc = 0;

	for (int i = 0; i < DEVICES_MAX; i++) {
		int closed = pool->arenas[i] ? client_arena_close(pool->arenas[i]) : 0;
		pool->arenas[i] = NULL;
		rc = rc < 0 ? rc : closed;
	}
	free(pool->directory);
	free(pool->name);
	pool->directory = pool->name = NULL;
	pool->state = POOL_UNUSED;
	return rc;
}

/* Under the pool's lock. */
static int pool_begin(struct pool *pool, const char *directory, const char *name)
{
	pool->directory = strdup(directory);
	pool->name = name ? strdup(name) : NULL;
	if (pool->directory && (pool->name || !name)) {
		pool->state = POOL_OPEN;
		return 0;
	}
	pool_end(pool);
	return client_fail(ENOMEM, "no memory");
}

/* The pool of the environment begins with its first allocation. */
static int pool_check(struct pool *pool)
{
	const char *directory = getenv("GPUMEM_POOL");

	if (pool->state != POOL_UNUSED)
		return 0;
	if (pool != device_pools || !directory || !*directory)
		return client_fail(EINVAL, "the pool is closed, or GPUMEM_POOL names no directory");
	return pool_begin(pool, directory, NULL);
}

/* torch reports every failure as a GPU without room, so another reason is printed. */
static void *pool_fail(int rc)
{
	if (rc != -ENOSPC && rc != -EDQUOT)
		fprintf(stderr, "gpumem: no allocation for torch: %s\n", client_error_text());
	return NULL;
}

static void *pool_alloc(struct pool *pool, ssize_t size, int device)
{
	struct gpumem_arena *arena = NULL;
	unsigned long long address = 0;

	CLIENT_CALL();
	scoped_lock(&pool->lock);
	int rc = pool_check(pool);
	if (rc == 0)
		rc = pool_get_arena(pool, device, &arena);
	if (rc == 0)
		rc = client_arena_alloc(arena, (size_t)size, 0, &address);
	if (rc < 0)
		return pool_fail(rc);
	pool->allocations++;
	return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr): torch's type */
}

/* cudaFree(3) waits for the device, and torch relies on the wait: kernels may still use the memory,
 * which another stream gets next. */
static void pool_free(struct pool *pool, const void *address, int device)
{
	CLIENT_CALL();
	scoped_lock(&pool->lock);
	if (!address || device < 0 || device >= DEVICES_MAX || !pool->arenas[device])
		return;
	cuda_primary_run(device, NULL, NULL);
	if (client_arena_free(pool->arenas[device], (uintptr_t)address) < 0)
		return;
	pool->allocations--;
	if (!pool->allocations && pool->state == POOL_CLOSING)
		pool_end(pool);
}

#define POOL_FUNCTIONS(n)                                                                          \
	static void *pool_alloc_##n(ssize_t size, int device, void *stream)                        \
	{                                                                                          \
		(void)stream;                                                                      \
		return pool_alloc(&device_pools[n], size, device);                                 \
	}                                                                                          \
	static void pool_free_##n(void *address, ssize_t size, int device, void *stream)           \
	{                                                                                          \
		(void)size;                                                                        \
		(void)stream;                                                                      \
		pool_free(&device_pools[n], address, device);                                      \
	}
POOLS(POOL_FUNCTIONS)

#define POOL_ROW(n) {pool_alloc_##n, pool_free_##n},
static const struct gpumem_torch functions_of[] = {POOLS(POOL_ROW)};

void *gpumem_torch_alloc(ssize_t size, int device, void *stream)
{
	return pool_alloc_0(size, device, stream);
}

void gpumem_torch_free(void *address, ssize_t size, int device, void *stream)
{
	pool_free_0(address, size, device, stream);
}

static int pool_open(struct pool *pool, const char *directory, const char *name, int device)
{
	struct gpumem_arena *arena = NULL;

	scoped_lock(&pool->lock);
	if (pool->state != POOL_UNUSED)
		return -EBUSY;
	int rc = pool_begin(pool, directory, name);
	if (rc < 0)
		return rc;
	rc = pool_get_arena(pool, device, &arena);
	if (rc < 0)
		pool_end(pool);
	return rc;
}

static int torch_open(const char *directory, const char *name, int device,
		      struct gpumem_torch *functions)
{
	if (name && (!*name || strchr(name, '/')))
		return client_fail(EINVAL, "'%s' is no file's name", name);
	for (size_t i = 1; i < sizeof(device_pools) / sizeof(device_pools[0]); i++) {
		int rc = pool_open(&device_pools[i], directory, name, device);
		if (rc == -EBUSY)
			continue;
		if (rc == 0)
			*functions = functions_of[i];
		return rc;
	}
	return client_fail(EMFILE, "there are %zu pools already: close one",
			   sizeof(device_pools) / sizeof(device_pools[0]) - 1);
}

/* NULL: no pool has the functions. */
static struct pool *pool_find(const struct gpumem_torch *functions)
{
	for (size_t i = 0; i < sizeof(device_pools) / sizeof(device_pools[0]); i++)
		if (functions->alloc == functions_of[i].alloc)
			return &device_pools[i];
	return NULL;
}

static int torch_close(const struct gpumem_torch *functions)
{
	struct pool *pool = pool_find(functions);

	if (!pool)
		return client_fail(EINVAL, "no such pool is open");
	scoped_lock(&pool->lock);
	if (pool->state != POOL_OPEN)
		return client_fail(EINVAL, "no such pool is open");
	pool->state = POOL_CLOSING;
	return pool->allocations ? 0 : pool_end(pool);
}

/* Kernels may still use the memory, so the device is waited for, as by pool_free. */
static int arena_park(int device, struct gpumem_arena *arena)
{
	int rc = cuda_primary_run(device, NULL, NULL);

	return rc < 0 ? rc : client_arena_park(arena);
}

/* Unmapped memory has no user to wait for. */
static int arena_unpark(int device, struct gpumem_arena *arena)
{
	(void)device;
	return client_arena_unpark(arena);
}

/* Ends with the first error. Else gives the largest result. */
static int pool_each(struct pool *pool, int (*change)(int device, struct gpumem_arena *arena))
{
	int rc = 0;

	scoped_lock(&pool->lock);
	for (int i = 0; i < DEVICES_MAX && rc >= 0; i++) {
		int result = pool->arenas[i] ? change(i, pool->arenas[i]) : 0;
		rc = result < 0 || result > rc ? result : rc;
	}
	return rc;
}

/* functions NULL: all pools. */
static int torch_each(const struct gpumem_torch *functions,
		      int (*change)(int device, struct gpumem_arena *arena))
{
	struct pool *pool = functions ? pool_find(functions) : NULL;
	int rc = 0;

	if (pool)
		return pool_each(pool, change);
	if (functions)
		return client_fail(EINVAL, "no such pool is open");
	for (size_t i = 0; i < sizeof(device_pools) / sizeof(device_pools[0]) && rc >= 0; i++) {
		int result = pool_each(&device_pools[i], change);
		rc = result < 0 || result > rc ? result : rc;
	}
	return rc;
}

int gpumem_torch_open(const char *directory, const char *name, int device,
		      struct gpumem_torch *functions)
{
	CLIENT_CALL();
	return client_errno_return(torch_open(directory, name, device, functions));
}

int gpumem_torch_close(const struct gpumem_torch *functions)
{
	CLIENT_CALL();
	return client_errno_return(torch_close(functions));
}

int gpumem_torch_park(const struct gpumem_torch *functions)
{
	CLIENT_CALL();
	return client_errno_return(torch_each(functions, arena_park));
}

int gpumem_torch_unpark(const struct gpumem_torch *functions)
{
	CLIENT_CALL();
	int rc = torch_each(functions, arena_unpark);

	return rc > 0 ? rc : client_errno_return(rc);
}
