/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/peers.h"

#include "backend/cuda/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

#include <utlist.h>

static struct peers *peers_of(struct cuda_chunk *chunk)
{
	return &cuda_device(chunk->base.device)->cuda->peers;
}

/* All peers that work; each is held from here on. */
static unsigned access_list(struct cuda_chunk *chunk, gm_CUmemAccessDesc *access)
{
	struct cuda_device *device = cuda_device(chunk->base.device);
	struct backend *backend = &device->cuda->base;
	unsigned n = 0;

	for (unsigned i = 0; i < backend->n_devices; i++) {
		struct cuda_device *peer = cuda_device(backend->devices[i]);
		if (!device->peer[i] || atomic_load(&peer->base.failed))
			continue;
		cuda_hold(peer);
		chunk->peers.guests |= 1ULL << i;
		access[n++] = (gm_CUmemAccessDesc){
		    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = peer->handle},
		    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
	}
	return n;
}

void peers_drop(struct cuda_chunk *chunk)
{
	struct backend *backend = &cuda_device(chunk->base.device)->cuda->base;

	for (unsigned i = 0; i < backend->n_devices; i++)
		if (chunk->peers.guests & 1ULL << i)
			cuda_drop(cuda_device(backend->devices[i]));
	chunk->peers.guests = 0;
}

static bool chunk_peer_failed(const struct cuda_chunk *chunk)
{
	const struct backend *backend = chunk->base.device->backend;
	bool failed = atomic_load(&chunk->base.device->failed);

	for (unsigned i = 0; i < backend->n_devices; i++)
		if (chunk->peers.guests & 1ULL << i)
			failed |= atomic_load(&backend->devices[i]->failed);
	return failed;
}

/* For copies between GPUs: without access they go through host memory at a tenth of the rate;
 * cuCtxEnablePeerAccess has no effect on VMM memory. */
static enum peers_state access_grant_peers(struct cuda_chunk *chunk)
{
	struct cuda_device *device = cuda_device(chunk->base.device);
	gm_CUmemAccessDesc access[BACKEND_DEVICES_MAX];
	unsigned n = access_list(chunk, access);

	if (n == 0 || cuda_context_use(device) < 0)
		return PEERS_NONE;
	gm_CUresult result =
	    device->cuda->cu.cuMemSetAccess(chunk->address, chunk->base.bytes, access, n);
	if (result == GM_CUDA_SUCCESS)
		return PEERS_GRANTED;
	if (chunk_peer_failed(chunk)) /* peers_renew grants it after the reset */
		return PEERS_NONE;
	if (!atomic_exchange(&device->peers_refused, true))
		log_warn("%s: copies between it and other GPUs go through the host: "
			 "cuMemSetAccess returns %d",
			 device->base.label, (int)result);
	return PEERS_NONE;
}

/* peers->lock is held, and released meanwhile. */
static void queue_grant(struct peers *peers, struct cuda_chunk *chunk)
{
	DL_DELETE2(peers->queue, chunk, peers.previous, peers.next);
	atomic_store(&chunk->peers.state, PEERS_GRANTING);
	pthread_mutex_unlock(&peers->lock);
	enum peers_state state = access_grant_peers(chunk);

	pthread_mutex_lock(&peers->lock);
	atomic_store_explicit(&chunk->peers.state, state, memory_order_release);
	pthread_cond_broadcast(&peers->changed);
}

static void peers_work(struct background *background)
{
	struct peers *peers = background->context;

	while (background_wait(background, -1)) {
		scoped_lock(&peers->lock);
		while (peers->queue && !atomic_load(&background->stopping))
			queue_grant(peers, peers->queue);
	}
}

static bool has_peers(const struct cuda_device *device)
{
	for (unsigned i = 0; i < device->cuda->base.n_devices; i++)
		if (device->peer[i])
			return true;
	return false;
}

void peers_add(struct cuda_chunk *chunk)
{
	struct peers *peers = peers_of(chunk);

	if (!has_peers(cuda_device(chunk->base.device)))
		return;
	scoped_lock(&peers->lock);
	/* Another device's reset adds it, too. */
	if (!chunk->handle || !chunk->address ||
	    atomic_load(&chunk->peers.state) == PEERS_WAITING ||
	    atomic_load(&chunk->peers.state) == PEERS_GRANTING)
		return;
	atomic_store(&chunk->peers.state, PEERS_WAITING);
	DL_APPEND2(peers->queue, chunk, peers.previous, peers.next);
	/* Without the thread, peers_need grants. */
	if (!atomic_load(&peers->background.running))
		background_start(&peers->background, peers_work, peers);
	background_wake(&peers->background);
}

/* peers->lock is held. */
static void grant_wait(struct peers *peers, struct cuda_chunk *chunk)
{
	while (atomic_load(&chunk->peers.state) == PEERS_GRANTING)
		pthread_cond_wait(&peers->changed, &peers->lock);
}

void peers_remove(struct cuda_chunk *chunk)
{
	struct peers *peers = peers_of(chunk);

	scoped_lock(&peers->lock);
	if (atomic_load(&chunk->peers.state) == PEERS_WAITING)
		DL_DELETE2(peers->queue, chunk, peers.previous, peers.next);
	grant_wait(peers, chunk);
	atomic_store(&chunk->peers.state, PEERS_NONE);
}

void peers_renew(struct cuda_chunk *chunk)
{
	peers_remove(chunk);
	peers_drop(chunk);
	peers_add(chunk);
}

bool peers_need(struct cuda_chunk *chunk)
{
	struct peers *peers = peers_of(chunk);

	if (peers_granted(&chunk->peers))
		return true;
	scoped_lock(&peers->lock);
	if (atomic_load(&chunk->peers.state) == PEERS_WAITING)
		queue_grant(peers, chunk);
	grant_wait(peers, chunk);
	return peers_granted(&chunk->peers);
}

void peers_open(struct peers *peers)
{
	pthread_mutex_init(&peers->lock, NULL);
	pthread_cond_init(&peers->changed, NULL);
}

void peers_close(struct peers *peers)
{
	background_stop(&peers->background);
	pthread_cond_destroy(&peers->changed);
	pthread_mutex_destroy(&peers->lock);
}
